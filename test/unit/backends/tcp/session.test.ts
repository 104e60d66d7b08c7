/** Ranks of a job in this process: ends of other ranks, senders that are far ahead, calls that fail. */
import { afterEach, describe, expect, test, vi } from "vitest";
import type { Plan } from "../../../../src/algorithms/index.ts";
import type { CommError } from "../../../../src/api/index.ts";
import { Peers } from "../../../../src/backends/tcp/peers.ts";
import { Job } from "../../../../src/job/job.ts";
import { failConnections, failListeners } from "../../../support/no-files.ts";
import { closeAfter } from "../../../support/opened.ts";
import { within } from "../../../support/planted.ts";
import { TcpJob, type TcpJobOptions } from "../../../support/tcp-jobs.ts";

/** Time after which the end of a connection counts. */
const lossGraceMs = 150;

afterEach(() => vi.restoreAllMocks());

async function open(size: number, options: TcpJobOptions = {}): Promise<TcpJob> {
  const job = await TcpJob.open(size, { compareCalls: "off", lossGraceMs, ...options });
  closeAfter(() => job.close().catch(() => undefined));
  return job;
}

const pause = (ms: number) => new Promise((resolve) => setTimeout(resolve, ms));

describe("a rank that closes", () => {
  test("after its part of a gather leaves the others their call", async () => {
    const job = await open(3);
    const recv = job.comms[0]!.alloc("int32", 3);
    await job.each(async (comm, rank) => {
      if (rank === 2) await pause(2 * lossGraceMs);
      const send = comm.alloc("int32", 1).fill(rank + 1);
      await comm.gather({ send, ...(rank === 0 && { recv }), root: 0 });
      if (rank === 1) await comm.close();
    });
    expect([...(await recv.toHost())]).toEqual([1, 2, 3]);
  });

  test("leaves the others their messages", async () => {
    const job = await open(3);
    await job.each(async (comm) => comm.barrier());
    const found = await job.each(async (comm, rank) => {
      if (rank === 1) return void (await comm.close());
      if (rank === 2) await pause(2 * lossGraceMs);
      const buffer = comm.alloc("int32", 4).fill(rank);
      if (rank === 0) await comm.recv({ recv: buffer, peer: 2 });
      else await comm.send({ send: buffer, peer: 0 });
      return [...(await buffer.toHost())];
    });
    expect(found).toEqual([[2, 2, 2, 2], undefined, [2, 2, 2, 2]]);
  });

  test("ends a call that the close of another rank waits for", async () => {
    const job = await open(2);
    const [waiting, ending] = await job.each((comm) => comm.split({ color: 0 }));
    const call = waiting!.allReduce({ send: waiting!.alloc("int32", 4), op: "sum" });
    const failed = call.then(undefined, (error) => error);
    await call.enqueued;
    const closed = job.comms[0]!.close();
    await pause(100);
    await ending!.close();
    await within(10_000, closed);
    expect(await failed).toMatchObject({ code: "ERR_COMM_REMOTE", ranks: [1] });
  });

  test.each(["capture", "mismatch"])(
    "after a %s leaves the others their messages",
    async (last) => {
      const job = await open(3, { compareCalls: "once" });
      const found = await job.each(async (comm, rank) => {
        const buffer = comm.alloc("int32", 4).fill(rank);
        if (last === "capture") await comm.capture(() => void comm.barrier());
        else await comm.broadcast({ recv: buffer, root: rank }).catch(() => undefined);
        if (rank === 1) return void (await comm.close());
        // Longer than an end elsewhere leaves an open call.
        if (rank === 2) await pause(2_500);
        if (rank === 0) await comm.recv({ recv: buffer, peer: 2 });
        else await comm.send({ send: buffer, peer: 0 });
        return [...(await buffer.toHost())];
      });
      expect(found).toEqual([[2, 2, 2, 2], undefined, [2, 2, 2, 2]]);
    },
  );

  test("fails messages to it and from it by name", async () => {
    const job = await open(3);
    await job.each(async (comm) => comm.barrier());
    await job.comms[1]!.close();
    await pause(200);
    const outcomes = await job.outcomes(async (comm, rank) => {
      if (rank === 1) return "closed";
      const buffer = comm.alloc("int32", 4);
      if (rank === 0) await comm.recv({ recv: buffer, peer: 1 });
      if (rank === 2) await comm.send({ send: buffer, peer: 1 });
      return "fine";
    });
    expect(outcomes[1]).toBe("closed");
    for (const error of [outcomes[0], outcomes[2]]) {
      expect(error).toMatchObject({
        code: expect.stringMatching(/^ERR_COMM_(REMOTE|LOST|ABORTED)/),
      });
    }
  });
});

