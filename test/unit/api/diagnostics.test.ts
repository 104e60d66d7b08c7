/** Reports on every operation: hooks, Node's diagnostics channels, and the counts of `stats`. */

import { tracingChannel } from "node:diagnostics_channel";
import { type CommOp, type Communicator, createWorld, type OpInfo } from "twinccl";
import { sim } from "twinccl/sim";
import { describe, expect, test } from "vitest";
import { within } from "../../support/planted.ts";

// biome-ignore lint/suspicious/noExplicitAny: what was thrown is judged by its facts
type Thrown = any;

const size = 2;

async function inWorld<T>(program: (comm: Communicator) => T | PromiseLike<T>) {
  const world = await createWorld({ backend: sim(), size });
  try {
    return await within(3000, world.run(program));
  } finally {
    await world.close();
  }
}

const i8 = (length: number): Int8Array => new Int8Array(length);
const root = ({ rank }: Communicator, args: object): object => (rank === 0 ? args : {});

/** Every operation on two ranks, what it counts, and the bytes that rank 0 sends. */
const operations: readonly {
  readonly name: string;
  readonly call: (comm: Communicator) => CommOp;
  readonly count: number;
  readonly bytes: number;
  readonly dtype?: string;
  /** The name of rank 0's part where it is not `name`. */
  readonly partNames?: readonly string[];
}[] = [
  { name: "allReduce", call: (c) => c.allReduce({ send: i8(6), op: "sum" }), count: 6, bytes: 6 },
  {
    name: "reduce",
    call: (c) => c.reduce({ send: i8(6), op: "sum", root: 0 }),
    count: 6,
    bytes: 6,
  },
  { name: "broadcast", call: (c) => c.broadcast({ recv: i8(5), root: 0 }), count: 5, bytes: 5 },
  { name: "allGather", call: (c) => c.allGather({ send: i8(3), recv: i8(6) }), count: 3, bytes: 3 },
  {
    name: "allGatherv",
    call: (c) => c.allGatherv({ send: i8(c.rank + 1), recv: i8(3), recvCounts: [1, 2] }),
    count: 1,
    bytes: 1,
  },
  {
    name: "reduceScatter",
    call: (c) => c.reduceScatter({ send: i8(6), recv: i8(3), op: "max" }),
    count: 3,
    bytes: 6,
  },
  {
    name: "reduceScatterv",
    call: (c) =>
      c.reduceScatterv({ send: i8(3), recv: i8(c.rank + 1), op: "max", sendCounts: [1, 2] }),
    count: 1,
    bytes: 3,
  },
  { name: "allToAll", call: (c) => c.allToAll({ send: i8(4), recv: i8(4) }), count: 2, bytes: 4 },
  {
    name: "allToAllv",
    call: (c) => c.allToAllv({ send: i8(3), sendCounts: [1, 1] }),
    count: 2,
    bytes: 3,
  },
  {
    name: "gather",
    call: (c) => c.gather({ send: i8(2), root: 0, ...root(c, { recv: i8(4) }) }),
    count: 2,
    bytes: 2,
  },
  {
    name: "scatter",
    call: (c) => c.scatter({ recv: i8(2), root: 0, ...root(c, { send: i8(4) }) }),
    count: 2,
    bytes: 4,
  },
  { name: "barrier", call: (c) => c.barrier(), count: 0, bytes: 0, dtype: "undefined" },
  { name: "split", call: (c) => c.split({ color: 0 }), count: 0, bytes: 0, dtype: "undefined" },
  {
    name: "capture",
    call: (c) => c.capture(() => undefined),
    count: 0,
    bytes: 0,
    dtype: "undefined",
  },
  {
    name: "send",
    call: (c) =>
      c.rank === 0 ? c.send({ send: i8(3), peer: 1 }) : c.recv({ recv: i8(3), peer: 0 }),
    count: 3,
    bytes: 3,
  },
  {
    name: "recv",
    call: (c) =>
      c.rank === 1 ? c.send({ send: i8(3), peer: 0 }) : c.recv({ recv: i8(3), peer: 1 }),
    count: 3,
    bytes: 0,
  },
  {
    name: "sendRecv",
    call: (c) => c.sendRecv({ send: i8(3), recv: i8(3), to: 1 - c.rank, from: 1 - c.rank }),
    count: 3,
    bytes: 3,
  },
];

