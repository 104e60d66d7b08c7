/** Faults that NCCL blames on another process: the calls fail with that process's end, where it is known. */
import type { CommError, Communicator } from "twinccl";
import { afterEach, describe, expect, test, vi } from "vitest";
import { type FakeGpus, fakeGpus, ncclError } from "../../../../support/fake-gpus/index.ts";
import type { DataFunctions } from "../../../../support/fake-gpus/nccl.ts";
import { quickTime } from "../../../../support/quick-time.ts";
import { fragile, place } from "../../../job/stores.ts";
import { cleanGpus, turns } from "../gpus.ts";
import { closeAll, errorOf, type Joined, joinAll, onAll } from "../job/joined.ts";

quickTime();

/** NCCL on a device says that another process is to blame. */
function blame(gpus: FakeGpus, device: number): void {
  for (const end of gpus.nccl.ends.values()) {
    if (end.device !== device) continue;
    end.failure = ncclError("ncclCommGetAsyncError", 6, "ncclRemoteError");
  }
}

test("the error names the rank that aborted the communicator", async () => {
  const gpus = cleanGpus();
  const [a, b] = (await joinAll(2, "off", gpus)) as [Joined, Joined];
  await onAll([a, b], ({ comm }) => comm.barrier());
  const waiting = errorOf(a.comm.barrier());
  await turns();
  b.comm.abort(new Error("enough of this"));
  blame(gpus, 0);
  const error = (await waiting) as CommError;
  expect(error).toMatchObject({ code: "ERR_COMM_ABORTED", rank: 0, ranks: [1] });
  expect(error.message).toContain("enough of this");
  await closeAll([a, b]);
});

test.each([0, 1, 2])(
  "a repeated call of three, number %i of its turn, fails with the rank that aborted",
  async (nth) => {
    const gpus = cleanGpus();
    const ranks = (await joinAll(2, "off", gpus)) as [Joined, Joined];
    const [a, b] = ranks;
    const calls = await onAll(ranks, async ({ comm }) => {
      const send = comm.alloc("int32", 1).fill(1);
      const call = () => comm.allReduce({ send, op: "max" });
      for (let i = 0; i < 4; i++) await call();
      return call;
    });
    await onAll(ranks, ({ comm }) => comm.barrier());
    const planned = ncclError("allReduce", 6, "ncclRemoteError");
    gpus.machine.failNext("allReduce", planned, nth);
    const waiting = Array.from({ length: 3 }, () => errorOf(calls[0]!()));
    await turns();
    b.comm.abort(new Error("enough of this"));
    for (const error of (await Promise.all(waiting)) as CommError[]) {
      expect(error).toMatchObject({ code: "ERR_COMM_ABORTED", rank: 0, ranks: [1] });
      expect(error.message).toContain("enough of this");
    }
    expect(a.comm.stats().failures).toBe(3);
    await closeAll(ranks);
  },
);

test.each(["the world", "a split"])("the error names the rank that closed %s", async (which) => {
  // Host memory that one frees is no other one's where each has a process of its own.
  const gpus = fakeGpus();
  const ranks = await joinAll(2, "off", gpus);
  const [a, b] = ranks as [Joined, Joined];
  const splits = await onAll(ranks, ({ comm }) => comm.split({ color: 0 }));
  const [mine, others] = which === "the world" ? [a.comm, b.comm] : (splits as Communicator[]);
  await Promise.all([mine?.barrier(), others?.barrier()]);
  const waiting = errorOf(mine!.barrier());
  await others?.close();
  blame(gpus, 0);
  const error = (await waiting) as CommError;
  expect(error).toMatchObject({
    code: "ERR_COMM_REMOTE",
    rank: 0,
    ranks: [1],
    collective: "barrier",
  });
  expect(error.message).toMatch(/rank 1 will not make it: it has closed its end of "\S+"/);
  await closeAll(ranks);
});

