/** Named axes over the ranks: the neighbours along each, and the refusals. */
import { type CommError, type Communicator, createWorld } from "twinccl";
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

test("one axis has the same communicator, and axes of 1 hold a single rank", async () => {
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

test("names may be any texts, and planes none or all of them", async () => {
  const seen = await onRanks(4, async (comm) => {
    const mesh = await Mesh.create<string>(comm, { ["__proto__"]: 2, "": 2 });
    const [line, other] = [mesh.comm("__proto__"), mesh.comm("")];
    const planes = [
      await mesh.across([]),
      await mesh.across(["", ""]),
      await mesh.across(["", "__proto__"]),
    ];
    const all = [line, other, ...planes];
    return Promise.all(all.map((each) => members(each, comm.rank)));
  });
  for (const [rank, found] of seen.entries()) {
    const [slow, fast] = [rank % 2, 2 * Math.floor(rank / 2)];
    const row = [fast, fast + 1];
    expect(found).toEqual([[slow, slow + 2], row, [rank], row, [0, 1, 2, 3]]);
  }
});

describe("refuses", () => {
  test.each([
    [{ data: 2, tensor: 2 }, "axes: found data 2 × tensor 2 = 4 ranks, needs 3"],
    [{ data: 2 }, "axes: found data 2 = 2 ranks, needs 3"],
    [{ data: 0 }, "data: found 0"],
    [{ data: 1.5 }, "data: found 1.5"],
    [{}, "axes: found none"],
    [undefined as unknown as Record<string, number>, "axes: found none"],
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
  test("axes with names that hold others, on all ranks", async () => {
    const errors = await onRanks(6, (comm) =>
      Mesh.create<string>(comm, comm.rank === 0 ? { "a 1 × b": 6 } : { a: 1, b: 6 }).then(
        () => "made",
        (error: Error) => error.message,
      ),
    );
    for (const error of errors) expect(error).toMatch(/option "names": rank 0 differs/);
  });
  test("planes that differ, on all ranks", async () => {
    const errors = await onRanks(4, async (comm) => {
      const mesh = await Mesh.create(comm, { a: 2, b: 2 });
      return mesh.across(comm.rank === 3 ? ["b"] : ["a"]).catch((error: Error) => error.message);
    });
    for (const error of errors)
      expect(error).toMatch(/^Mesh\.across: option "axes": rank 3 differs/);
  });
  test("calls on a closed mesh", async () => {
    const errors = await onRanks(2, async (comm) => {
      const mesh = await Mesh.create(comm, { a: 2 });
      const plane = await mesh.across(["a"]);
      await mesh.close();
      return Promise.all(
        [mesh.comm("a"), plane].map((each) =>
          each.barrier().catch((error: unknown) => (error as CommError).code),
        ),
      );
    });
    for (const codes of errors) expect(codes).toEqual(["ERR_COMM_CLOSED", "ERR_COMM_CLOSED"]);
  });
  test("an unknown axis", async () => {
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
