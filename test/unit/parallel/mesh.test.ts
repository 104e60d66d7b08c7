/** Named axes over the ranks: who is beside whom along each, and what is refused. */
import { type Communicator, createWorld } from "twinccl";
import { Mesh } from "twinccl/parallel";
import { sim } from "twinccl/sim";
import { describe, expect, test } from "vitest";

async function onRanks<T>(size: number, program: (comm: Communicator) => Promise<T>): Promise<T[]> {
  const world = await createWorld({ backend: sim({ seed: size }), size });
  try {
    return await world.run(program);
  } finally {
    await world.close();
  }
}

/** The world ranks of a communicator, in its order. */
async function members(comm: Communicator, worldRank: number): Promise<number[]> {
  const recv = new Int32Array(comm.size);
  await comm.allGather({ send: Int32Array.of(worldRank), recv });
  return [...recv];
}

describe("a mesh of 2 × 3 × 2", () => {
  const extents = { data: 2, pipeline: 3, tensor: 2 };
  test("has the last axis vary fastest, and a communicator for every line", async () => {
    const seen = await onRanks(12, async (comm) => {
      const mesh = await Mesh.create(comm, extents);
      const places = mesh.axes.map((axis) => mesh.place(axis));
      const lines: number[][] = [];
      for (const axis of mesh.axes) lines.push(await members(mesh.comm(axis), comm.rank));
      const ranks = mesh.axes.map((axis) => mesh.comm(axis).rank);
      const plane = await members(await mesh.across(["tensor", "data"]), comm.rank);
      await mesh.close();
      return { axes: mesh.axes, places, ranks, lines, plane };
    });
    for (const [rank, { axes, places, ranks, lines, plane }] of seen.entries()) {
      const [data, pipeline, tensor] = [Math.floor(rank / 6), Math.floor(rank / 2) % 3, rank % 2];
      const at = (d: number, p: number, t: number): number => 6 * d + 2 * p + t;
      expect(axes).toEqual(["data", "pipeline", "tensor"]);
      expect(places).toEqual([data, pipeline, tensor]);
      expect(ranks).toEqual(places);
      expect(lines).toEqual([
        [0, 1].map((d) => at(d, pipeline, tensor)),
        [0, 1, 2].map((p) => at(data, p, tensor)),
        [0, 1].map((t) => at(data, pipeline, t)),
      ]);
      expect(plane).toEqual([0, 1].flatMap((d) => [0, 1].map((t) => at(d, pipeline, t))));
    }
  });
});

test("one axis is the communicator again, and axes of 1 hold a rank alone", async () => {
  const seen = await onRanks(3, async (comm) => {
    const mesh = await Mesh.create(comm, { only: 3, alone: 1 });
    return [
      await members(mesh.comm("only"), comm.rank),
      mesh.comm("alone").size,
      mesh.extent("alone"),
    ];
  });
  expect(seen).toEqual([0, 1, 2].map(() => [[0, 1, 2], 1, 1]));
});

describe("refuses", () => {
  test.each([
    [{ data: 2, tensor: 2 }, "axes: found data 2 × tensor 2 = 4 ranks, needs 3"],
    [{ data: 2 }, "axes: found data 2 = 2 ranks, needs 3"],
    [{ data: 0 }, "data: found 0"],
    [{ data: 1.5 }, "data: found 1.5"],
    [{}, "axes: found none"],
    [{ 1: 3 }, 'found "1"'],
  ])("%j", async (extents: Record<string, number>, message) => {
    const errors = await onRanks(3, (comm) =>
      Mesh.create(comm, extents).then(
        () => "made",
        (error: Error) => error.message,
      ),
    );
    for (const error of errors) expect(error).toContain(message);
  });
  test("axes that differ between ranks, on all of them", async () => {
    const errors = await onRanks(4, (comm) => {
      const extents = comm.rank === 2 ? { b: 2, a: 2 } : { a: 2, b: 2 };
      return Mesh.create(comm, extents).then(
        () => "made",
        (error: Error) => `${error.name}: ${error.message}`,
      );
    });
    for (const error of errors) {
      expect(error).toMatch(/^CollectiveMismatchError: Mesh\.create: .*rank 2 differs/);
      expect(error).toMatch(/2 +b 2 × a 2/);
    }
  });
  test("an axis that it does not have", async () => {
    const errors = await onRanks(2, async (comm) => {
      const mesh = await Mesh.create<string>(comm, { a: 2 });
      const wrong = await mesh.across(["a", "b"]).catch((error: Error) => error.message);
      try {
        mesh.comm("toString");
        return "found";
      } catch (error) {
        return `${(error as Error).message}; ${wrong}`;
      }
    });
    for (const error of errors) {
      expect(error).toBe(
        'Mesh: axis: found "toString", needs one of a; Mesh: axis: found "b", needs one of a',
      );
    }
  });
});
