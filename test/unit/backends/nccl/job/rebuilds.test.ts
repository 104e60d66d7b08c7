/** Rebuilds with a next generation that does not open at once, or not at all: retried, reported on all ranks, and never final. */
import { type CommError, createWorld, InvalidArgumentError } from "twinccl";
import { describe, expect, onTestFinished, test, vi } from "vitest";
import type { Membership } from "../../../../../src/job/rendezvous.ts";
import { type FakeGpus, ncclError } from "../../../../support/fake-gpus/index.ts";
import { LivingTimers } from "../../../../support/living-timers.ts";
import { expectHealthy, within } from "../../../../support/planted.ts";
import { quickTime } from "../../../../support/quick-time.ts";
import { cleanGpus, seen, turns } from "../gpus.ts";
import { closeAll, type Joined, joinAll, onAll } from "./joined.ts";

quickTime();

const broken = ncclError("ncclCommInitRankConfig", 2, "ncclSystemError");

/** Has every start of NCCL on a GPU fail, until the function returned is called. */
function breakDevice(gpus: FakeGpus, device: number, error: Error = broken): () => void {
  const { calls } = gpus.nccl;
  const { initRankInBackground } = calls;
  calls.initRankInBackground = (on, ...args) =>
    on.index === device ? Promise.reject(error) : initRankInBackground(on, ...args);
  return () => Object.assign(calls, { initRankInBackground });
}

/** Has ranks rebuild. */
const rebuilt = async (ranks: readonly Joined[], without?: readonly number[]): Promise<Joined[]> =>
  onAll(ranks, async (joined) => ({
    ...joined,
    comm: await joined.comm.rebuild(without && { without }),
  }));

/** The failures of the ranks' rebuilds. */
const failed = (ranks: readonly Joined[], without?: readonly number[]): Promise<CommError[]> =>
  onAll(ranks, ({ comm }) =>
    comm.rebuild(without && { without }).then(
      () => expect.unreachable("it was rebuilt"),
      (error: CommError) => error,
    ),
  );

/** All ranks sum. */
async function expectSum(ranks: readonly Joined[]): Promise<void> {
  const sums = await onAll(ranks, async ({ comm }) => {
    const one = comm.alloc("int32", 1).fill(comm.rank + 1);
    await comm.allReduce({ send: one, op: "sum" });
    return (await one.toHost())[0];
  });
  expect(sums).toEqual(ranks.map(() => (ranks.length * (ranks.length + 1)) / 2));
}

const placesOf = (ranks: readonly Joined[]) =>
  ranks.map(({ comm }) => [comm.rank, comm.generation, comm.initialRanks]);