test("the error of a rank names the lost rank", async () => {
  const gpus = cleanGpus();
  const links = await fragile(await place(3), 3);
  const members = links.map(({ member }) => member);
  const ranks = await joinAll(3, "off", gpus, 5_000, members);
  const [a, b, lost] = ranks as [Joined, Joined, Joined];
  await onAll(ranks, ({ comm }) => comm.barrier());
  const waiting = [errorOf(a.comm.barrier()), errorOf(b.comm.barrier())];
  await turns();
  // NCCL hears it first.
  blame(gpus, 0);
  blame(gpus, 1);
  await new Promise((resolve) => setTimeout(resolve, 300));
  links[2]?.cut();
  for (const error of await Promise.all(waiting)) {
    expect(error).toMatchObject({ code: "ERR_COMM_LOST", ranks: [2], collective: "barrier" });
  }
  lost.comm.abort();
  await closeAll(ranks);
});

test("a rank gets NCCL's own words where the cause is unknown, and passes them to the others", async () => {
  // Host memory that one frees is no other one's where each has a process of its own.
  const gpus = fakeGpus();
  const ranks = await joinAll(2, "off", gpus);
  const [a, b] = ranks as [Joined, Joined];
  await onAll(ranks, async ({ comm }) => (await comm.split({ color: 0 })).barrier());
  const waiting = errorOf(a.comm.barrier());
  await turns();
  blame(gpus, 0);
  const began = performance.now();
  expect(await waiting).toMatchObject({
    code: "ERR_COMM_NCCL",
    statusName: "ncclRemoteError",
    rank: 0,
  });
  expect(performance.now() - began).toBeLessThan(15_000);
  // The part of rank 0 in the call that it waited for was there.
  await errorOf(b.comm.barrier());
  const next = (await errorOf(b.comm.barrier())) as CommError;
  expect(next).toMatchObject({ code: "ERR_COMM_ABORTED", rank: 1, ranks: [0] });
  expect(next.message).toContain("rank 0 has aborted it: ncclCommGetAsyncError: ncclRemoteError");
  await closeAll(ranks);
});

/** The act of every rank; rank 0's NCCL refuses its part. */
type Use = (comm: Communicator) => PromiseLike<unknown>;

const bytes = (comm: Communicator, length = 3) => comm.alloc("int8", length);
const allToAll: Use = (comm) => comm.allToAll({ send: bytes(comm), recv: bytes(comm) });

/** To the next rank, and from the one before. */
const shift: Use = async (comm) => {
  const { rank, size } = comm;
  const [send, recv] = [bytes(comm), bytes(comm)];
  await comm.group(() => {
    void comm.send({ send, peer: (rank + 1) % size });
    void comm.recv({ recv, peer: (rank + size - 1) % size });
  });
};

const symmetric: Use = (comm) =>
  comm.allReduce({ send: comm.alloc("float32", 8, { symmetric: true }), op: "sum" });

/** The same call twice: the second is a repeat of the first. */
function repeated(): Use {
  const calls = new Map<Communicator, () => PromiseLike<unknown>>();
  return (comm) => {
    const known = calls.get(comm);
    if (known !== undefined) return known();
    const send = bytes(comm);
    const call = () => comm.allReduce({ send, op: "sum" });
    calls.set(comm, call);
    return call();
  };
}

/** NCCL's refusal by name, the act of all ranks that causes it, and the act before where it is not the same. */
type Refused = readonly [what: string, name: string, use: Use, before: Use | undefined];

const refused: readonly Refused[] = [
  ["a call", "allReduce", (comm) => comm.barrier(), undefined],
  ["a call that was made before", "allReduce", repeated(), undefined],
  ["messages", "send", shift, shift],
  ["messages that connect ranks", "connectInBackground", shift, undefined],
  ["a call that connects ranks", "connectInBackground", allToAll, undefined],
  ["an exchange of counts", "send", unknownCounts(), allToAll],
  ["a first use of symmetric memory", "registerWindowInBackground", symmetric, undefined],
  ["a split", "splitInBackground", (comm) => comm.split({ color: 0 }), undefined],
];

function unknownCounts(): Use {
  return (comm) => comm.allToAllv({ send: bytes(comm), sendCounts: [1, 1, 1] });
}

