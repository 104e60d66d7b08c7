/** Rebuilding: the next generation works, what belongs to the old one is refused, and wrong rebuilds change nothing. */

import { type Communicator, createWorld, type DeviceBuffer } from "twinccl";
import { sim } from "twinccl/sim";
import { describe, expect, test } from "vitest";
import { expectHealthy, within } from "../../support/planted.ts";

// biome-ignore lint/suspicious/noExplicitAny: what was thrown is judged by its facts
type Thrown = any;

const codeOf = (op: PromiseLike<unknown>): PromiseLike<unknown> =>
  op.then(
    () => "ok",
    (error: Thrown) => error.code ?? String(error),
  );

describe("rebuild", () => {
  test("without ranks keeps the others in order, under new numbers", async () => {
    const world = await createWorld({ backend: sim(), size: 5, name: "job" });
    const next = await world.rebuild({ without: [0, 3] });
    expect([next.size, next.generation, next.name, next.initialRanks]).toEqual([
      3,
      2,
      "job",
      [1, 2, 4],
    ]);
    expect([world.generation, world.initialRanks]).toEqual([1, [0, 1, 2, 3, 4]]);
    const results = await next.run(async (comm) => {
      const data = comm.alloc("int32", 1).fill(next.initialRanks[comm.rank] as number);
      await comm.allReduce({ send: data, op: "sum" });
      return [comm.rank, comm.size, (await data.toHost())[0]];
    });
    expect(results).toEqual([
      [0, 3, 7],
      [1, 3, 7],
      [2, 3, 7],
    ]);
    await next.close();
  });

  test("without options reopens the same ranks; repeatedly, it counts generations", async () => {
    let world = await createWorld({ backend: sim(), size: 3 });
    for (const [options, size, initialRanks] of [
      [undefined, 3, [0, 1, 2]],
      [{}, 3, [0, 1, 2]],
      [{ without: [] }, 3, [0, 1, 2]],
      [{ without: [1, 1, 1] }, 2, [0, 2]],
      [{ without: [0] }, 1, [2]],
    ] as const) {
      const generation = world.generation;
      world = await world.rebuild(options);
      expect([world.generation, world.size, world.initialRanks]).toEqual([
        generation + 1,
        size,
        initialRanks,
      ]);
      await expectHealthy(world);
    }
    await world.close();
  });

  test("continues a job after a rank threw, and after an abort", async () => {
    const world = await createWorld({ backend: sim(), size: 4 });
    await expect(
      world.run((comm) => {
        if (comm.rank === 2) throw new Error("lost");
        return comm.barrier();
      }),
    ).rejects.toMatchObject({ code: "ERR_COMM_WORLD" });
    const second = await world.rebuild({ without: [2] });
    await expectHealthy(second);
    second.abort(new Error("again"));
    await expect(second.run(() => 0)).rejects.toMatchObject({ code: "ERR_COMM_ABORTED" });
    const third = await second.rebuild({ without: [0] });
    expect(third.initialRanks).toEqual([1, 3]);
    await expectHealthy(third);
    await third.close();
  });

  test("refuses objects of an older generation", async () => {
    const world = await createWorld({ backend: sim(), size: 2 });
    const kept: { comm: Communicator; sub: Communicator; buffer: DeviceBuffer<"int32"> }[] = [];
    await world.run(async (comm) => {
      const sub = await comm.split({ color: 0 });
      kept[comm.rank] = { comm, sub, buffer: comm.alloc("int32", 2).fill(5) };
    });
    const next = await world.rebuild();
    const outcomes = await next.run(async (comm) => {
      const { comm: stale, sub, buffer } = kept[comm.rank] as (typeof kept)[0];
      const codes = [await codeOf(stale.barrier()), await codeOf(sub.barrier())];
      expect(() => stale.alloc("int8", 1)).toThrowError(
        expect.objectContaining({ code: "ERR_COMM_CLOSED" }),
      );
      const facts = await comm
        .allReduce({ send: buffer, op: "sum" })
        .catch(({ code, field, rank }: Thrown) => [code, field, rank]);
      const recv = await comm
        .allReduce({ send: comm.alloc("int32", 2), recv: buffer, op: "sum" })
        .catch(({ code, field }: Thrown) => [code, field]);
      return [...codes, facts, recv, await codeOf(buffer.toHost())];
    });
    expect(outcomes).toEqual(
      [0, 1].map((rank) => [
        "ERR_COMM_CLOSED",
        "ERR_COMM_CLOSED",
        ["ERR_COMM_ARG", "send", rank],
        ["ERR_COMM_ARG", "recv"],
        "ERR_COMM_CLOSED",
      ]),
    );
    await expect(world.run(() => 0)).rejects.toMatchObject({ code: "ERR_COMM_CLOSED" });
    await expectHealthy(next);
    await next.close();
  });

  test.each([
    ["a rank too many", [3]],
    ["a negative rank", [-1]],
    ["a fraction", [0.5]],
    ["NaN", [Number.NaN]],
    ["a word", ["1"]],
    ["all ranks", [0, 1, 2]],
    ["all ranks, some twice", [2, 1, 0, 1]],
  ])("refuses to leave out %s, and the world stays usable", async (_, without) => {
    const world = await createWorld({ backend: sim(), size: 3 });
    const refused = world.rebuild({ without: without as number[] });
    await expect(refused).rejects.toMatchObject({ code: "ERR_COMM_ARG", field: "without" });
    expect(world.generation).toBe(1);
    await expectHealthy(world);
    await world.close();
  });

  test.each([
    ["a number", 1],
    ["null", null],
  ])("refuses %s for the ranks with a typed error", async (_, without) => {
    const world = await createWorld({ backend: sim(), size: 3 });
    const code = await codeOf(world.rebuild({ without: without as never }));
    await world.close();
    expect(code).toBe("ERR_COMM_ARG");
  });

  test("is refused while the world is running, and the run continues", async () => {
    const world = await createWorld({ backend: sim(), size: 3 });
    const results = await within(
      2000,
      world.run(async (comm) => {
        const code = comm.rank === 1 ? await codeOf(world.rebuild({ without: [0] })) : "-";
        const data = new Int32Array(1).fill(1);
        await comm.allReduce({ send: data, op: "sum" });
        return [code, data[0]];
      }),
    );
    expect(results).toEqual([
      ["-", 3],
      ["ERR_COMM_CLOSED", 3],
      ["-", 3],
    ]);
    await expectHealthy(world);
    await world.close();
  });

  test("is refused twice in a row, at once or later, and on a closed world", async () => {
    const world = await createWorld({ backend: sim(), size: 2 });
    const both = await Promise.allSettled([world.rebuild(), world.rebuild()]);
    expect(both.map(({ status }) => status)).toEqual(["fulfilled", "rejected"]);
    await expect(world.rebuild()).rejects.toMatchObject({ code: "ERR_COMM_CLOSED" });
    const [first] = both;
    if (first?.status !== "fulfilled") throw new Error("not rebuilt");
    await expectHealthy(first.value);
    await first.value.close();
    await expect(first.value.rebuild()).rejects.toMatchObject({ code: "ERR_COMM_CLOSED" });
  });
});