describe("hooks", () => {
  test.each(operations)(
    "report $name before and after",
    async ({ name, call, count, dtype = "int8" }) => {
      const seen: string[] = [];
      await inWorld(async (comm) => {
        if (comm.rank === 0) {
          const note = (when: string, info: OpInfo): void => {
            const { collective, comm: named, rank } = info;
            seen.push(`${when} ${collective} ${info.dtype} ${info.count} ${named} ${rank}`);
          };
          comm.hooks.before((info) => note("before", info));
          comm.hooks.after((info, error) => note(error === undefined ? "after" : "failed", info));
        }
        await call(comm);
      });
      const facts = `${name} ${dtype} ${count} world 0`;
      expect(seen).toEqual([`before ${facts}`, `after ${facts}`]);
    },
  );

  test("of a subgroup are separate", async () => {
    const seen: string[] = [];
    await inWorld(async (comm) => {
      const sub = await comm.split({ color: 0, key: -comm.rank });
      comm.hooks.before((info) => seen.push(`world ${info.comm} ${info.rank}`));
      sub.hooks.before((info) => seen.push(`sub ${info.comm} ${info.rank}`));
      if (comm.rank === 1) await sub.barrier();
      else await sub.barrier().then(() => undefined);
      await comm.barrier();
    });
    expect(seen.sort()).toEqual([
      "sub world/0 0",
      "sub world/0 1",
      "world world 0",
      "world world 1",
    ]);
  });

  test("report every part of a group and every replay, with the numbers of their calls", async () => {
    const seen: string[] = [];
    await inWorld(async (comm) => {
      if (comm.rank === 0) {
        comm.hooks.after(({ collective, call }) => seen.push(`${collective} ${call}`));
      }
      await comm.group(() => {
        void comm.barrier();
        void comm.allReduce({ send: i8(1), op: "sum" });
      });
      const graph = await comm.capture(() => void comm.barrier());
      await graph.replay();
      await graph.replay();
    });
    expect(seen).toEqual(["barrier 0", "allReduce 1", "capture 2", "replay 3", "replay 4"]);
  });
});

describe("diagnostics channels", () => {
  interface Message extends OpInfo {
    readonly error?: unknown;
  }

  /** Messages of one channel while a program runs. */
  async function listen(
    name: string,
    program: (comm: Communicator) => unknown,
  ): Promise<readonly (readonly [string, Message])[]> {
    const messages: (readonly [string, Message])[] = [];
    const note = (what: string) => (message: unknown) => {
      messages.push([what, message as Message]);
    };
    const subscribers = {
      start: note("start"),
      end: note("end"),
      asyncStart: note("asyncStart"),
      asyncEnd: note("asyncEnd"),
      error: note("error"),
    };
    const channel = tracingChannel(`twinccl:${name}`);
    channel.subscribe(subscribers);
    await inWorld(program).finally(() => channel.unsubscribe(subscribers));
    return messages;
  }

  test.each(operations)("report $name on its own channel", async ({ name, call, count }) => {
    const messages = await listen(name, call);
    const both = name === "send" || name === "recv" ? 1 : size;
    expect(messages.map(([what]) => what).sort()).toEqual([
      ...new Array(both).fill("asyncEnd"),
      ...new Array(both).fill("start"),
    ]);
    const mine = messages.filter(([, { rank }]) => rank === 0 || both === 1);
    expect(mine[0]).toEqual([
      "start",
      expect.objectContaining({ collective: name, comm: "world", count }),
    ]);
    expect(mine[1]).toEqual(["asyncEnd", expect.objectContaining({ collective: name, call: 0 })]);
  });

  test("report a failure, before the end, with its error", async () => {
    const messages = await listen("allGather", async (comm) => {
      const length = comm.rank + 1;
      await comm
        .allGather({ send: i8(length), recv: i8(2 * length) })
        .catch((error: Thrown) => error.code);
    });
    const first = messages.filter(([, { rank }]) => rank === 1);
    expect(first.map(([what]) => what)).toEqual(["start", "error", "asyncEnd"]);
    expect(first[1]?.[1].error).toMatchObject({ code: "ERR_COMM_MISMATCH", rank: 1 });
  });

  test("are silent for calls that were never posted, and without subscribers", async () => {
    const messages = await listen("reduce", async (comm) => {
      await comm.reduce({ send: i8(1), op: "sum", root: 9 }).catch(() => undefined);
    });
    expect(messages).toEqual([]);
    const others = await listen("reduce", (comm) => comm.barrier());
    expect(others).toEqual([]);
  });

  test("report a group on its own channel: once, with the number of its calls", async () => {
    const messages = await listen("group", (comm) =>
      comm.group(() => {
        void comm.barrier();
        void comm.group(() => void comm.allReduce({ send: i8(1), op: "sum" }));
      }),
    );
    const mine = messages.filter(([, { rank }]) => rank === 1);
    const group = { collective: "group", comm: "world", count: 2, dtype: undefined };
    expect(mine).toEqual([
      ["start", expect.objectContaining(group)],
      ["asyncEnd", expect.objectContaining({ ...group, call: 0 })],
    ]);
    expect(messages).toHaveLength(2 * size);
  });

  test("report a group's calls on their channels too, and its failure", async () => {
    const wrong = (comm: Communicator) =>
      comm
        .group(() => {
          void comm.barrier();
          void comm.allGather({ send: i8(comm.rank + 1), recv: i8(2 * comm.rank + 2) });
        })
        .catch(() => undefined);
    const ofRank1 = async (name: string) =>
      (await listen(name, wrong)).flatMap(([what, { rank }]) => (rank === 1 ? [what] : []));
    expect(await ofRank1("group")).toEqual(["start", "error", "asyncEnd"]);
    expect(await ofRank1("barrier")).toEqual(["start", "asyncEnd"]);
    expect(await ofRank1("allGather")).toEqual(["start", "error", "asyncEnd"]);
  });

  test("do not report the halves of a sendRecv", async () => {
    const both = (comm: Communicator) =>
      comm.sendRecv({ send: i8(3), recv: i8(3), to: 1 - comm.rank, from: 1 - comm.rank });
    expect(await listen("send", both)).toEqual([]);
    expect(await listen("recv", both)).toEqual([]);
  });
});

