/** Calls that connect ranks, where one of them hears late or never what the others do, or has lost its buffers by then. */
import { type CommError, type Communicator, RendezvousError } from "twinccl";
import { expect, test } from "vitest";
import { CommunicatorKeys } from "../../../../../src/job/job.ts";
import { within } from "../../../../support/planted.ts";
import { quickTime } from "../../../../support/quick-time.ts";
import { noteHanded } from "../calls/handed-over.ts";
import { cleanGpus, turns } from "../gpus.ts";
import { closeAll, closeRest, type Joined, joinAll, onAll } from "./joined.ts";

quickTime();

const codeOf = (op: PromiseLike<unknown>): Promise<string> =>
  within(
    20_000,
    Promise.resolve(op).then(
      () => "done",
      ({ code }: CommError) => code,
    ),
  );

const bytes = (comm: Communicator, length = comm.size) => comm.alloc("int8", length);

const calls: [string, (comm: Communicator, options?: object) => PromiseLike<unknown>][] = [
  ["an all-to-all", (comm, o) => comm.allToAll({ send: bytes(comm), recv: bytes(comm), ...o })],
  [
    "an all-to-allv that exchanges counts",
    (comm, o) => comm.allToAllv({ send: bytes(comm), sendCounts: [1, 1], ...o }),
  ],
  [
    "a message",
    (comm, o) =>
      comm.rank === 0
        ? comm.send({ send: bytes(comm), peer: 1, ...o })
        : comm.recv({ recv: bytes(comm), peer: 0, ...o }),
  ],
  [
    "a symmetric call",
    (comm, o) => {
      const send = comm.alloc("float32", 4, { symmetric: true });
      return comm.allReduce({ send, op: "sum", ...o });
    },
  ],
];

/** Has a rank hear that the others have come only when the function returned is called. */
function hearLate({ membership }: Joined): () => void {
  const meet = membership.awaitBarriers.bind(membership);
  let hear = (): void => undefined;
  const heard = new Promise<void>((resolve) => {
    hear = resolve;
  });
  membership.awaitBarriers = async (meetings) => {
    const together = await meet(meetings);
    await heard;
    return together;
  };
  return hear;
}

test.each(calls)(
  "%s that is cancelled after its barrier is still submitted",
  async (name, call) => {
    const gpus = cleanGpus();
    const handed = noteHanded(gpus);
    const ranks = await joinAll(2, "off", gpus);
    const [a, b] = ranks as [Joined, Joined];
    const hear = hearLate(a);
    // What its receiver learns first, the counts, arrives; the data come no more.
    const isCounted = name.includes("counts");
    const late = call(a.comm, { timeoutMs: 60 });
    const there = call(b.comm, { timeoutMs: isCounted ? 700 : 20_000 });
    expect(await codeOf(late)).toBe("ERR_COMM_TIMEOUT");
    expect(handed.filter(({ device }) => device === 0)).toEqual([]);
    hear();
    expect(await codeOf(there)).toBe(isCounted ? "ERR_COMM_TIMEOUT" : "done");
    expect(handed.some(({ device }) => device === 0)).toBe(true);
    expect(await codeOf(a.comm.barrier())).toBe("ERR_COMM_ABORTED");
    await closeRest(ranks);
  },
);

test.each(calls)("%s is made without a query where no other rank is left", async (_, call) => {
  const ranks = await joinAll(2);
  const gone = new RendezvousError({ headline: "the store is gone" }, { address: "nowhere" });
  for (const { membership } of ranks) membership.awaitBarriers = () => Promise.reject(gone);
  expect(await onAll(ranks, ({ comm }) => codeOf(call(comm)))).toEqual(["done", "done"]);
  await closeAll(ranks);
});

test("a message with a buffer that is disposed while it waits is refused by name", async () => {
  const ranks = await joinAll(2);
  const [a, b] = ranks as [Joined, Joined];
  const send = bytes(a.comm);
  const op = a.comm.send({ send, peer: 1 });
  send.dispose();
  const late = b.comm.recv({ recv: bytes(b.comm), peer: 0, timeoutMs: 100 });
  expect(await codeOf(op)).toBe("ERR_COMM_CLOSED");
  await codeOf(late);
  await closeRest(ranks);
});

test("a call behind a cancelled message is made in its order", async () => {
  const ranks = await joinAll(2);
  const [a, b] = ranks as [Joined, Joined];
  const stop = new AbortController();
  // What it sends to itself, it does not receive.
  const [send, recv] = [bytes(a.comm), bytes(a.comm)];
  const stuck = codeOf(a.comm.sendRecv({ send, to: 0, recv, from: 1, signal: stop.signal }));
  await b.comm.send({ send: bytes(b.comm), peer: 0 });
  await turns();
  const behind = ranks.map(({ comm }) => codeOf(comm.barrier()));
  await turns();
  stop.abort();
  expect(await stuck).toBe("ERR_COMM_ABORTED");
  expect(await Promise.all(behind)).toEqual(["done", "done"]);
  await onAll(ranks, ({ comm }) => comm.barrier());
  await closeAll(ranks);
});

test("keys of nested splits stay short, and differ", () => {
  const keys = new CommunicatorKeys();
  const comm = (id: number) => ({ id, name: "", ranks: [0, 1], local: [0] });
  const seen = new Set<string>();
  let parent = comm(0);
  for (let depth = 1; depth < 100; depth++) {
    const children = [comm(2 * depth), comm(2 * depth + 1)];
    keys.add(parent, 10 ** 6, children);
    for (const child of children) seen.add(keys.of(child));
    parent = children[depth % 2] as typeof parent;
  }
  expect(seen.size).toBe(198);
  expect(Math.max(...[...seen].map(({ length }) => length))).toBeLessThan(80);
});
