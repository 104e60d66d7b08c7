/** The proof of invariance beside brute force: every count of a window and every element, under drawn settings. */
import fc from "fast-check";
import {
  type Answer,
  type Dependence,
  h200x8,
  type InvarianceQuestion,
  invariance,
  type NcclAlgorithm,
  type NcclProtocol,
  type NcclSettings,
} from "twinccl/algorithms";
import { expect, test } from "vitest";
import { holds } from "../support/seed.ts";
import {
  countsOf,
  type Kind,
  kindDifference,
  placeDifference,
  sizeDifference,
} from "../unit/algorithms/invariance/oracle.ts";

const collectives = ["allReduce", "allReduce", "allReduce", "reduceScatter", "reduce"] as const;
const dtypes = ["float32", "bfloat16", "float64", "float8e4m3", "int32"] as const;
const ops = ["sum", "sum", "avg", "prod", "max", { preMul: 0.3 }] as const;

const cases = fc
  .record({
    collective: fc.constantFrom(...collectives),
    ranks: fc.integer({ min: 2, max: 8 }),
    dtype: fc.constantFrom(...dtypes),
    op: fc.constantFrom(...ops),
    algorithm: fc.constantFrom<NcclAlgorithm | undefined>(undefined, "Tree", "Ring"),
    protocol: fc.constantFrom<NcclProtocol | undefined>(undefined, "LL", "LL128", "Simple"),
    channels: fc.constantFrom(0, 1, 2, 7, 8, 32),
    threads: fc.constantFrom(0, 1, 64, 96),
    buffer: fc.constantFrom(0, 1, 2, 4),
    // Windows beside the cells of a part, where cuts change.
    near: fc.integer({ min: 0, max: 40 }).map((cells) => 256 * cells),
    offset: fc.integer({ min: -40, max: 40 }),
    width: fc.integer({ min: 0, max: 30 }),
    row: fc.constantFrom(1, 1, 8, 30),
  })
  .map((drawn) => {
    const op = drawn.dtype === "int32" && typeof drawn.op === "object" ? "sum" : drawn.op;
    const from = Math.max(1, drawn.near + drawn.offset);
    // A row that the window lacks would be refused.
    const row = Math.floor((from + drawn.width) / drawn.row) * drawn.row >= from ? drawn.row : 1;
    return { ...drawn, op, row, counts: { from, to: from + drawn.width } };
  });

type Case = typeof cases extends fc.Arbitrary<infer T> ? T : never;

function settingsOf({ channels, threads, buffer }: Case): NcclSettings {
  const limits = channels === 0 ? {} : { minChannels: channels, maxChannels: channels };
  const sizes = { buffSize: 4096, llBuffSize: 2048, ll128BuffSize: 15_360 };
  const buffers = Object.entries(sizes).map(([name, bytes]) => [name, bytes * buffer]);
  return { ...limits, threads, ...(buffer > 0 && Object.fromEntries(buffers)) };
}

function variablesOf(drawn: Case): Record<string, string> {
  const { collective, algorithm, protocol } = drawn;
  const names: Readonly<Record<string, string>> = {
    ...{ minChannels: "NCCL_MIN_NCHANNELS", maxChannels: "NCCL_MAX_CTAS" },
    ...{ threads: "NCCL_NTHREADS", buffSize: "NCCL_BUFFSIZE" },
    ...{ llBuffSize: "NCCL_LL_BUFFSIZE", ll128BuffSize: "NCCL_LL128_BUFFSIZE" },
  };
  const numbers = Object.entries(settingsOf(drawn)).map(([name, value]) => [
    names[name],
    `${value}`,
  ]);
  return {
    ...Object.fromEntries(numbers),
    ...(algorithm && collective === "allReduce" && { NCCL_ALGO: algorithm }),
    ...(protocol && { NCCL_PROTO: protocol }),
  };
}

function kindOf(drawn: Case, ranks = drawn.ranks): Kind {
  const { collective, dtype, op, algorithm, protocol } = drawn;
  return {
    version: "2.28",
    topology: h200x8(ranks),
    ...{ collective, dtype, op },
    root: collective === "reduce" ? 0 : undefined,
    settings: settingsOf(drawn),
    forced: { algorithm: collective === "allReduce" ? algorithm : undefined, protocol },
  };
}

function questionOf(drawn: Case, ranks: number | number[] = drawn.ranks): InvarianceQuestion {
  const { collective, dtype, op, counts, row } = drawn;
  return { collective, ranks, dtype, op, counts, row, variables: variablesOf(drawn) };
}

function answer(drawn: Case, ask: Dependence, ranks?: number | number[]): Answer {
  return invariance({ ...questionOf(drawn, ranks), ask: [ask] }).answers[0] as Answer;
}

const listOf = ({ counts, row }: Case): number[] => countsOf(counts.from, counts.to, row);

test("size: the answer, the smallest count and the first element", async () => {
  await holds(
    cases,
    (drawn) => {
      const { isInvariant, folds } = answer(drawn, "size");
      const found = sizeDifference(kindOf(drawn), listOf(drawn));
      expect(isInvariant).toBe(found === undefined);
      const [, larger] = folds ?? [];
      expect(larger && [larger.count, larger.element]).toEqual(found);
    },
    500,
  );
});

test("position: the answer and the smallest count", async () => {
  await holds(
    cases,
    (drawn) => {
      const { isInvariant, folds } = answer(drawn, "position");
      const found = placeDifference(kindOf(drawn), listOf(drawn), drawn.row);
      expect(isInvariant).toBe(found === undefined);
      expect(folds?.[0].count).toBe(found);
    },
    400,
  );
});

test("the cheapest settings: those with the fewest variables, none of them more than another", async () => {
  await holds(
    cases,
    (drawn) => {
      const { cheapest } = invariance({ ...questionOf(drawn), ask: [] });
      const names = cheapest.map(({ variables }) => Object.entries(variables).map(String));
      const isMore = names.some((each) =>
        names.some((other) => other !== each && other.every((name) => each.includes(name))),
      );
      expect(isMore).toBe(false);
    },
    200,
  );
});

test("protocol: the answer, the smallest count and the first element", async () => {
  await holds(
    cases,
    (drawn) => {
      const { isInvariant, folds } = answer(drawn, "protocol");
      const kind = kindOf(drawn);
      const found = (["LL", "LL128", "Simple"] as const)
        .map((protocol) => ({ ...kind, forced: { ...kind.forced, protocol } }))
        .map((other) => kindDifference(kind, other, listOf(drawn)))
        .find((each) => each !== undefined);
      expect(isInvariant).toBe(found === undefined);
      expect(folds && [folds[0].count, folds[0].element]).toEqual(found);
    },
    400,
  );
});

test("ranks: a group in a larger one", async () => {
  const groups = cases.filter(({ op, collective }) => op !== "avg" && collective === "allReduce");
  await holds(
    fc.tuple(groups, fc.integer({ min: 2, max: 8 })),
    ([drawn, other]) => {
      const [fewer, more] = [drawn.ranks, other].sort((a, b) => a - b) as [number, number];
      if (fewer === more) return;
      const { isInvariant, folds } = answer(drawn, "ranks", [more, fewer]);
      const found = kindDifference(kindOf(drawn, fewer), kindOf(drawn, more), listOf(drawn));
      expect(isInvariant).toBe(found === undefined);
      expect(folds && [folds[0].count, folds[0].element]).toEqual(found);
    },
    400,
  );
});