describe("a job with a next generation that does not open", () => {
  test.each([
    ["the first rank", 0],
    ["another rank", 1],
  ])("once, on %s, opens it at the second attempt", async (_, after) => {
    const timers = new LivingTimers();
    const gpus = cleanGpus();
    const ranks = await joinAll(3, undefined, gpus);
    gpus.machine.failNext("initRankInBackground", broken, after);
    const next = await rebuilt(ranks);
    // The first generation, the first attempt, and the second attempt.
    expect(placesOf(next)).toEqual([0, 1, 2].map((rank) => [rank, 3, [0, 1, 2]]));
    await expectSum(next);
    for (const error of await failed(ranks)) {
      expect(error).toMatchObject({ code: "ERR_COMM_CLOSED" });
      expect(error.message).toMatch(/was rebuilt already/);
    }
    await expectSum(next);
    await closeAll(next);
    expect(timers.count()).toBe(0);
  });

  test.each([0, 2])(
    "ever, on rank %i, fails on all, and opens when the cause has ended",
    async (bad) => {
      const timers = new LivingTimers();
      const gpus = cleanGpus();
      // As long as it may take is no more waited for than it must.
      const ranks = await joinAll(3, undefined, gpus, 60_000);
      const mend = breakDevice(gpus, bad);
      const began = performance.now();
      const errors = await failed(ranks);
      expect(performance.now() - began).toBeLessThan(15_000);
      for (const [rank, error] of errors.entries()) {
        expect(error).toMatchObject({ code: "ERR_COMM_BACKEND", rank, size: 3, ranks: [bad] });
        expect(error.message).toMatch(
          /not opened in 3 tries\n {2}try 1 .*\n {2}try 2 .*\n {2}try 3 /,
        );
        if (rank === bad) expect(error.cause).toEqual(seen(broken));
        else expect(error.cause).toMatchObject({ code: "ERR_COMM_REMOTE" });
      }
      mend();
      const next = await rebuilt(ranks);
      expect(placesOf(next)).toEqual([0, 1, 2].map((rank) => [rank, 5, [0, 1, 2]]));
      await expectSum(next);
      await closeAll(next);
      expect(timers.count()).toBe(0);
    },
  );

  test("is left by a close, reported to the others at once", async () => {
    const gpus = cleanGpus();
    const ranks = await joinAll(3, undefined, gpus);
    breakDevice(gpus, 1);
    await failed(ranks);
    await ranks[1]!.comm.close();
    await ranks[1]!.comm.close();
    // One that is there would be waited for so long that the rebuild would not come in time.
    const members = Object.getPrototypeOf(ranks[0]!.membership) as Membership;
    const { rejoin } = members;
    const settling = vi.spyOn(members, "rejoin").mockImplementation(function (
      this: Membership,
      options,
    ) {
      return rejoin.call(this, { ...options, settleMs: 600_000 });
    });
    onTestFinished(() => settling.mockRestore());
    const next = await rebuilt([ranks[0]!, ranks[2]!]);
    expect(settling).toHaveBeenCalledTimes(2);
    expect(placesOf(next)).toEqual([0, 1].map((rank) => [rank, 5, [0, 2]]));
    await expectSum(next);
    await closeAll(next);
    const [error] = await failed([ranks[1]!]);
    expect(error).toMatchObject({ code: "ERR_COMM_CLOSED" });
  });

  test("is left by a rank that closed it during an attempt", async () => {
    const gpus = cleanGpus();
    const ranks = await joinAll(2, undefined, gpus);
    breakDevice(gpus, 1);
    const failing = failed(ranks);
    await onAll([ranks[1]!], ({ comm }) => comm.close());
    await failing;
    const next = await rebuilt([ranks[0]!]);
    expect(placesOf(next)).toEqual([[0, 5, [0]]]);
    await closeAll(next);
  });

  test("continues without a rank, by its number in the communicator of rebuild()", async () => {
    const gpus = cleanGpus();
    const ranks = await joinAll(3, undefined, gpus);
    const [first, ...others] = ranks as [Joined, Joined, Joined];
    const mend = breakDevice(gpus, 2);
    for (const error of await failed(others, [0])) expect(error).toMatchObject({ ranks: [2] });
    mend();
    const [next] = await rebuilt([others[0]], [0, 2]);
    expect(placesOf([next!])).toEqual([[0, 5, [1]]]);
    await expectSum([next!]);
    await closeAll([next!]);
    // They went on without it.
    expect(await failed([first])).toMatchObject([{ code: "ERR_COMM_CLOSED" }]);
    await closeAll([first, others[1]]);
  });

  test("for a wrong argument is attempted once", async () => {
    const gpus = cleanGpus();
    const ranks = await joinAll(2, undefined, gpus);
    const wrong = new InvalidArgumentError({ headline: "wrong" }, { field: "plan" });
    const mend = breakDevice(gpus, 1, wrong);
    const errors = await failed(ranks);
    expect(errors[1]).toBe(wrong);
    expect(errors[0]).toMatchObject({ code: "ERR_COMM_ARG", ranks: [1] });
    mend();
    const next = await rebuilt(ranks);
    expect(placesOf(next)).toEqual([0, 1].map((rank) => [rank, 3, [0, 1]]));
    await closeAll(next);
  });

  test("warns once of resources that could not be released, and continues", async () => {
    const gpus = cleanGpus();
    const ranks = await joinAll(2, undefined, gpus);
    const planned = ncclError("cudaStreamDestroy", 2, "ncclSystemError");
    const { streamDestroy } = gpus.setup.libraries.cuda;
    gpus.setup.libraries.cuda.streamDestroy = (stream) => {
      streamDestroy(stream);
      gpus.setup.libraries.cuda.streamDestroy = streamDestroy;
      throw planned;
    };
    const outcomes = await onAll(ranks, ({ comm }) =>
      comm
        .rebuild()
        .catch((error) => (error.cause === planned ? comm.rebuild() : Promise.reject(error))),
    );
    const next = ranks.map((joined, rank) => ({ ...joined, comm: outcomes[rank]! }));
    await expectSum(next);
    await closeAll(next);
  });

  test("leaves no read of its memory open", async () => {
    const gpus = cleanGpus();
    const ranks = await joinAll(2, undefined, gpus);
    const { comm } = ranks[0] as Joined;
    const buffer = comm.alloc("int8", 4).fill(7);
    const { calls } = gpus.nccl;
    const abort = calls.abortInBackground;
    let goOn = (): void => undefined;
    const mayGoOn = new Promise<void>((resolve) => {
      goOn = resolve;
    });
    // NCCL ends the communicators of the old generation slowly.
    calls.abortInBackground = (handle) => abort(handle).then(() => mayGoOn);
    const before = buffer.toHost();
    const rebuilding = rebuilt(ranks);
    expect([...(await within(1_000, before))]).toEqual([7, 7, 7, 7]);
    await turns(20);
    const [during] = await within(1_000, Promise.allSettled([buffer.toHost()]));
    expect(during).toMatchObject({ reason: { code: "ERR_COMM_CLOSED", rank: 0 } });
    goOn();
    await closeAll(await rebuilding);
  });

  test("refuses ranks that do not exist, and continues", async () => {
    const ranks = await joinAll(2);
    for (const error of await failed(ranks, [2])) {
      expect(error).toMatchObject({ code: "ERR_COMM_ARG", field: "without" });
    }
    await expectSum(ranks);
    await closeAll(ranks);
  });
});

