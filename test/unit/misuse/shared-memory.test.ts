/** Memory that several ranks share: harmless to read, wrong to write, and distinguished from in place. */

import { type Communicator, createWorld, type WorldError } from "twinccl";
import { sim } from "twinccl/sim";
import { describe, expect, test } from "vitest";
import { expectHealthy, within } from "../../support/planted.ts";

// biome-ignore lint/suspicious/noExplicitAny: what was thrown is judged by its facts
type Thrown = any;

const next = ({ rank, size }: Communicator): number => (rank + 1) % size;
const previous = ({ rank, size }: Communicator): number => (rank + size - 1) % size;

describe("a host array that several ranks pass", () => {
  test("as send only is fine", async () => {
    const world = await createWorld({ backend: sim(), size: 4 });
    const shared: Int32Array = Int32Array.of(1, 2, 3);
    const results = await world.run(async (comm) => {
      const recv: Int32Array = new Int32Array(3);
      await comm.allReduce({ send: shared, recv, op: "sum" });
      return Array.from(recv);
    });
    expect(results).toEqual(new Array(4).fill([4, 8, 12]));
    expect(Array.from(shared)).toEqual([1, 2, 3]);
    await world.close();
  });

  test("as recv is refused on all of them, and nothing is written", async () => {
    const world = await createWorld({ backend: sim(), size: 3 });
    const shared = new Int32Array(3);
    const run = world.run(async (comm) => {
      const send = comm.alloc("int32", 3).fill(comm.rank);
      const recv: Int32Array = comm.rank === 1 ? new Int32Array(3) : shared;
      await comm.allToAll({ send, recv });
    });
    const error = await run.then(
      () => "ran",
      (failed: WorldError) => failed.code,
    );
    expect(error).toBe("ERR_COMM_WORLD");
    expect(Array.from(shared)).toEqual([0, 0, 0]);
    await world.close();
  });

  test("in place is refused: every rank would fold what another has written", async () => {
    const world = await createWorld({ backend: sim(), size: 2 });
    const shared = Int32Array.of(1, 2, 3, 4);
    const run = world.run((comm) => comm.allReduce({ send: shared, op: "sum" }));
    await expect(run).rejects.toMatchObject({ code: "ERR_COMM_WORLD" });
    expect(Array.from(shared)).toEqual([1, 2, 3, 4]);
    await world.close();
  });

  test("as one rank's send and another's recv is refused", async () => {
    const world = await createWorld({ backend: sim(), size: 2 });
    const shared = Int32Array.of(1, 2, 3, 4);
    const run = world.run(async (comm) => {
      const other = Int32Array.of(10, 20, 30, 40);
      const first = comm.rank === 0;
      const send: Int32Array = first ? shared : other;
      const recv: Int32Array = first ? new Int32Array(4) : shared;
      await comm.allReduce({ send, recv, op: "sum" });
    });
    await expect(run).rejects.toMatchObject({ code: "ERR_COMM_WORLD" });
    await world.close();
  });

  test("different ranges of one allocation are each rank's own", async () => {
    const world = await createWorld({ backend: sim(), size: 4 });
    const memory = new Float32Array(4 * 5);
    memory.forEach((_, i) => {
      memory[i] = i;
    });
    await world.run((comm) => {
      const own = memory.subarray(5 * comm.rank, 5 * comm.rank + 5);
      return comm.allReduce({ send: own, op: "max" });
    });
    const last = [15, 16, 17, 18, 19];
    expect(Array.from(memory)).toEqual([...last, ...last, ...last, ...last]);
    await world.close();
  });
});

describe("host memory that two ranks pass in one exchange", () => {
  /** The outcome of each rank's call: fine, or the ranks that passed the same memory. */
  async function outcomesOf(
    size: number,
    call: (comm: Communicator) => PromiseLike<unknown>,
    seed = 0,
  ): Promise<unknown[]> {
    const world = await createWorld({ backend: sim({ seed }), size });
    const outcomes = await within(
      2000,
      world.run((comm) =>
        call(comm).then(
          () => "ok",
          ({ code, field, ranks, rank }: Thrown) => {
            expect(rank).toBe(comm.rank);
            return [code, field, ...ranks];
          },
        ),
      ),
    );
    await expectHealthy(world);
    await world.close();
    return outcomes;
  }

  const both = ["ERR_COMM_ARG", "recv", 1, 2];

  test.each([0, 1, 2, 3, 4, 5, 6, 7])(
    "is refused in a ring, in the order of seed %i",
    async (seed) => {
      const shared = new Int32Array(2);
      const outcomes = await outcomesOf(
        3,
        (comm) =>
          comm.sendRecv({
            send: new Int32Array(2).fill(comm.rank + 1),
            recv: comm.rank === 0 ? new Int32Array(2) : shared,
            to: next(comm),
            from: previous(comm),
          }),
        seed,
      );
      expect(outcomes.slice(1)).toEqual([both, both]);
    },
  );

  test("is not written when both ranks wait for it", async () => {
    const shared = new Int32Array(2);
    const outcomes = await outcomesOf(3, async (comm) => {
      if (comm.rank > 0) return comm.recv({ recv: shared, peer: 0 });
      await new Promise((resolve) => setTimeout(resolve, 3));
      return comm.group(() => {
        for (const peer of [1, 2]) void comm.send({ send: Int32Array.of(peer, peer), peer });
      });
    });
    expect(outcomes).toEqual([both, both, both]);
    expect([...shared]).toEqual([0, 0]);
  });

  test("is refused where one rank sends what another receives into", async () => {
    const memory = Int32Array.of(1, 2, 3);
    const outcomes = await outcomesOf(3, (comm) => {
      if (comm.rank === 0) return Promise.resolve();
      return comm.sendRecv({
        send: comm.rank === 1 ? memory.subarray(0, 2) : new Int32Array(2),
        recv: comm.rank === 1 ? new Int32Array(2) : memory.subarray(1),
        to: 3 - comm.rank,
        from: 3 - comm.rank,
      });
    });
    expect(outcomes.slice(1)).toEqual([both, both]);
    expect([...memory]).toEqual([1, 2, 3]);
  });

  test("is fine to be sent by all, and to hold each rank's own range", async () => {
    const memory = new Int32Array(6);
    const all = Int32Array.of(4, 5);
    const outcomes = await outcomesOf(3, (comm) =>
      comm.sendRecv({
        send: all,
        recv: memory.subarray(2 * comm.rank, 2 * comm.rank + 2),
        to: next(comm),
        from: previous(comm),
      }),
    );
    expect(outcomes).toEqual(["ok", "ok", "ok"]);
    expect([...memory]).toEqual([4, 5, 4, 5, 4, 5]);
  });

  test("may be received into by consecutive calls", async () => {
    const shared = new Int32Array(1);
    const seen: number[] = [];
    const outcomes = await outcomesOf(3, async (comm) => {
      for (const turn of [1, 2]) {
        if (comm.rank === 0) await comm.send({ send: Int32Array.of(turn), peer: turn });
        if (comm.rank === turn) {
          await comm.recv({ recv: shared, peer: 0 });
          seen.push(shared[0] as number);
        }
        await comm.barrier();
      }
    });
    expect(outcomes).toEqual(["ok", "ok", "ok"]);
    expect(seen).toEqual([1, 2]);
  });
});
