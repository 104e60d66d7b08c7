/** Ranks of different processes on fake GPUs: here the processes are sessions that share one thread. */

import { type Backend, type CommError, type ConnectedCommunicator, connect } from "twinccl";
import type { Session } from "twinccl/backend";
import { describe, expect, test, vi } from "vitest";
import { openJoined } from "../../../../../src/backends/nccl/open.ts";
import type { Membership } from "../../../../../src/job/rendezvous.ts";
import { type FakeGpus, ncclError } from "../../../../support/fake-gpus/index.ts";
import { quickTime } from "../../../../support/quick-time.ts";
import { cleanGpus, seen, turns } from "../gpus.ts";

quickTime();

/** A job with members that meet in memory. */
class Job {
  readonly size: number;
  readonly #gpus: FakeGpus;
  readonly #given = new Map<string, (Uint8Array | undefined)[]>();
  readonly #meetings = new Map<string, Set<number>>();
  readonly #values = new Map<string, Uint8Array>();
  readonly left = new Set<number>();
  readonly sessions: Session[] = [];

  constructor(gpus: FakeGpus, size: number) {
    this.#gpus = gpus;
    this.size = size;
  }

  /** The backend of one rank, on a GPU of its own or the one that is named. */
  backend(rank: number, device = rank): Backend {
    const refuse = (): never => {
      throw new Error("this backend only joins");
    };
    return {
      name: "nccl",
      probe: () => ({ ok: true, reason: "fake GPUs" }),
      open: refuse,
      join: async (request) => {
        const session = await openJoined(
          this.#gpus.setup,
          { device },
          this.#membership(rank),
          request,
        );
        this.sessions[rank] = session;
        return session;
      },
    };
  }

  connectAll(timeoutMs?: number): Promise<ConnectedCommunicator[]> {
    const deadline = timeoutMs === undefined ? {} : { timeoutMs };
    return Promise.all(
      Array.from({ length: this.size }, (_, rank) =>
        connect({ backend: this.backend(rank), ...deadline }),
      ),
    );
  }