test.each(["off", "once", "always"] as const)(
  "a rank that aborts and closes at once is reported by its abort, calls compared %s",
  async (compareCalls) => {
    const job = await open(2, { compareCalls });
    await job.each(async (comm) => comm.barrier());
    const [waiting, ending] = job.comms as [(typeof job.comms)[0], (typeof job.comms)[0]];
    const call = waiting.allReduce({ send: waiting.alloc("int32", 4), op: "sum" });
    ending.abort(new Error("as planned"));
    await ending.close();
    await expect(within(10_000, Promise.resolve(call))).rejects.toMatchObject({
      ...{ code: "ERR_COMM_ABORTED", ranks: [1] },
      message: expect.stringContaining("as planned"),
    });
  },
);

test.each(["off", "once", "always"] as const)(
  "a capture beside another call on a split of some ranks is a mismatch, calls compared %s",
  async (compareCalls) => {
    const job = await open(3, { compareCalls });
    const outcomes = await job.outcomes(async (comm, rank) => {
      const part = await comm.split({ color: rank === 2 ? undefined : 0 });
      await part?.barrier();
      await (rank === 0 ? part?.capture(() => void part.barrier()) : part?.barrier());
    });
    expect(outcomes).toMatchObject([
      { code: "ERR_COMM_MISMATCH", ranks: [0, 1] },
      { code: "ERR_COMM_ABORTED", ranks: [0] },
      undefined,
    ]);
  },
);

test.each(["off", "once", "always"] as const)(
  "a rank that others rebuild without gets their ranks in its calls, calls compared %s",
  async (compareCalls) => {
    const job = await open(3, { compareCalls });
    await job.each((comm) => comm.barrier());
    const outcomes = await job.outcomes(async (comm, rank) => {
      if (rank < 2) return (await comm.rebuild({ without: [2] })).close();
      const send = comm.alloc("int32", 1);
      const calls = [
        () => comm.capture(() => void comm.allReduce({ send, op: "sum" })),
        () => comm.allReduce({ send, op: "sum" }),
      ];
      const settled: unknown[] = [];
      for (const call of calls) settled.push(await call().catch((error: unknown) => error));
      return settled;
    });
    const left = { code: "ERR_COMM_ABORTED", ranks: [0, 1] };
    expect(outcomes).toMatchObject([undefined, undefined, [left, left]]);
  },
);

test("a connection that ends names the rank by its number in the communicator", async () => {
  const opening = vi.spyOn(Peers, "open");
  const job = await open(3);
  const peers = await Promise.all(opening.mock.results.map(({ value }) => value as Promise<Peers>));
  const outcomes = await job.outcomes(async (comm, rank) => {
    const child = await comm.split({ color: rank === 0 ? undefined : 1 });
    if (child === undefined) return "absent";
    await child.barrier();
    if (rank === 2) peers.find((each) => each.rank === 2)?.destroy();
    else await child.recv({ recv: child.alloc("int32", 4), peer: 1 });
    return "fine";
  });
  expect(outcomes[1]).toMatchObject({
    ...{ code: "ERR_COMM_LOST", size: 2, ranks: [1] },
    message: expect.stringContaining("the connection to rank 1 has ended"),
  });
});

test("a rank that is late for a compared call of a dozen others makes no warning", async () => {
  const warned = vi.spyOn(process, "emitWarning");
  const job = await open(13, { compareCalls: "once" });
  await job.each(async (comm, rank) => {
    // Longer than a comparison waits before it asks the others.
    if (rank === 12) await pause(1_000);
    await comm.barrier();
  });
  expect(warned.mock.calls).toEqual([]);
});

