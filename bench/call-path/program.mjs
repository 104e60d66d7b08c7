// Runs all-reduces with every function entry of the package recorded, and prints one line of JSON: for each kind of call the
// entries in order, with the index of the entry where its data moves. node bench/call-path/program.mjs sim|nccl|tcp

import { spawn } from "node:child_process";
import { mkdtempSync, rmSync } from "node:fs";
import { register } from "node:module";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";

const [kind] = process.argv.slice(2);

let entries;
globalThis.functionEntered = (file, name) => entries?.push([file, name]);
register("./enter-hooks.mjs", import.meta.url);

const { connect, createWorld } = await import("twinccl");

/** First function in which data moves: of the arithmetic here, the submission of NCCL's function there. */
const movesData = {
  sim: ([file]) => file.startsWith("algorithms/arithmetic/"),
  nccl: ([file, name]) => file.endsWith("sys/call-list.ts") && name === "run",
  tcp: ([file, name]) => file.endsWith("tcp/connections.ts") && name === "write",
};

/** Makes this process rank 0 of two, and starts the other one. Gives a function that removes what they met in. */
function startPeer() {
  const folder = mkdtempSync(join(tmpdir(), "twinccl-call-path-"));
  const job = { TWINCCL_RENDEZVOUS_FILE: join(folder, "job"), TWINCCL_JOB_ID: "call-path" };
  const of = (rank) => ({
    ...{ ...job, TWINCCL_RANK: String(rank), TWINCCL_LOCAL_RANK: String(rank) },
    ...{ TWINCCL_SIZE: "2", TWINCCL_LOCAL_SIZE: "2" },
  });
  Object.assign(process.env, of(0));
  const stdio = ["ignore", "ignore", "inherit"];
  const env = { ...process.env, ...of(1) };
  const args = [...process.execArgv, fileURLToPath(import.meta.url), "tcp"];
  spawn(process.execPath, args, { env, stdio });
  return () => rmSync(folder, { recursive: true, force: true });
}

async function open() {
  if (kind === "sim") {
    const { cpu, sim } = await import("twinccl/sim");
    return createWorld({ backend: sim({ executor: cpu() }), size: 4 });
  }
  const { nccl } = await import("twinccl/nccl");
  const { buildInert } = await import("../native/inert.mjs");
  const library = buildInert();
  return createWorld({ backend: nccl({ ncclLibrary: library, cudartLibrary: library }), size: 1 });
}

const paths = {};

/** Keeps what was entered since `entries` began. */
function keep(name) {
  const kept = entries;
  entries = undefined;
  paths[name] = { entries: kept, moved: kept.findIndex(movesData[kind]) };
}

/** Records an awaited call from the moment the last rank makes it until the first rank goes on. */
function recorder(size) {
  const arrived = new Map();
  return async (name, call) => {
    const count = (arrived.get(name) ?? 0) + 1;
    arrived.set(name, count);
    if (count === size) entries = [];
    await call();
    if (entries !== undefined) keep(name);
  };
}

/** The calls of a rank. Of `here` ranks in this process, the last one to make a call begins its record. */
async function calls(comm, here, recorded) {
  const send = comm.alloc("float32", 256);
  const call = () => comm.allReduce({ send, op: "sum" });
  await recorded("first", call);
  await recorded("second", call);
  for (let i = 0; i < 20; i++) await call();
  await recorded("in a loop", call);
  // Back to back: the call behind others that nothing awaited yet, until control is back with the program.
  const last = here === 1 || comm.rank === comm.size - 1;
  for (let i = 0; i < 20; i++) void call();
  if (last) entries = [];
  const op = call();
  if (last) keep("back to back");
  await op;
}

async function inWorld() {
  const world = await open();
  const recorded = recorder(world.size);
  await world.run((comm) => calls(comm, world.size, recorded));
  await world.close();
}

async function inProcesses() {
  const isPeer = process.env.TWINCCL_RANK !== undefined;
  const remove = isPeer ? undefined : startPeer();
  const { tcp } = await import("twinccl/tcp");
  entries = [];
  const comm = await connect({ backend: tcp() });
  keep("connect");
  await calls(comm, 1, recorder(1));
  await comm.close();
  remove?.();
}

await (kind === "tcp" ? inProcesses() : inWorld());
console.log(JSON.stringify(paths));