  /** Ranks that have come to a meeting. */
  #come(key: string): Set<number> {
    const come = this.#meetings.get(key) ?? new Set<number>();
    this.#meetings.set(key, come);
    return come;
  }

  #membership(rank: number): Membership {
    const { size } = this;
    const exchange: Membership["exchange"] = async (key, value, { signal } = {}) => {
      const given = this.#given.get(key) ?? new Array<Uint8Array | undefined>(size).fill(undefined);
      this.#given.set(key, given);
      given[rank] = value;
      do {
        signal?.throwIfAborted();
        await new Promise((resolve) => setImmediate(resolve));
      } while (given.includes(undefined));
      return given as Uint8Array[];
    };
    const unused = (): never => {
      throw new Error("not part of this test");
    };
    return {
      jobId: "job",
      rank,
      size,
      generation: 0,
      initialRanks: Array.from({ length: size }, (_, each) => each),
      lost: [],
      onLost: () => () => undefined,
      set: async (key, value) => void this.#values.set(key, value),
      get: async (key, { signal } = {}) => {
        while (!this.#values.has(key)) {
          signal?.throwIfAborted();
          await new Promise((resolve) => setImmediate(resolve));
        }
        return this.#values.get(key);
      },
      exchange,
      awaitBarriers: async (meetings, { signal } = {}) => {
        for (const { key } of meetings) this.#come(key).add(rank);
        do {
          await new Promise((resolve) => setImmediate(resolve));
          if (signal?.aborted === true) return false;
        } while (meetings.some(({ key, ranks }) => ranks.some((one) => !this.#come(key).has(one))));
        return true;
      },
      announce: () => undefined,
      onNews: () => () => undefined,
      ask: () => Promise.reject(new Error("no process answers")),
      onQuestion: () => undefined,
      onNextGeneration: () => undefined,
      rejoin: unused,
      leave: async () => void this.left.add(rank),
    } as Membership;
  }
}

const closeAll = (comms: readonly ConnectedCommunicator[]) =>
  Promise.all(comms.map((comm) => comm.close()));

/** Waits for something that takes long, while the clock runs fast. */
async function inFastTime<T>(begin: () => Promise<T>): Promise<T> {
  let over = false;
  const done = begin().finally(() => {
    over = true;
  });
  done.catch(() => undefined);
  for (let i = 0; i < 120 && !over; i++) {
    await turns(2);
    await vi.advanceTimersByTimeAsync(500);
  }
  expect(over, "over within a minute").toBe(true);
  return await done;
}

describe("ranks of several processes", () => {
  test("reduce, and exchange messages with ends in different processes", async () => {
    const gpus = cleanGpus();
    const job = new Job(gpus, 3);
    const comms = await job.connectAll();
    const results = await Promise.all(
      comms.map(async (comm) => {
        const data = comm.alloc("int32", 2).fill(comm.rank + 1);
        await comm.allReduce({ send: data, op: { preMul: 10 } });
        const [send, recv] = [comm.alloc("int32", 1).fill(comm.rank), comm.alloc("int32", 1)];
        await comm.group(() => {
          void comm.send({ send, peer: (comm.rank + 1) % 3 });
          void comm.recv({ recv, peer: (comm.rank + 2) % 3 });
        });
        return [...(await data.toHost()), ...(await recv.toHost())];
      }),
    );
    expect(results).toEqual([
      [60, 60, 2],
      [60, 60, 0],
      [60, 60, 1],
    ]);
    await closeAll(comms);
    expect(job.left).toEqual(new Set([0, 1, 2]));
  });

  test("on one GPU are refused by rank before NCCL sees them", async () => {
    const gpus = cleanGpus();
    const job = new Job(gpus, 2);
    const joined = [0, 1].map((rank) => connect({ backend: job.backend(rank, 3) }));
    for (const each of await Promise.allSettled(joined)) {
      expect(String((each as PromiseRejectedResult).reason)).toMatch(/ranks 0, 1 all use the GPU/);
    }
    expect(gpus.machine.count("streamCreate")).toBe(0);
  });

  test("release their resources when NCCL cannot start on one of them, and all learn of it", async () => {
    const gpus = cleanGpus();
    const planned = ncclError("ncclCommInitRankConfig", 2, "ncclSystemError");
    gpus.machine.failNext("initRankInBackground", planned);
    const job = new Job(gpus, 2);
    const first = connect({ backend: job.backend(0) });
    const second = connect({ backend: job.backend(1) });
    const rejected = expect(second).rejects.toMatchObject({
      ...{ code: "ERR_COMM_REMOTE", rank: 1, ranks: [0] },
      message: expect.stringMatching(
        /rank 0 of generation 1 could not open its session: .*as planned/,
      ),
    });
    await expect(first).rejects.toEqual(
      seen(planned, { rank: 0, size: 2, comm: "world", device: "cuda:0" }),
    );
    await rejected;
  });

  test("that never join are listed in the table of an interrupted process", async () => {
    const [a, b] = await new Job(cleanGpus(), 2).connectAll();
    if (a === undefined || b === undefined) throw new Error("two ranks were expected");
    const others = process.listeners("SIGINT");
    for (const each of others) process.removeListener("SIGINT", each);
    const waiting = a.barrier();
    waiting.catch(() => undefined);
    const interrupt = await vi.waitUntil(() => process.listeners("SIGINT")[0]);
    const kill = vi.spyOn(process, "kill").mockReturnValue(true);
    const write = vi.spyOn(process.stderr, "write").mockImplementation((_, written: unknown) => {
      (written as () => void)();
      return true;
    });
    interrupt("SIGINT");
    const text = String(write.mock.calls[0]?.[0]);
    expect(kill.mock.calls).toEqual([[process.pid, "SIGINT"]]);
    write.mockRestore();
    kill.mockRestore();
    for (const each of others) process.on("SIGINT", each);
    expect(text).toContain('rank 0  waits in barrier  call 0 on "world"  made by all ranks here');
    expect(text).not.toMatch(/^ {2}rank 1/m);
    await Promise.all([waiting, b.barrier()]);
    await closeAll([a, b]);
  });

  test("that never join do not keep a session from closing", async () => {
    const gpus = cleanGpus();
    const job = new Job(gpus, 2);
    const [a, b] = await job.connectAll();
    if (a === undefined || b === undefined) throw new Error("two ranks were expected");
    const waiting = a.barrier().catch((error) => (error as CommError).code);
    await turns(5);
    await inFastTime(() => Promise.resolve(job.sessions[0]?.close()));
    expect(await waiting).toMatch(/^ERR_COMM_(CLOSED|ABORTED)$/);
    expect(gpus.machine.count("abortInBackground")).toBe(1);
    await inFastTime(() => b.close());
  });

  test("that do not close are not waited for either, with a warning", async () => {
    const gpus = cleanGpus();
    const [a, b] = await new Job(gpus, 2).connectAll();
    if (a === undefined || b === undefined) throw new Error("two ranks were expected");
    await Promise.all([a, b].map((comm) => comm.split({ color: 0 })));
    const warn = vi.spyOn(process, "emitWarning").mockReturnValue(undefined);
    try {
      await inFastTime(() => a.close());
      expect(warn.mock.calls).toEqual([
        [
          expect.stringMatching(/the other ranks of "world\/0" did not end it within 10000 ms/),
          { type: "TwincclClose", code: "ERR_COMM_TIMEOUT" },
        ],
      ]);
      expect(gpus.machine.count("abortInBackground")).toBe(2);
      await inFastTime(() => b.close());
    } finally {
      warn.mockRestore();
    }
  });

  test("that close a split late are waited for again when the world closes", async () => {
    const gpus = cleanGpus();
    const [a, b] = await new Job(gpus, 2).connectAll();
    if (a === undefined || b === undefined) throw new Error("two ranks were expected");
    const [child] = await Promise.all([a, b].map((comm) => comm.split({ color: 0 })));
    const warn = vi.spyOn(process, "emitWarning").mockReturnValue(undefined);
    try {
      await child?.close();
      await inFastTime(async () => {
        while (gpus.machine.count("abortInBackground") === 0) await turns(1);
      });
      const closing = a.close();
      await turns(20);
      expect(gpus.machine.count("abortInBackground")).toBe(1);
      await Promise.all([closing, b.close()]);
      expect(gpus.machine.count("abortInBackground")).toBe(4);
      expect(warn).toHaveBeenCalledTimes(1);
    } finally {
      warn.mockRestore();
    }
  });

  test("are waited for until the call's signal fires, which ends the communicator", async () => {
    const gpus = cleanGpus();
    const [a, b] = await new Job(gpus, 2).connectAll();
    if (a === undefined || b === undefined) throw new Error("two ranks were expected");
    const giving = new AbortController();
    const send = a.alloc("int32", 4);
    const op = a.allReduce({ send, op: "sum", signal: giving.signal });
    await op.enqueued;
    const why = new Error("enough");
    giving.abort(why);
    await expect(op).rejects.toMatchObject({
      ...{ name: "CommAbortedError", code: "ERR_COMM_ABORTED", collective: "allReduce" },
      ...{ call: 0, rank: 0, cause: why },
    });
    await expect(a.barrier()).rejects.toMatchObject({ code: "ERR_COMM_ABORTED" });
    await turns();
    expect(gpus.machine.count("abortInBackground")).toBe(1);
    await inFastTime(() => Promise.all([a.close(), b.close()]));
  });

  test("with open calls are aborted when closing has waited for its timeout", async () => {
    const gpus = cleanGpus();
    const [a, b] = await new Job(gpus, 2).connectAll(100);
    if (a === undefined || b === undefined) throw new Error("two ranks were expected");
    const send = a.alloc("int32", 4);
    const op = a.allReduce({ send, op: "sum" });
    const aborted = vi.fn();
    a.hooks.onAbort(aborted);
    const closing = a.close();
    const error = await closing.catch((each: unknown) => each as CommError);
    expect(error).toMatchObject({
      code: "ERR_COMM_ABORTED",
      cause: { code: "ERR_COMM_TIMEOUT", message: expect.stringMatching(/not done within 100 ms/) },
    });
    await expect(op).rejects.toBe(error);
    expect(aborted).toHaveBeenCalledTimes(1);
    await inFastTime(() => b.close());
  });

  test("with an onAbort hook that throws at that timeout report it in close, and not in the process", async () => {
    const gpus = cleanGpus();
    const [a, b] = await new Job(gpus, 2).connectAll(100);
    if (a === undefined || b === undefined) throw new Error("two ranks were expected");
    const op = a.allReduce({ send: a.alloc("int32", 4), op: "sum" }).catch(() => undefined);
    a.hooks.onAbort(() => {
      throw new Error("planted");
    });
    await expect(a.close()).rejects.toThrow("planted");
    await op;
    await inFastTime(() => b.close());
  });

  test("with two close() calls at once wait for open calls in both", async () => {
    const comms = await new Job(cleanGpus(), 2).connectAll(5000);
    const [a, b] = comms;
    if (a === undefined || b === undefined) throw new Error("two ranks were expected");
    // The first call in symmetric memory waits for the other rank before NCCL sees it.
    const [mine, theirs] = [a, b].map((comm) =>
      comm.alloc("int32", 4, { symmetric: true }).fill(3),
    );
    if (mine === undefined || theirs === undefined) throw new Error("two buffers were expected");
    const op = a.allReduce({ send: mine, op: "sum" });
    const closings = [a.close(), a.close()];
    await b.allReduce({ send: theirs, op: "sum" });
    await op;
    await Promise.all([...closings, b.close()]);
    await a.close();
  });

  test("refuse a rebuild without the calling rank, and continue", async () => {
    const comms = await new Job(cleanGpus(), 2).connectAll(5000);
    for (const comm of comms) {
      const without = [comm.rank];
      await expect(comm.rebuild({ without })).rejects.toMatchObject({
        ...{ code: "ERR_COMM_ARG", field: "without", rank: comm.rank },
      });
    }
    await Promise.all(comms.map((comm) => comm.barrier()));
    await closeAll(comms);
  });

  test("are waited for until the deadline, and then block no later job", async () => {
    const gpus = cleanGpus();
    const { initRankInBackground } = gpus.nccl.calls;
    gpus.nccl.calls.initRankInBackground = () => new Promise(() => undefined);
    const job = new Job(gpus, 2);
    // Rank 1 shares a process with rank 0 here, so that its start waits for the one that hangs.
    const joined = [80, 30].map((timeoutMs, rank) =>
      connect({ backend: job.backend(rank), timeoutMs }),
    );
    for (const each of await Promise.allSettled(joined)) {
      expect(each).toMatchObject({ status: "rejected", reason: { code: "ERR_COMM_TIMEOUT" } });
    }
    gpus.nccl.calls.initRankInBackground = initRankInBackground;
    await closeAll(await new Job(gpus, 2).connectAll(5000));
  });

  test.each([0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10])(
    "with a start that ends %i steps before its cancellation leave no resource",
    async (steps) => {
      const gpus = cleanGpus();
      const { initRankInBackground } = gpus.nccl.calls;
      const giving = new AbortController();
      gpus.nccl.calls.initRankInBackground = async (device, ...args) => {
        const made = initRankInBackground(device, ...args);
        const giveUp = async (): Promise<void> => {
          for (let step = 0; step < steps; step++) await undefined;
          giving.abort(new Error("enough"));
        };
        if (device.index === 0) void made.then(giveUp);
        return made;
      };
      const job = new Job(gpus, 2);
      const joined = [giving.signal, undefined].map((signal, rank) =>
        connect({ backend: job.backend(rank), timeoutMs: 5000, ...(signal && { signal }) }),
      );
      for (const each of await Promise.allSettled(joined)) {
        expect(each).toMatchObject({ status: "rejected" });
      }
      await turns(5);
      expect([...gpus.nccl.ends.values()]).toEqual([]);
    },
  );
});
