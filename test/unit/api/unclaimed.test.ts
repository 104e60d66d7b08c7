/** Calls about which nothing is claimed although NCCL is followed: explain and traces say so. */
import { type Communicator, createWorld } from "twinccl";
import { sim, Trace } from "twinccl/sim";
import { describe, expect, test } from "vitest";

async function traced(size: number, program: (comm: Communicator) => Promise<unknown>) {
  const trace = new Trace();
  const world = await createWorld({ backend: sim({ trace, like: "nccl-2.28" }), size });
  const results = await world.run(program);
  await world.close();
  return { text: trace.toText(), results };
}

describe("a split", () => {
  const question = { collective: "allReduce", dtype: "float32", op: "sum", count: 10 } as const;
  const splitBy = (key: (rank: number) => number, color = (_rank: number) => 0) =>
    traced(6, async (comm) => {
      const part = await comm.split({ color: color(comm.rank), key: key(comm.rank) });
      await part.allReduce({ send: new Float32Array(10), op: "sum" });
      await part.allGather({ send: new Float32Array(1), recv: new Float32Array(part.size) });
      return part.explain(question).claim;
    });

  test("that keeps the order of the devices has a claim, with its own ring", async () => {
    for (const color of [() => 0, (rank: number) => rank % 2, (rank: number) => Number(rank > 3)]) {
      const { text, results } = await splitBy((rank) => rank, color);
      for (const claim of results) expect(claim).toMatch(/^the same bits as NCCL/);
      expect(text).not.toContain("unclaimed");
    }
  });

  test("that changes the order has no claim, except for copies", async () => {
    const { text, results } = await splitBy((rank) => -rank);
    for (const claim of results)
      expect(claim).toMatch(/no claim.*not in the order of their devices/);
    expect(text.match(/ post .* allReduce float32\[10\] ring unclaimed\n/g)).toHaveLength(6);
    expect(text).not.toMatch(/allGather.*unclaimed/);
  });

  test("that changes the order in one part has a claim in the other", async () => {
    const { results } = await splitBy(
      (rank) => (rank === 4 ? 9 : rank),
      (rank) => Number(rank > 2),
    );
    expect(results.map((claim) => /^the same bits/.test(String(claim)))).toEqual([
      ...[true, true, true],
      ...[false, false, false],
    ]);
  });
});

describe("scalars of a pre-multiplied sum", () => {
  const scaled = async (scalar: (rank: number) => number) =>
    (
      await traced(3, (comm) =>
        comm.allReduce({ send: new Float32Array(4), op: { preMul: scalar(comm.rank) } }),
      )
    ).text;

  test("have a claim if they are equal, and none if they differ", async () => {
    for (const scalar of [0.3, Number.NaN])
      expect(await scaled(() => scalar)).not.toContain("unclaimed");
    expect(await scaled((rank) => rank)).toMatch(/ post .* Ring LL unclaimed\n/);
  });
});