test("a lost rank is named, and no rank that ends its connection by that loss", async () => {
  const opening = vi.spyOn(Peers, "open");
  const listeners: ((rank: number, reason: string) => void)[] = [];
  vi.spyOn(Job.prototype, "onLost").mockImplementation((listener) => {
    listeners.push(listener);
  });
  const job = await open(3, { lossGraceMs: 60_000 });
  const peers = await Promise.all(opening.mock.results.map(({ value }) => value as Promise<Peers>));
  await job.each(async (comm) => comm.barrier());
  const two = job.comms[2]!;
  const waiting = two.recv({ recv: two.alloc("int32", 4), peer: 1 });
  // Rank 0 had the store: rank 1 ends without news of it there.
  peers.find(({ rank }) => rank === 1)?.destroy();
  await pause(100);
  const noted = vi.spyOn(Peers.prototype, "lost");
  for (const lose of listeners) lose(0, "as planned");
  expect(noted).toHaveBeenCalledWith(0);
  await expect(within(5_000, Promise.resolve(waiting))).rejects.toMatchObject({
    ...{ code: "ERR_COMM_LOST", ranks: [0] },
    message: expect.stringContaining("as planned"),
  });
});

describe("a rank that can open no more files", () => {
  const hint = expect.stringContaining("ulimit -n");

  // The first connection is the request of the sender, the second one the connection of the receiver.
  test.each([0, 1])("fails its call at once, and blames itself: rank %i", async (rank) => {
    const job = await open(2, { lossGraceMs: 60_000 });
    failConnections(rank);
    const outcomes = await job.outcomes(async (comm) => {
      await comm.broadcast({ recv: comm.alloc("int32", 4), root: 0 });
    });
    expect(outcomes[rank]).toMatchObject({
      ...{ code: "ERR_COMM_BACKEND", rank, ranks: [rank], hint },
      message: expect.stringContaining("this process can open no more files (EMFILE)"),
    });
    expect(outcomes[1 - rank]).toMatchObject({ code: "ERR_COMM_ABORTED", ranks: [rank] });
  });

  test("does not blame its address where it cannot listen", async () => {
    failListeners((options) => "backlog" in options);
    await expect(open(2)).rejects.toMatchObject({
      code: "ERR_COMM_BACKEND",
      field: undefined,
      hint,
    });
  });
});

describe("a sender that is far ahead", () => {
  test.each([
    ["large", 2 ** 18, 12],
    ["small", 4, 60],
  ])("of %s calls waits for its receiver", async (_, count, most) => {
    const job = await open(2);
    const calls = 100;
    let made = 0;
    const sending = (async () => {
      const send = job.comms[0]!.alloc("int32", count);
      for (let i = 0; i < calls; i++) {
        await job.comms[0]!.broadcast({ recv: send.fill(i), root: 0 });
        made++;
      }
    })();
    // It stands still once it waits.
    let before = -1;
    while (made === 0 || before !== made) {
      before = made;
      await pause(100);
    }
    expect(made).toBeGreaterThan(0);
    expect(made).toBeLessThan(most);
    const recv = job.comms[1]!.alloc("int32", count);
    for (let i = 0; i < calls; i++) {
      await job.comms[1]!.broadcast({ recv, root: 0 });
      const found = await recv.toHost();
      expect([found[0], found[count - 1]]).toEqual([i, i]);
    }
    await within(20_000, sending);
  });
});

