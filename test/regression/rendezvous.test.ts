/** Ways in which a job once did not form, or a wait in it once ended, though all its ranks were right. */
import {
  chmodSync,
  mkdirSync,
  mkdtempSync,
  rmSync,
  statSync,
  symlinkSync,
  utimesSync,
  writeFileSync,
} from "node:fs";
import { createConnection, Socket } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { describe, expect, onTestFinished, test, vi } from "vitest";
import { launcherEnvironment } from "../../src/api/world/launchers.ts";
import { fileRendezvous } from "../../src/job/file-rendezvous.ts";
import { rendezvousFor } from "../../src/job/launcher-rendezvous.ts";
import { joinStore } from "../../src/job/membership.ts";
import { limits, type Reply, type Request } from "../../src/job/protocol.ts";
import { Store } from "../../src/job/store.ts";
import { connectSession, tcpRendezvous } from "../../src/job/tcp-rendezvous.ts";
import { longTest } from "../support/long-test.ts";
import { closeAfter } from "../support/opened.ts";
import { launch, script } from "../unit/job/launched.ts";
import { errorOf, type Place, place, relay } from "../unit/job/stores.ts";

/** The number of the next connections of this process that never come about. */
let lostConnects = 0;

vi.hoisted(() => vi.resetModules());

vi.mock("node:net", async (original) => {
  const net = await original<typeof import("node:net")>();
  const create = (options: import("node:net").NetConnectOpts): Socket =>
    lostConnects-- > 0 ? new Socket() : net.createConnection(options);
  return { ...net, createConnection: create };
});

const dropped = ({ server }: Place): number =>
  [...server.dropped.values()].reduce((sum, count) => sum + count, 0);

/** Connects as a stranger that says nothing, `count` times, until the store has dropped as many as it must. */
async function silentStrangers(at: Place, count: number): Promise<void> {
  for (let number = 0; number < count; number++) {
    const socket = createConnection({ host: "127.0.0.1", port: at.server.port });
    closeAfter(async () => socket.destroy());
    socket.on("error", () => undefined).resume();
  }
  await expect.poll(() => dropped(at)).toBeGreaterThanOrEqual(count - limits.pendingConnections);
}

test("strangers drove out a rank that had proven itself and not joined yet", async () => {
  const at = await place(1, { handshakeMs: 60_000 });
  const { secret, jobId } = at;
  const who = { address: at.server.address, jobId, rank: 0, size: 1 };
  const target = { host: "127.0.0.1", port: at.server.port, secret };
  const bounds = { deadlineMs: 5_000, limitMs: 5_000, signal: undefined };
  const session = await connectSession(target, who, bounds);
  await silentStrangers(at, limits.pendingConnections + 10);
  const left = (): Promise<void> => session.leave();
  const request = { ...who, generation: 0, ...bounds };
  const member = await joinStore({ session, address: who.address, jobId, left }, request);
  closeAfter(() => member.leave());
  expect(member).toMatchObject({ rank: 0, size: 1 });
});

test("silent strangers drove out a rank with a handshake under way", async () => {
  const at = await place(1, { handshakeMs: 60_000 });
  // The last message of the handshake, the proof of the rank, is held back.
  let held: (() => void) | undefined;
  let isFirst = true;
  const { port } = await relay(at.server.port, (chunk, from, far) => {
    if (from === "store" || held !== undefined) return chunk;
    if (isFirst) {
      isFirst = false;
      return chunk;
    }
    held = () => far.write(chunk);
    return Buffer.alloc(0);
  });
  const rendezvous = tcpRendezvous({ port, secret: at.secret, host: "other" });
  const joining = rendezvous.join({ jobId: at.jobId, rank: 0, size: 1, deadlineMs: 10_000 });
  await expect.poll(() => held).toBeDefined();
  await silentStrangers(at, limits.pendingConnections + 10);
  held?.();
  const member = await joining;
  closeAfter(() => member.leave());
  expect([...at.server.dropped.keys()]).toEqual(["too many connections"]);
});

test("a rank did not retry after its connection ended before it had joined", async () => {
  const at = await place(2);
  // Of the two connections of an attempt the first one speaks: hello of TLS, proof, hello, join.
  const speaking: Socket[] = [];
  const frames = new Map<Socket, number>();
  let cuts = 0;
  const { port, cut } = await relay(at.server.port, (chunk, from, socket) => {
    if (from === "store") return chunk;
    if (!frames.has(socket)) speaking.push(socket);
    frames.set(socket, (frames.get(socket) ?? 0) + 1);
    const isJoin = speaking.indexOf(socket) % 2 === 0 && frames.get(socket) === 3;
    if (isJoin && cuts < 3) {
      cuts++;
      cut();
    }
    return chunk;
  });
  const rendezvous = tcpRendezvous({ port, secret: at.secret, host: "other" });
  const zero = rendezvous.join({ jobId: at.jobId, rank: 0, size: 2, deadlineMs: 10_000 });
  const [first, second] = await Promise.all([zero, at.join(1, { deadlineMs: 10_000 })]);
  closeAfter(() => first.leave());
  expect([first.rank, second.rank, cuts]).toEqual([0, 1, 3]);
});

