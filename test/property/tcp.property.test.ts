/** Ranks with a session each give the bits of the simulation: random programs over real sockets, under every plan. */
import fc from "fast-check";
import { bytesOf, type DType, dtypes, type SpecifiedCollective } from "twinccl";
import { sim } from "twinccl/sim";
import {
  expectSame,
  type Placement,
  type Program,
  type ProgramCall,
  type ProgramConstraints,
  programs,
  reduceOps,
  runProgramIn,
  seeds,
} from "twinccl/testing";
import { afterAll, describe, test } from "vitest";
import { algorithmsOf, builtCollectives } from "../../src/algorithms/catalogue.ts";
import type { PlanOptions } from "../../src/algorithms/index.ts";
import { KeptOpen } from "../support/kept-open.ts";
import { OpenWorlds } from "../support/open-worlds.ts";
import { holds, isAll } from "../support/seed.ts";
import { TcpJob } from "../support/tcp-jobs.ts";

const sizes = (...among: number[]): fc.Arbitrary<number> => fc.constantFrom(...among);

/** The law for one choice of plans: a job and a simulation of each size stay open for it. */
function lawOf(plans: PlanOptions, tls = false): (program: Program) => Promise<void> {
  const jobs = new KeptOpen((size) => TcpJob.open(size, { ...plans, tls }));
  const worlds = new OpenWorlds(() => sim(plans));
  afterAll(async () => {
    await jobs.close();
    await worlds.close();
  });
  return async (program) => {
    const found = await jobs.use(program.size, (job) => job.run(program));
    const norm = await worlds.use(program.size, (world) => runProgramIn(world, program));
    expectSame(found, norm);
  };
}

const bits: ProgramConstraints = { payload: "bits", sizes: sizes(1, 2, 3, 4, 5) };

describe("tcp has the simulation's bits", () => {
  const law = lawOf({});
  const likeNccl = lawOf({ like: "nccl-2.28" });
  const encrypted = lawOf({}, true);

  test("in whole programs", () => holds(programs(bits), law, 100));

  test("in whole programs under the plans of a named library", () =>
    holds(programs(bits), likeNccl, 40));

  test("in symmetric memory", async () => {
    const kinds = ["allReduce", "reduceScatter", "allGather"] as const;
    await holds(programs({ ...bits, symmetric: true, kinds, maxElements: 3000 }), law, 50);
  });

  test("in long programs", () =>
    holds(programs({ ...bits, maxSteps: 20, maxElements: 2000 }), law, 20));

  test("in calls of many rounds", () => holds(largePrograms(), law, 10));

  test("in whole programs with encryption", () =>
    holds(programs({ ...bits, maxElements: 9000, sizes: sizes(2, 3) }), encrypted, 20));
});

describe("tcp has the simulation's bits with the algorithm", () => {
  const rows = builtCollectives.flatMap((collective) =>
    algorithmsOf(collective).map(({ name }) => [collective, name] as const),
  );
  test.each(isAll ? rows : rows.filter((_, at) => at % 10 === 2))(
    "%s: %s",
    async (collective, name) => {
      const law = lawOf({ algorithms: { [collective]: name } });
      const kinds = [collective satisfies SpecifiedCollective];
      const among = isAll ? sizes(1, 2, 3, 4, 5) : sizes(3, 4);
      const cases = { ...bits, kinds, sizes: among, maxSplits: 1 };
      await holds(programs({ ...cases, maxElements: 300 }), law, 10);
      if (collective !== "barrier") await holds(largePrograms([collective], among), law, 2);
    },
  );
});

/** Calls whose chunks are longer than a message. */
const manyRounds = [
  ...(["allReduce", "reduce", "broadcast", "reduceScatter", "reduceScatterv"] as const),
  ...(["allGather", "allGatherv", "allToAll", "allToAllv", "gather", "scatter"] as const),
  ...(["sendRecv", "pair"] as const),
] satisfies readonly ProgramCall["kind"][];

/** Single large calls, in each form. */
function largePrograms(
  kinds: readonly ProgramCall["kind"][] = manyRounds,
  among = sizes(2, 3, 4),
): fc.Arbitrary<Program> {
  return fc
    .record({
      size: among,
      kind: fc.constantFrom(...kinds),
      dtype: fc.constantFrom(...dtypes),
      op: reduceOps("float32"),
      kib: fc.integer({ min: 100, max: isAll ? 700 : 250 }),
      more: fc.nat({ max: 9 }),
      root: fc.nat({ max: 4 }),
      form: fc.constantFrom<Placement["form"]>("apart", "oneBlock", "inPlace"),
      seed: seeds(),
    })
    .map(({ size, kind, dtype, kib, more, root: drawn, form, seed, op }): Program => {
      const count = Math.floor((kib * 1024) / bytesOf(dtype)) + more;
      const placement = { form, lead: more % 4, tail: 1, host: false };
      const data = { dtype, payload: "bits", seed, placement } as const;
      const folding = { ...data, op: typeof op === "object" ? scaledBy(dtype) : op };
      const root = drawn % size;
      const counts = Array.from({ length: size }, (_, rank) => ((rank + more) % 3) * (count >> 1));
      const call = largeCall(kind, { count, counts, root, size, data, folding });
      return { size, issue: "each", splits: [], steps: [{ kind: "call", comm: 0, call }] };
    });
}

const scaledBy = (dtype: DType) => ({ preMul: dtype.endsWith("int64") ? 3n : 3 });

/** Everything that a large call may need. */
interface Drawn {
  readonly count: number;
  readonly counts: readonly number[];
  readonly root: number;
  readonly size: number;
  readonly data: Omit<Extract<ProgramCall, { kind: "broadcast" }>, "kind" | "count" | "root">;
  readonly folding: Omit<Extract<ProgramCall, { kind: "allReduce" }>, "kind" | "count">;
}

function largeCall(kind: ProgramCall["kind"], drawn: Drawn): ProgramCall {
  const { count, counts, root, size, data, folding } = drawn;
  const order = "reversed";
  switch (kind) {
    case "barrier":
      return { kind };
    case "allReduce":
    case "reduceScatter":
      return { ...folding, kind, count };
    case "reduce":
      return { ...folding, kind, count, root };
    case "reduceScatterv":
      return { ...folding, kind, counts };
    case "broadcast":
      return { ...data, kind, count, root };
    case "allGather":
    case "allToAll":
      return { ...data, kind, count };
    case "allGatherv":
      return { ...data, kind, counts, order };
    case "gather":
    case "scatter":
      return { ...data, kind, counts, root, order };
    case "allToAllv": {
      const rows = counts.map((_, row) => counts.map((_c, at) => counts[(at + row) % size] ?? 0));
      return { ...data, kind, counts: rows, give: "both", recv: "exact", order };
    }
    case "sendRecv":
      return { ...data, kind, count, to: counts.map((_, rank) => (rank + 1) % size) };
    case "pair":
      return { ...data, kind, count, from: root, to: (root + 1) % size };
  }
}