describe("a call that fails", () => {
  const planted = new Error("a planted fault");

  /** Plans whose folds throw on one rank. */
  function faulty(plan: Plan): Plan {
    const throws = (): never => {
      throw planted;
    };
    const folds: Plan["folds"] = (dtype, op) => {
      const usual = plan.folds(dtype, op);
      return { ...usual, fold: { ...usual.fold, addContribution: throws, finish: throws } };
    };
    return new Proxy(plan, {
      get: (target, name) => {
        const value = Reflect.get(target, name, target) as unknown;
        if (name === "folds") return folds;
        return typeof value === "function" ? value.bind(target) : value;
      },
    });
  }

  test("in its arithmetic fails on its rank, and by its end on the others", async () => {
    const job = await open(2, { replan: (rank, plan) => (rank === 1 ? faulty(plan) : plan) });
    const outcomes = await job.outcomes(async (comm) => {
      const send = comm.alloc("int32", 100_000).fill(1);
      await comm.allReduce({ send, op: "sum" });
    });
    expect(outcomes[0]).toMatchObject({ code: "ERR_COMM_ABORTED", ranks: [1] });
    expect(outcomes[1]).toBe(planted);
  });

  test("by its length names both ranks, and writes nothing on the rank that finds it", async () => {
    const job = await open(2);
    const recv = job.comms[1]!.alloc("int32", 5).fill(7);
    const outcomes = await job.outcomes(async (comm, rank) => {
      if (rank === 0) await comm.send({ send: comm.alloc("int32", 4).fill(1), peer: 1 });
      else await comm.recv({ recv, peer: 0 });
    });
    expect(outcomes[1]).toMatchObject({ code: "ERR_COMM_MISMATCH", ranks: [0, 1] });
    expect(String(outcomes[1])).toContain("16 bytes");
  });

  test("by the length of a slice does not pass it off as the length of the data", async () => {
    const job = await open(2);
    const outcomes = await job.outcomes(async (comm, rank) => {
      const send = comm.alloc("int32", rank === 0 ? 1_000_000 : 999_999);
      await comm.allReduce({ send, op: "sum" });
    });
    const found = outcomes.find((error) => error?.code === "ERR_COMM_MISMATCH");
    expect(found?.message).toMatch(
      /rank \d has sent a part of \d+ bytes, rank \d expects one of \d+\nhint: blocks travel in parts\./,
    );
  });

  test("by a short part of a message of the right length names the part", async () => {
    const job = await open(2);
    await job.each(async (comm) => comm.barrier());
    const { send } = Peers.prototype;
    vi.spyOn(Peers.prototype, "send").mockImplementation(function (this: Peers, ...sent) {
      const [peer, comm, message, block, done] = sent;
      const short = { ...block, bytes: block.bytes.subarray(4) };
      send.call(this, peer, comm, message, message.total === 0 ? block : short, done);
    });
    const [, error] = await job.outcomes(async (comm, rank) => {
      const buffer = comm.alloc("int32", 4);
      if (rank === 0) await comm.send({ send: buffer, peer: 1 });
      else await comm.recv({ recv: buffer, peer: 0 });
    });
    expect(error).toMatchObject({
      code: "ERR_COMM_MISMATCH",
      ranks: [0, 1],
      values: ["12 bytes", "16 bytes"],
      message: expect.stringMatching(
        /recv: rank 0 has sent a part of 12 bytes, rank 1 expects one of 16\nhint: messages travel in parts: /,
      ),
    });
  });

  test.each(["off", "once", "always"] as const)(
    "at its deadline behind another call names no rank that waits for it, calls compared %s",
    async (compareCalls) => {
      const job = await open(3, { compareCalls });
      const splits = await job.each((comm) => comm.split({ color: 0 }));
      const [, , late] = await job.outcomes(async (comm, rank) => {
        if (rank < 2) return comm.barrier();
        const recv = comm.alloc("int32", 1);
        splits[2]?.recv({ recv, peer: 1, timeoutMs: 1_500 }).catch(() => undefined);
        return comm.barrier({ timeoutMs: 500 });
      });
      expect(late).toMatchObject({
        ...{ code: "ERR_COMM_TIMEOUT", ranks: [] },
        message: expect.stringContaining("an earlier call of this rank kept it waiting"),
      });
    },
  );

  test("of a capture are compared where calls are not", async () => {
    const job = await open(2, { compareCalls: "off" });
    const outcomes = await job.outcomes(async (comm, rank) => {
      const send = comm.alloc("int32", 8 + rank);
      await comm.capture(() => {
        comm.allReduce({ send, op: "sum" });
      });
    });
    const error = { code: "ERR_COMM_MISMATCH", field: "calls[0].count", values: ["8", "9"] };
    expect(outcomes).toMatchObject([error, error]);
  });

  test("at its deadline names the rank that is missing", async () => {
    const job = await open(3);
    const outcomes = await job.outcomes(async (comm, rank) => {
      if (rank === 1) return "absent";
      const send = comm.alloc("int32", 8);
      await comm.allReduce({ send, op: "sum", timeoutMs: 300 });
      return "fine";
    });
    const error = { code: "ERR_COMM_TIMEOUT", ranks: [1] };
    expect(outcomes).toMatchObject([error, "absent", error]);
  });

  test("at the deadline of a rank that waits for another one's different call asks to compare calls", async () => {
    const job = await open(2);
    const outcomes = await job.outcomes((comm, rank) =>
      comm.broadcast({ recv: comm.alloc("int32", 8), root: 1 - rank, timeoutMs: 300 }),
    );
    const timedOut = outcomes.find((each) => (each as CommError).code === "ERR_COMM_TIMEOUT");
    expect(timedOut).toMatchObject({
      message: expect.stringContaining("all ranks had made it"),
      hint: expect.stringContaining('compareCalls: "always"'),
    });
  });
});

