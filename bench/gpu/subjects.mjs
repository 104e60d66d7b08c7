// The compared subjects, and the commands that start their processes.
import { randomBytes } from "node:crypto";
import { createServer } from "node:net";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { buildNative } from "../native/build.mjs";
import { Peer } from "./peer.mjs";
import { maxBytes } from "./plan.mjs";

const here = (path) => fileURLToPath(new URL(path, import.meta.url));
const ranksOf = (size) => Array.from({ length: size }, (_, rank) => rank);

async function freePort() {
  const server = createServer();
  await new Promise((resolve) => server.listen(0, "127.0.0.1", resolve));
  const { port } = server.address();
  await new Promise((resolve) => server.close(resolve));
  return port;
}

/** The variables of torchrun, which torch and twinccl both understand. */
async function launched(size, folder) {
  const port = await freePort();
  const run = randomBytes(6).toString("hex");
  return ranksOf(size).map((rank) => ({
    RANK: `${rank}`,
    WORLD_SIZE: `${size}`,
    LOCAL_RANK: `${rank}`,
    LOCAL_WORLD_SIZE: `${size}`,
    MASTER_ADDR: "127.0.0.1",
    MASTER_PORT: `${port}`,
    TORCHELASTIC_RUN_ID: run,
    TWINCCL_RENDEZVOUS_FILE: join(folder, `${run}.rendezvous`),
  }));
}

/** Every peer by name: how its processes are started. `processes` is one process per GPU, `one process` drives all. */
const subjects = {
  twinccl: async ({ size, folder, env }) => {
    const launch = await launched(size, folder);
    const args = [here("twinccl-peer.mjs"), "nccl", "rank", `${size}`, `${maxBytes}`];
    return launch.map((variables) => ({
      ...{ file: process.execPath, args, env: { ...env, ...variables } },
    }));
  },
  native: ({ size, folder, env, program }) => {
    const id = join(folder, `${randomBytes(6).toString("hex")}.id`);
    return ranksOf(size).map((rank) => ({
      ...{ file: program(), args: ["rank", `${size}`, `${maxBytes}`, `${rank}`, id], env },
    }));
  },
  koffi: ({ size, folder, env }) => {
    const id = join(folder, `${randomBytes(6).toString("hex")}.id`);
    return ranksOf(size).map((rank) => ({
      file: process.execPath,
      args: [here("koffi-peer.mjs"), `${size}`, `${maxBytes}`, `${rank}`, id],
      env,
    }));
  },
  torch: async ({ size, folder, env }) => {
    const launch = await launched(size, folder);
    const args = [here("../torch/peer.py"), `${maxBytes}`];
    return launch.map((variables) => ({ file: "python3", args, env: { ...env, ...variables } }));
  },
  "twinccl, one process": ({ size, env }) => {
    const args = [here("twinccl-peer.mjs"), "nccl", "one", `${size}`, `${maxBytes}`];
    return [{ file: process.execPath, args, env }];
  },
  "native, one process": ({ size, env, program }) => [
    { file: program(), args: ["one", `${size}`, `${maxBytes}`], env },
  ],
  sim: ({ size, env }) => [
    {
      file: process.execPath,
      args: [here("twinccl-peer.mjs"), "sim", "one", `${size}`, `${2 ** 23}`],
      env,
    },
  ],
};

/** Names of all peers. */
export const subjectNames = Object.keys(subjects);

/** One NCCL for all of them; torch has that of its own wheel, as its greeting says. */
export function variablesFor({ nccl, cudart }) {
  return {
    NCCL_NVLS_ENABLE: "0",
    ...(nccl && { TWINCCL_NCCL_LIBRARY: nccl }),
    ...(cudart && { TWINCCL_CUDART_LIBRARY: cudart }),
  };
}

/** Starts the peers of these names, all at once. One that cannot be started says why in `failure`. */
export async function startPeers(names, { size, folder, env }) {
  let built;
  const program = () => {
    built ??= buildNative(join(folder, "nccl-loop"));
    return built;
  };
  const peers = [];
  for (const name of names) {
    try {
      const processes = await subjects[name]({ size, folder, env, program });
      peers.push(new Peer(name, processes).open());
    } catch (error) {
      const peer = new Peer(name, []);
      peer.failure = error.message.split("\n").slice(0, 4).join(" ");
      peers.push(peer);
    }
  }
  return Promise.all(peers);
}
