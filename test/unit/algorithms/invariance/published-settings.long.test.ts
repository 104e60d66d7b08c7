/**
 * The table of settings in docs/invariance.md: each cell is the answer of `invariance` for all rows of its counts, and calls of the
 * simulation with drawn counts contradict none.
 */
import { readFileSync } from "node:fs";
import { type Answer, type InvarianceQuestion, invariance, topologies } from "twinccl/algorithms";
import { describe, expect, test } from "vitest";
import { isAll, randomWords, seedFor } from "../../../support/seed.ts";
import {
  contentsFor,
  contradiction,
  placesSeen,
  printsOf,
  type RunKind,
  sizeSeen,
} from "./runs.ts";

const tree = "allreduce:tree";

/** NCCL's variables of each row, by the first word of its name. */
const settings: Readonly<Record<string, Readonly<Record<string, string>>>> = {
  none: {},
  vLLM: {
    ...{ NCCL_ALGO: tree, NCCL_PROTO: "Simple", NCCL_NTHREADS: "1" },
    ...{ NCCL_MIN_NCHANNELS: "1", NCCL_MAX_NCHANNELS: "1" },
  },
  SGLang: { NCCL_ALGO: tree, NCCL_MIN_NCHANNELS: "8", NCCL_MAX_NCHANNELS: "8" },
  "torchtitan before": { NCCL_ALGO: "Ring", NCCL_PROTO: "Simple", NCCL_MAX_NCHANNELS: "1" },
  "torchtitan after": { NCCL_ALGO: "Tree" },
};

/** The worlds of each column. */
const columns = {
  "2 GPUs or hosts": { gpus: [2], hosts: [2] },
  "3 GPUs": { gpus: [3], hosts: [] },
  "4 to 8 GPUs": { gpus: [4, 5, 6, 7, 8], hosts: [] },
  "3 to 16 hosts": { gpus: [], hosts: [3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16] },
} as const;

const rows = tableOf(
  readFileSync(new URL("../../../../docs/invariance.md", import.meta.url), "utf8"),
);

/** The cells of the page's table, by row and column. */
function tableOf(page: string): Map<string, readonly string[]> {
  const lines = page.split("\n");
  const head = lines.findIndex((line) => line.startsWith("| setting of an all-reduce |"));
  const cells = (line: string): string[] =>
    line
      .split("|")
      .slice(1, -1)
      .map((each) => each.trim());
  expect(cells(lines[head] ?? "").slice(1)).toEqual(Object.keys(columns));
  const end = lines.findIndex((line, at) => at > head && !line.startsWith("|"));
  return new Map(
    lines.slice(head + 2, end).map((line) => {
      const [name = "", ...answers] = cells(line);
      return [name.split(":")[0] as string, answers];
    }),
  );
}

const row = 5120;
/** Largest count that is made; the answers reach further. */
const mostRows = 256;
const drawnCounts = 3;

/** Counts of whole rows, ascending, evenly over powers of two. */
function drawCounts(seed: number): number[] {
  const next = randomWords(seed);
  const drawn = Array.from({ length: drawnCounts }, () =>
    Math.round(mostRows ** ((next() >>> 0) / 2 ** 32)),
  );
  return [...new Set(drawn)].sort((a, b) => a - b).map((each) => row * each);
}

test("the page has a row for each setting", () => {
  expect([...rows.keys()]).toEqual(Object.keys(settings));
});

describe.each(Object.keys(settings))("%s", (name) => {
  const variables = settings[name] as Readonly<Record<string, string>>;
  const worlds = Object.values(columns).flatMap(({ gpus, hosts }, column) => [
    ...gpus.map((ranks) => ({ ranks, hosts: false, column })),
    ...hosts.map((ranks) => ({ ranks, hosts: true, column })),
  ]);
  const some = worlds.filter(({ ranks }) => isAll || ranks === 3 || ranks === 9);
  test.each(some)(
    "$ranks ranks, hosts: $hosts",
    async ({ ranks, hosts, column }) => {
      const question: InvarianceQuestion = {
        ...{ collective: "allReduce", dtype: "bfloat16", ranks, variables, row },
        ...{ counts: { from: row, to: 10 * 2 ** 20 }, ask: ["size", "position"] },
        topology: topologies[hosts ? "h200-hosts" : "h200x8"],
      };
      const [size, position] = invariance(question).answers as [Answer, Answer];
      const said = rows.get(name)?.[column] === "invariant";
      expect([size.isInvariant, position.isInvariant]).toEqual([said, said]);
      const kind: RunKind = {
        ...{ collective: "allReduce", dtype: "bfloat16", op: "sum" },
        ...{ ranks, variables, hosts },
      };
      const seed = seedFor(Object.keys(settings).indexOf(name), ranks, hosts ? 1 : 0);
      const prints = await printsOf(kind, drawCounts(seed), contentsFor(kind, 4, seed));
      expect(await contradiction(size, sizeSeen(prints), [kind, kind])).toBeUndefined();
      expect(await contradiction(position, placesSeen(prints, row), [kind, kind])).toBeUndefined();
    },
    60_000,
  );
});