describe("calls behind a split count as made", () => {
  test("at a deadline, where only the last one is missing", async () => {
    const job = await open(3);
    await job.each((comm) => comm.split({ color: 0 }));
    const outcomes = await job.outcomes(async (comm, rank) => {
      await comm.barrier();
      await comm.barrier();
      if (rank === 2) return "late";
      return comm.barrier({ timeoutMs: 500 });
    });
    const codes = ["ERR_COMM_TIMEOUT", "ERR_COMM_ABORTED"];
    for (const error of outcomes.slice(0, 2) as CommError[]) expect(codes).toContain(error.code);
    const timedOut = outcomes.find((each) => (each as CommError).code === codes[0]);
    expect(timedOut).toMatchObject({ ranks: [2] });
  });

  test("where another rank compares its call", async () => {
    const job = await open(2, { compareCalls: "once" });
    await job.each((comm) => comm.split({ color: 0 }));
    const outcomes = await job.outcomes(async (comm, rank) => {
      await comm.barrier();
      const send = comm.alloc("int32", 1);
      await (rank === 0 ? comm.allReduce({ send, op: "sum" }) : comm.barrier());
    });
    expect(outcomes).toMatchObject([{ code: "ERR_COMM_MISMATCH" }, { code: "ERR_COMM_ABORTED" }]);
  });

  test("where another rank closes", async () => {
    const job = await open(2);
    await job.each((comm) => comm.split({ color: 0 }));
    const [failed] = await job.outcomes(async (comm, rank) => {
      await comm.barrier();
      if (rank === 1) await comm.close();
      else await comm.barrier();
    });
    expect(failed).toMatchObject({ code: "ERR_COMM_REMOTE", ranks: [1] });
  });
});

test("many communicators have calls under way at once", async () => {
  const job = await open(4);
  const sums = await job.each(async (comm) => {
    const splits = await Promise.all(
      Array.from({ length: 20 }, (_, i) => comm.split({ color: comm.rank % ((i % 3) + 1) })),
    );
    const buffers = splits.map((each) => each!.alloc("int32", 50_000).fill(1));
    await Promise.all(splits.map((each, i) => each!.allReduce({ send: buffers[i]!, op: "sum" })));
    const found = await Promise.all(buffers.map(async (each) => (await each.toHost())[49_999]));
    for (const each of splits) await each!.close();
    return found.map((sum, i) => sum === splits[i]!.size);
  });
  expect(sums.flat()).toEqual(new Array(80).fill(true));
});

describe("a communicator with the number of another one", () => {
  test("is refused on the ranks of both, and ended on the others", async () => {
    const job = await open(3);
    const pair = await job.each((comm, rank) => comm.split({ color: rank === 2 ? undefined : 0 }));
    const number = vi.spyOn(Job.prototype, "keyOf").mockReturnValue("world/0.0");
    const outcomes = await job.outcomes(async (comm) => {
      const all = await comm.split({ color: 0 });
      const send = all!.alloc("int32", 1);
      await all!.allReduce({ send, op: "sum" });
    });
    number.mockRestore();
    for (const error of outcomes.slice(0, 2)) {
      expect(error).toMatchObject({ code: "ERR_COMM_UNSUPPORTED", comm: "world/0#2" });
    }
    expect(outcomes[2]).toMatchObject({ code: "ERR_COMM_ABORTED" });
    expect(pair.map((comm) => comm?.size)).toEqual([2, 2, undefined]);
  });
});
