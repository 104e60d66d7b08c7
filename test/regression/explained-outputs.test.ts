/** The chunks of `explain` are those of an output that exists, and each rank's own where outputs differ. */
import type { Communicator, Question } from "twinccl";
import { createWorld } from "twinccl";
import { sim } from "twinccl/sim";
import { describe, expect, test } from "vitest";
import { inWorld } from "../support/in-world.ts";

const ranks = 4;
const root = 2;
const count = 37;

/** Values with a sum that depends on the order of folding. */
function value(rank: number, at: number): number {
  return Math.fround(Math.sin(1 + 31 * rank + 7 * at) * 10 ** ((rank * 5 + at) % 7));
}

/** The value of a fold's text, rounded at every hop. */
function folded(text: string, input: (rank: number) => number): number {
  const tokens = text.match(/[()+]|r\d+/g) ?? [];
  let at = 0;
  const operand = (): number => {
    const token = tokens[at++] ?? "";
    if (token !== "(") return input(Number(token.slice(1)));
    const inner = sum();
    at++;
    return inner;
  };
  const sum = (): number => {
    let total = operand();
    while (tokens[at] === "+") {
      at++;
      total = Math.fround(total + operand());
    }
    return total;
  };
  return sum();
}

/** Compares an output, which begins at an element of every input, with `explain`'s account of it. */
function expectExplained(
  comm: Communicator,
  question: Question,
  output: ArrayLike<number>,
  begin: number,
): void {
  const plan = comm.explain(question);
  const length = plan.chunks.reduce((sum, chunk) => sum + chunk.length, 0);
  expect(length).toBe(output.length);
  for (let at = 0; at < output.length; at++) {
    const { fold, order } = plan.chunkOf(at);
    expect(folded(fold, (rank) => value(rank, begin + at))).toBe(output[at]);
    expect([...order].sort()).toEqual([0, 1, 2, 3]);
  }
}

const backends = {
  "NCCL's plans": () => sim(),
  "the catalogue's plans": () =>
    sim({ algorithms: { reduce: "binomial", reduceScatter: "ring", reduceScatterv: "ring" } }),
};

describe.each(Object.entries(backends))("by %s", (_, backend) => {
  test("every rank sees the root's output of a reduce", async () => {
    const question = { collective: "reduce", dtype: "float32", op: "sum", root, count } as const;
    const plans = await inWorld(
      ranks,
      async (comm) => {
        const send = comm.alloc("float32", count);
        send.copyFrom(Float32Array.from({ length: count }, (_, at) => value(comm.rank, at)));
        const sum = await comm.reduce({ send, op: "sum", root });
        if (sum !== undefined) expectExplained(comm, question, await sum.toHost(), 0);
        const { rank, chunks } = comm.explain(question);
        return { rank, chunks };
      },
      backend(),
    );
    for (const plan of plans) expect(plan).toEqual({ rank: root, chunks: plans[0]?.chunks });
  });

  test("each rank sees its own block of a reduce-scatter", async () => {
    const question = { collective: "reduceScatter", dtype: "float32", op: "sum", count } as const;
    await inWorld(
      ranks,
      async (comm) => {
        const send = comm.alloc("float32", ranks * count);
        send.copyFrom(
          Float32Array.from({ length: ranks * count }, (_, at) => value(comm.rank, at)),
        );
        const recv = comm.alloc("float32", count);
        await comm.reduceScatter({ send, recv, op: "sum" });
        expect(comm.explain(question).rank).toBe(comm.rank);
        expectExplained(comm, question, await recv.toHost(), comm.rank * count);
      },
      backend(),
    );
  });

  test("each rank sees its own block of a reduce-scatterv", async () => {
    const counts = [3, 0, 11, 5];
    const begins = [0, 3, 3, 14];
    const question: Question = {
      ...{ collective: "reduceScatterv", dtype: "float32", op: "sum" },
      counts: [counts],
    };
    await inWorld(
      ranks,
      async (comm) => {
        const send = comm.alloc("float32", 19);
        send.copyFrom(Float32Array.from({ length: 19 }, (_, at) => value(comm.rank, at)));
        const recv = comm.alloc("float32", counts[comm.rank] as number);
        await comm.reduceScatterv({ send, recv, op: "sum", sendCounts: counts });
        expectExplained(comm, question, await recv.toHost(), begins[comm.rank] as number);
      },
      backend(),
    );
  });
});

test("ranks without an output see the root's of a gather, others their own", async () => {
  await inWorld(ranks, async (comm) => {
    const gather = comm.explain({ collective: "gather", dtype: "int8", root, count: 1 });
    expect(gather.rank).toBe(root);
    expect(gather.chunks.map(({ order }) => order)).toEqual([[0], [1], [2], [3]]);
    const scatter = comm.explain({ collective: "scatter", dtype: "int8", root, count: 1 });
    expect(scatter.rank).toBe(comm.rank);
    expect(scatter.chunks.map(({ fold }) => fold)).toEqual([`copy of r2 in[${comm.rank}]`]);
  });
});

test("the text names the rank", async () => {
  const world = await createWorld({
    backend: sim({ algorithms: { reduce: "binomial" } }),
    size: ranks,
  });
  const question = { collective: "reduce", dtype: "float32", op: "sum", root, count: 2 } as const;
  expect(String(world.explain(question))).toContain("chunks of the output of rank 2");
  expect(String(world.explain({ ...question, root: 0 }))).toContain("output of rank 0");
  await world.close();
});