/** NCCL's calls of that name fail on a device: another process is to blame. */
function refuse(gpus: FakeGpus, name: string, device: number): void {
  const { ends } = gpus.nccl;
  const owner: object = name in gpus.nccl.data ? gpus.nccl.data : gpus.nccl.calls;
  const calls = owner as DataFunctions;
  const make = calls[name as "allReduce"] as (...given: unknown[]) => unknown;
  const isOfDevice = (given: unknown): boolean => {
    const { comm = given } = Object(given) as { comm?: unknown };
    return typeof comm === "bigint" && ends.get(comm)?.device === device;
  };
  vi.spyOn(calls, name as "allReduce").mockImplementation((...given: unknown[]) => {
    if (!given.some(isOfDevice)) return make.apply(calls, given);
    const error = ncclError("ncclGroupEnd", 6, "ncclRemoteError");
    if (name.endsWith("InBackground")) return Promise.reject(error);
    throw error;
  });
}

describe("after NCCL's refusal of a rank's part for it,", () => {
  afterEach(() => {
    vi.restoreAllMocks();
  });

  /** Three ranks of which the first one's part is refused, and what their calls come to. */
  async function begun([, name, use, before = use]: Refused) {
    const gpus = fakeGpus();
    const links = await fragile(await place(3), 3);
    const members = links.map(({ member }) => member);
    const ranks = await joinAll(3, "off", gpus, 5_000, members);
    const isFirst = name.endsWith("InBackground");
    await onAll(ranks, ({ comm }) => (isFirst ? comm.barrier() : before(comm)));
    refuse(gpus, name, 0);
    const waiting = ranks.map(({ comm }) => errorOf(use(comm)));
    const [a, b, c] = ranks as [Joined, Joined, Joined];
    return { ranks, a, b, c, waiting, lose: () => links[2]?.cut() };
  }

  test.each(refused)("%s fails with the lost rank", async (...row) => {
    const { ranks, a, c, waiting, lose } = await begun(row);
    await new Promise((resolve) => setTimeout(resolve, 300));
    lose();
    expect(await waiting[0]).toMatchObject({ code: "ERR_COMM_LOST", rank: 0, ranks: [2] });
    expect(await errorOf(a.comm.barrier())).toMatchObject({ code: "ERR_COMM_LOST", ranks: [2] });
    c.comm.abort();
    await Promise.all(waiting);
    await closeAll(ranks);
  });

  const some = refused.filter(([what]) => ["a call", "messages", "a split"].includes(what));
  const connecting = refused.filter(([what]) => what === "messages that connect ranks");

  test.each([...some, ...connecting])(
    "%s fails with the rank that aborted the communicator",
    async (...row) => {
      const { ranks, b, waiting } = await begun(row);
      await turns();
      b.comm.abort(new Error("enough of this"));
      const error = (await waiting[0]) as CommError;
      expect(error).toMatchObject({ code: "ERR_COMM_ABORTED", rank: 0, ranks: [1] });
      expect(error.message).toContain("enough of this");
      await Promise.all(waiting);
      await closeAll(ranks);
    },
  );

  test.each([...some, ...connecting])(
    "%s fails with the abort that a later deadline causes",
    async (...row) => {
      const { ranks, a, waiting } = await begun(row);
      await turns();
      const late = errorOf(a.comm.barrier({ timeoutMs: 100 }));
      const { signal } = new AbortController();
      expect(signal.aborted).toBe(false);
      expect(await late).toMatchObject({ code: "ERR_COMM_TIMEOUT", rank: 0 });
      expect(await waiting[0]).toMatchObject({ code: "ERR_COMM_ABORTED", rank: 0, ranks: [0] });
      await Promise.all(waiting);
      await closeAll(ranks);
    },
  );

  test.each([...some, ...connecting])(
    "%s fails with NCCL's words where the cause is unknown",
    async (...row) => {
      const { ranks, waiting } = await begun(row);
      const began = performance.now();
      const words = { code: "ERR_COMM_NCCL", statusName: "ncclRemoteError", rank: 0 };
      expect(await waiting[0]).toMatchObject(words);
      expect(performance.now() - began).toBeLessThan(15_000);
      await Promise.all(waiting);
      await closeAll(ranks);
    },
  );
});