describe("stats", () => {
  test.each(operations)("count $name and its bytes", async ({ name, call, bytes }) => {
    const [stats] = await inWorld(async (comm) => {
      await call(comm);
      await call(comm);
      return comm.stats();
    });
    const counted = { calls: { [name]: 2 }, sendBytes: 2 * bytes, failures: 0 };
    expect(stats).toEqual({ ...counted, virtualNs: expect.any(Number) });
  });

  test("report the time on the virtual clock of the rank", async () => {
    const times = await inWorld(async (comm) => {
      comm.work(comm.rank === 0 ? 250 : 1.5);
      const own = comm.stats().virtualNs;
      await comm.barrier();
      return [own, comm.stats().virtualNs as number];
    });
    expect(times.map(([own]) => own)).toEqual([250, ...new Array(size - 1).fill(1.5)]);
    for (const [, end] of times) expect(end).toBeGreaterThan(250);
  });

  test("of a subgroup and of the world are separate; a group counts its parts", async () => {
    const results = await inWorld(async (comm) => {
      const sub = await comm.split({ color: 0 });
      await sub.group(() => {
        void sub.allReduce({ send: i8(4), op: "sum" });
        void sub.send({ send: i8(2), peer: 1 - sub.rank });
        void sub.recv({ recv: i8(2), peer: 1 - sub.rank });
      });
      return [comm.stats(), sub.stats()];
    });
    const world = { calls: { split: 1 }, sendBytes: 0, failures: 0 };
    const sub = { calls: { allReduce: 1, send: 1, recv: 1 }, sendBytes: 6, failures: 0 };
    const virtualNs = expect.any(Number);
    expect(results).toEqual(
      new Array(size).fill([
        { ...world, virtualNs },
        { ...sub, virtualNs },
      ]),
    );
  });

  test("number and fail a sendRecv as one call", async () => {
    const [facts] = await inWorld(async (comm) => {
      const peer = 1 - comm.rank;
      const swap = (send: number, recv: number): CommOp =>
        comm.sendRecv({ send: i8(send), recv: i8(recv), to: peer, from: peer });
      const first = swap(1, 1);
      const wrong = swap(2, 3);
      const last =
        comm.rank === 0 ? comm.send({ send: i8(1), peer }) : comm.recv({ recv: i8(1), peer });
      const outcomes = await Promise.allSettled([first, wrong, last]);
      const { calls, failures } = comm.stats();
      return {
        outcomes: outcomes.map(({ status }) => status),
        numbers: [first, wrong, last].map(({ call }) => call),
        calls,
        failures,
      };
    });
    expect(facts).toEqual({
      outcomes: ["fulfilled", "rejected", "fulfilled"],
      numbers: [0, 1, 2],
      calls: { sendRecv: 2, send: 1 },
      failures: 1,
    });
  });

  test("are a copy: changing them changes nothing", async () => {
    const results = await inWorld(async (comm) => {
      (comm.stats().calls as Record<string, number>)["barrier"] = 9;
      await comm.barrier();
      return comm.stats().calls;
    });
    expect(results).toEqual([{ barrier: 1 }, { barrier: 1 }]);
  });
});