test("a rank waited seconds for a connection with a lost request", async () => {
  const at = await place(1);
  lostConnects = 1;
  // The handshake has 5 seconds: within this deadline there is no second attempt behind one that waits for its end.
  const member = await at.join(0, { deadlineMs: 4_000 });
  expect(member.rank).toBe(0);
});

test("a hundred strangers at a time that connect and leave kept four ranks from joining", async () => {
  const at = await place(4);
  let [left, isJoined] = [1_000, false];
  const attack = async (): Promise<void> => {
    while (left > 0 && !isJoined) {
      left -= 100;
      const strangers = Array.from({ length: 100 }, () => {
        const socket = createConnection({ host: "127.0.0.1", port: at.server.port });
        return socket.on("error", () => undefined);
      });
      await new Promise((resolve) => setImmediate(resolve));
      for (const socket of strangers) socket.destroy();
      await new Promise((resolve) => setImmediate(resolve));
    }
  };
  const attacks = [attack(), attack(), attack()];
  const ranks = [0, 1, 2, 3];
  const members = await Promise.all(ranks.map((rank) => at.join(rank, { deadlineMs: 30_000 })));
  isJoined = true;
  await Promise.all(attacks);
  expect(members.map(({ rank }) => rank)).toEqual(ranks);
});

test("a wait longer than the timer limit ended after 1 ms", async () => {
  const warned = vi.fn();
  process.on("warning", warned);
  onTestFinished(() => void process.removeListener("warning", warned));
  const timeoutMs = 2 ** 32 - 1;
  const replies: Reply[] = [];
  const peers = [0, 1].map((rank) => ({
    label: `rank ${rank}`,
    send: (reply: Reply) => void replies.push(reply),
  }));
  const [zero, one] = peers as [(typeof peers)[0], (typeof peers)[0]];
  const store = new Store({ jobId: "job", size: 2, hosted: false });
  onTestFinished(() => store.close());
  const join = (rank: number) =>
    ({
      kind: "join",
      id: 1,
      jobId: "job",
      rank,
      generation: 0,
      size: 2,
      timeoutMs,
      limitMs: timeoutMs,
      label: "",
    }) as const;
  const value = new Uint8Array(1);
  const barriers = [{ key: "m", ranks: [0, 1] }];
  const waits = [
    { kind: "get", id: 2, generation: 0, key: "k", timeoutMs },
    {
      kind: "barrier",
      id: 3,
      generation: 0,
      barriers: [{ key: "x", ranks: [] }],
      value,
      timeoutMs,
    },
    { kind: "barrier", id: 4, generation: 0, barriers, value: undefined, timeoutMs },
    { kind: "rejoin", id: 5, generation: 0, without: undefined, settleMs: timeoutMs, timeoutMs },
  ] as const satisfies readonly Request[];
  const soon = (): Promise<void> => new Promise((resolve) => setTimeout(resolve, 20));
  store.join(zero, join(0));
  await soon();
  store.join(one, join(1));
  for (const wait of waits) store.request(zero, wait);
  await soon();
  expect(replies.map(({ kind }) => kind)).toEqual(["joined", "joined"]);
  expect(warned).not.toHaveBeenCalled();
});

/** A folder of the test's own. */
function freshFolder(): string {
  const folder = mkdtempSync(join(tmpdir(), "twinccl-regression-"));
  onTestFinished(() => rmSync(folder, { recursive: true, force: true }));
  return folder;
}

describe("a stale file with a lock that cannot be removed was waited for until the deadline", () => {
  test.each([
    ["a folder", (lock: string) => mkdirSync(lock)],
    ["a symbolic link", (lock: string) => symlinkSync(`${lock}-nowhere`, lock)],
  ])("%s", async (kind, block) => {
    const path = join(freshFolder(), "meet");
    // Half written, and its writer is gone.
    writeFileSync(path, '{"format":', { mode: 0o600 });
    utimesSync(path, new Date(0), new Date(0));
    block(`${path}.lock`);
    const request = { jobId: "job", rank: 0, size: 1, deadlineMs: 1_000 };
    const error = await errorOf(fileRendezvous({ path }).join(request));
    expect(error).toMatchObject({ code: "ERR_COMM_ARG", field: "path" });
    expect(error.message).toContain(`cannot be written: its lock ${path}.lock is ${kind}\n`);
    expect(error.hint).toMatch(
      /^remove what is in its way, or give a file in a folder that exists, has room, and/,
    );
  });

  test("a file of another user", async () => {
    const path = join(freshFolder(), "meet");
    writeFileSync(path, '{"format":', { mode: 0o600 });
    utimesSync(path, new Date(0), new Date(0));
    writeFileSync(`${path}.lock`, "", { mode: 0o644 });
    const request = { jobId: "job", rank: 0, size: 1, deadlineMs: 1_000 };
    const error = await errorOf(fileRendezvous({ path }).join(request));
    expect(error.message).toContain(`its lock ${path}.lock can be read by other users\n`);
  });
});

