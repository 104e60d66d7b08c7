/** Calls that connect ranks for the first time, where one does not come: NCCL, which would block on it, is not given them. */
import type { CallOptions, CommOp, Communicator } from "twinccl";
import { describe, expect, test } from "vitest";
import { within } from "../../../../support/planted.ts";
import { quickTime } from "../../../../support/quick-time.ts";
import { noteHanded } from "../calls/handed-over.ts";
import { cleanGpus, turns } from "../gpus.ts";
import { closeRest, errorOf, joinAll, onAll } from "./joined.ts";

quickTime();

/** A rank's call; `undefined` for one that has no part in it. */
type Call = (comm: Communicator, options: CallOptions) => PromiseLike<unknown> | undefined;

interface Case {
  readonly what: string;
  /** The absent rank. */
  readonly absent: number;
  readonly call: Call;
  /** The act of all ranks before. */
  readonly before?: (comm: Communicator) => Promise<unknown>;
}

const bytes = (comm: Communicator, length = 3) => comm.alloc("int8", length);

const message =
  (from: number, to: number): Call =>
  (comm, options) => {
    if (comm.rank === from) return comm.send({ send: bytes(comm), peer: to, ...options });
    return comm.rank === to ? comm.recv({ recv: bytes(comm), peer: from, ...options }) : undefined;
  };

const allToAll: Call = (comm, options) =>
  comm.allToAll({ send: bytes(comm), recv: bytes(comm), ...options });

/** Every rank sends to the next one alone. */
const toNext: Call = (comm, options) => {
  const counts = (other: number) => [0, 1, 2].map((rank) => (rank === other ? 2 : 0));
  const sendCounts = counts((comm.rank + 1) % 3);
  const recvCounts = counts((comm.rank + 2) % 3);
  const [send, recv] = [bytes(comm, 2), bytes(comm, 2)];
  return comm.allToAllv({ send, recv, sendCounts, recvCounts, ...options });
};

const symmetric = (comm: Communicator) => comm.alloc("float32", 8, { symmetric: true });
const reduceSymmetric: Call = (comm, options) =>
  comm.allReduce({ send: symmetric(comm), op: "sum", ...options });

const recorded =
  (call: Call): Call =>
  (comm) =>
    comm.capture(() => void call(comm, {}));

const gather: Call = (comm, options) => {
  const recv = comm.rank === 0 ? { recv: bytes(comm) } : {};
  return comm.gather({ send: bytes(comm, 1), ...recv, root: 0, ...options });
};

const scatter: Call = (comm, options) => {
  const send = comm.rank === 0 ? { send: bytes(comm) } : {};
  return comm.scatter({ ...send, recv: bytes(comm, 1), root: 0, ...options });
};

const cases: Case[] = [
  { what: "a first message, by its sender", absent: 2, call: message(0, 2) },
  { what: "a first message, by its receiver", absent: 0, call: message(0, 2) },
  { what: "an all-to-all", absent: 1, call: allToAll },
  { what: "an all-to-allv with zeros", absent: 1, call: toNext },
  {
    what: "an all-to-allv whose counts are exchanged",
    absent: 2,
    call: (comm, options) =>
      comm.allToAllv({ send: bytes(comm), sendCounts: [0, 3, 0], ...options }),
  },
  { what: "a gather, by its root", absent: 2, call: gather },
  { what: "a gather, without its root", absent: 0, call: gather },
  { what: "a scatter, by its root", absent: 1, call: scatter },
  { what: "a scatter, without its root", absent: 0, call: scatter },
  { what: "a symmetric all-reduce", absent: 1, call: reduceSymmetric },
  {
    what: "a second symmetric buffer",
    absent: 0,
    call: reduceSymmetric,
    before: async (comm) => reduceSymmetric(comm, {}),
  },
  { what: "a recording of an all-to-all", absent: 2, call: recorded(allToAll) },
  { what: "a recording of a symmetric all-reduce", absent: 1, call: recorded(reduceSymmetric) },
];

describe.each(["world", "split"] as const)("a missing rank, on a %s,", (where) => {
  test.each(cases)("is named by the waiting ranks: $what", async ({ absent, call, before }) => {
    const timeoutMs = 100;
    // A recording takes no deadline of its own, but has that of its session.
    const gpus = cleanGpus({ timeoutMs: 250 });
    const ranks = await joinAll(where === "world" ? 3 : 4, "off", gpus);
    const comms = await onAll(
      ranks,
      async ({ comm }): Promise<Communicator | undefined> =>
        where === "world"
          ? comm
          : comm.split({ color: comm.rank > 0 ? 1 : undefined, key: -comm.rank }),
    );
    const members = comms.filter((comm) => comm !== undefined).sort((a, b) => a.rank - b.rank);
    const others = await onAll(ranks, ({ comm }) => comm.split({ color: 0 }));
    if (before !== undefined) await within(5000, Promise.all(members.map(before)));
    const handed = noteHanded(gpus);
    const waiting = members.flatMap((comm) => {
      const op = comm.rank === absent ? undefined : call(comm, { timeoutMs });
      return op === undefined ? [] : [{ comm, ended: errorOf(op) }];
    });
    expect(waiting.length).toBeGreaterThan(0);
    for (const { comm, ended } of waiting) {
      expect(await ended).toMatchObject({
        ...{ name: "CommTimeoutError", code: "ERR_COMM_TIMEOUT" },
        ...{ rank: comm.rank, size: 3, comm: comm.name, ranks: [absent] },
      });
      expect(await errorOf(comm.barrier())).toMatchObject({ code: "ERR_COMM_ABORTED" });
    }
    expect(handed, "NCCL was given nothing").toEqual([]);
    await turns();
    expect(gpus.machine.count("abortInBackground")).toBe(waiting.length);
    const rest = await Promise.all(others.map((comm) => errorOf(comm.barrier() as CommOp)));
    expect(rest).toEqual(others.map(() => undefined));
    const late = call(members[absent] as Communicator, { timeoutMs });
    expect(await errorOf(late as PromiseLike<unknown>)).toMatchObject({ code: /TIMEOUT|ABORTED/ });
    await closeRest(ranks, members);
  });
});