describe("a world with a next generation that does not open", () => {
  test("may be rebuilt until it does, with fewer ranks too", async () => {
    const gpus = cleanGpus();
    const world = await createWorld({ backend: gpus.backend(), size: 3 });
    for (let tries = 0; tries < 3; tries++) {
      gpus.machine.failNext("uniqueId", broken);
      await expect(world.rebuild({ without: [0] })).rejects.toEqual(seen(broken));
      await expect(world.run(() => 0)).rejects.toMatchObject({ code: "ERR_COMM_CLOSED" });
    }
    const next = await within(2000, world.rebuild({ without: [0, 1] }));
    expect([next.generation, next.initialRanks]).toEqual([2, [2]]);
    await expectHealthy(next);
    await expect(world.rebuild()).rejects.toMatchObject({ code: "ERR_COMM_CLOSED" });
    await next.close();
  });

  test("may be rebuilt where the previous one could not be released", async () => {
    const gpus = cleanGpus();
    const world = await createWorld({ backend: gpus.backend(), size: 2 });
    const planned = ncclError("ncclCommAbort", 3, "ncclInternalError");
    gpus.machine.failNext("abortInBackground", planned);
    await expect(world.rebuild()).rejects.toEqual(seen(planned, { comm: "world" }));
    for (const handle of [...gpus.nccl.ends.keys()])
      await gpus.nccl.calls.abortInBackground(handle);
    const next = await world.rebuild();
    await expectHealthy(next);
    await next.close();
  });

  test("is not rebuilt once it was closed", async () => {
    const gpus = cleanGpus();
    const world = await createWorld({ backend: gpus.backend(), size: 2 });
    gpus.machine.failNext("uniqueId", broken);
    await expect(world.rebuild()).rejects.toEqual(seen(broken));
    await world.close();
    await expect(world.rebuild()).rejects.toMatchObject({ code: "ERR_COMM_CLOSED" });
  });
});