describe("other users could block the file in the folder for temporary files", () => {
  /** The rendezvous of ranks on one machine with `folder` as the folder for temporary files. */
  function byDefault(folder: string) {
    vi.stubEnv("TMPDIR", folder);
    onTestFinished(() => void vi.unstubAllEnvs());
    const environment = launcherEnvironment({
      ...{ OMPI_COMM_WORLD_RANK: "0", OMPI_COMM_WORLD_SIZE: "1" },
      ...{ OMPI_COMM_WORLD_LOCAL_RANK: "0", OMPI_COMM_WORLD_LOCAL_SIZE: "1" },
    });
    if (environment === undefined) throw new Error("no launcher was found");
    return rendezvousFor(environment);
  }
  const request = { jobId: "job", rank: 0, size: 1, deadlineMs: 5_000 };

  test("it lies in a folder that this user alone may enter", async () => {
    const folder = freshFolder();
    const own = join(folder, `twinccl-${process.getuid?.()}`);
    for (let restart = 0; restart < 2; restart++) {
      const member = await byDefault(folder).join(request);
      expect(statSync(own).mode & 0o777).toBe(0o700);
      await member.leave();
    }
  });

  test.each([
    ["is a symbolic link", (own: string) => symlinkSync(freshFolder(), own)],
    ["is a file", (own: string) => writeFileSync(own, "")],
    [
      "can be entered by other users",
      (own: string) => {
        mkdirSync(own);
        chmodSync(own, 0o770);
      },
    ],
  ])("a folder that %s is refused by every rank", async (reason, plant) => {
    const folder = freshFolder();
    const own = join(folder, `twinccl-${process.getuid?.()}`);
    plant(own);
    for (const rank of [0, 1]) {
      const error = await errorOf(byDefault(folder).join({ ...request, rank, size: 2 }));
      expect(error).toMatchObject({ code: "ERR_COMM_RENDEZVOUS", rank });
      expect(error.message).toContain(`the folder ${own} ${reason}\n`);
      expect(error.hint).toContain("TWINCCL_RENDEZVOUS_FILE");
    }
  });

  test("a folder of another user is refused", async () => {
    const folder = freshFolder();
    const users = process as Required<Pick<NodeJS.Process, "getuid">>;
    const other = users.getuid() + 1;
    mkdirSync(join(folder, `twinccl-${other}`), { mode: 0o700 });
    const user = vi.spyOn(users, "getuid").mockReturnValue(other);
    onTestFinished(() => user.mockRestore());
    const error = await errorOf(byDefault(folder).join(request));
    expect(error.message).toContain(`twinccl-${other} belongs to user ${other - 1}\n`);
  });

  test("a folder that cannot be created is reported", async () => {
    const error = await errorOf(byDefault(join(freshFolder(), "missing")).join(request));
    expect(error.message).toMatch(/the folder .* cannot be created: ENOENT/);
  });
});

longTest("a process that a rank starts inherited the secret of its job", async () => {
  const file = (name: string) => new URL(`../../dist/${name}`, import.meta.url).href;
  const rendezvousModule = file("job/launcher-rendezvous.js");
  const path = script(
    "inherits.mjs",
    `import { spawnSync } from "node:child_process";
     import { Worker } from "node:worker_threads";
     import { connect } from ${JSON.stringify(file("api/index.js"))};
     import { nccl } from ${JSON.stringify(file("backends/nccl/index.js"))};
     const given = process.env.TWINCCL_SECRET.length;
     const seen = () => spawnSync("sh", ["-c", "echo \${TWINCCL_SECRET-undefined}"]).stdout;
     // Without GPUs it fails, after it has read the variables.
     await connect({ backend: nccl() }).then((comm) => comm.close(), () => undefined);
     console.log(given, String(seen()).trim());
     const body = \`import(${JSON.stringify(rendezvousModule)}).then((module) => {
       const { secret } = module.launchedRank({});
       console.log("worker", secret.length, process.env.TWINCCL_SECRET);
     })\`;
     const worker = new Worker(body, { eval: true });
     await new Promise((resolve) => worker.once("exit", resolve));`,
  );
  const { lines, status } = await launch(["-n", "2", path]).ended;
  expect({ lines, status }).toEqual({
    lines: [0, 1].flatMap((rank) => [`[${rank}] 64 undefined`, `[${rank}] worker 64 undefined`]),
    status: 0,
  });
});
