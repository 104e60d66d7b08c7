/**
 * Is the verifier strong enough? It must notice every single changed operation that matters.
 *
 * Programs of the whole catalogue are changed in one place each and shown to `verifyProgram`. Whatever passes is
 * executed on wild inputs by an interpreter that shares no code with the verifier; one that behaves in any way unlike
 * the program is a hole in the verifier and fails the test. A sample, fixed by the seed, is tried for each program;
 * `TWINCCL_MUTANTS=all` tries every mutant, `TWINCCL_MUTANTS=<n>` so many for each program.
 */

import { specifications } from "twinccl";
import {
  type Algorithm,
  algorithmsOf,
  buildProgram,
  builtCollectives,
  catalogue,
  type Program,
  verifyProgram,
} from "twinccl/algorithms";
import { describe, expect, test } from "vitest";
import { randomWords, seedFor } from "../support/seed.ts";
import { differenceOf, type Norm, normOf } from "./judge.ts";
import { kinds, type Mutant, mutantsOf } from "./mutants.ts";
import { Tally } from "./tally.ts";

const ranks = [2, 3, 4, 5, 6, 7, 8, 9];
const { TWINCCL_MUTANTS } = process.env;
const mutantsPerProgram = TWINCCL_MUTANTS === "all" ? Infinity : Number(TWINCCL_MUTANTS ?? 150);

const tally = new Tally();

/** So many of a program's mutants, drawn evenly from the kinds. */
function sample(program: Program, key: readonly number[]): Mutant[] {
  const dice = randomWords(seedFor(...key));
  const piles = [...mutantsOf(program).values()].map((mutants) => [...mutants]);
  const drawn: Mutant[] = [];
  while (drawn.length < mutantsPerProgram && piles.some((pile) => pile.length > 0)) {
    for (const pile of piles) {
      if (pile.length === 0 || drawn.length >= mutantsPerProgram) continue;
      const at = dice() % pile.length;
      drawn.push(pile[at]!);
      pile[at] = pile.at(-1)!;
      pile.pop();
    }
  }
  return drawn;
}

/** Judges the mutants of one program; gives those that the verifier should have noticed. */
function survivors(program: Program, algorithm: Algorithm, mutants: readonly Mutant[]): string[] {
  expect(verifyProgram(program, algorithm).problems).toEqual([]);
  const unexplained: string[] = [];
  let norm: Norm | undefined;
  for (const mutant of mutants) {
    const changed = mutant.make();
    const [first] = verifyProgram(changed, algorithm).problems;
    if (first !== undefined) {
      tally.killed(mutant.kind, first.pass);
      continue;
    }
    norm ??= normOf(program, algorithm.credits(program.ranks));
    const difference = differenceOf(changed, norm);
    if (difference === undefined) tally.equivalent(mutant.kind);
    else {
      tally.survived(mutant.kind);
      unexplained.push(`n = ${program.ranks}, root ${program.root}: ${mutant.text}: ${difference}`);
    }
  }
  return unexplained;
}

const rows = builtCollectives.flatMap((collective) =>
  algorithmsOf(collective).map((algorithm) => ({ collective, name: algorithm.name, algorithm })),
);

describe("the verifier notices what was changed in", () => {
  test.each(rows)("$collective $name", ({ collective, algorithm }) => {
    const unexplained = ranks.flatMap((size) => {
      const roots = specifications[collective].rooted ? [0, size - 1] : [-1];
      return roots.flatMap((root) => {
        const program = buildProgram(collective, algorithm, size, root);
        const row = rows.findIndex((each) => each.algorithm === algorithm);
        return survivors(program, algorithm, sample(program, [row, size, root]));
      });
    });
    expect(unexplained).toEqual([]);
  });

  test("at least 10,000 mutants are tried, and every survivor is explained", () => {
    process.stdout.write(`\n${tally.table()}\n`);
    expect(tally.count("survived")).toBe(0);
    if (TWINCCL_MUTANTS === undefined) expect(tally.count()).toBeGreaterThanOrEqual(10_000);
  });
});

describe("the judge rejects wrong executions", () => {
  test.each(kinds)("%s: a wrong execution is detected", (kind) => {
    const { ring } = catalogue.reduceScatter;
    const program = buildProgram("reduceScatter", ring, 4, -1);
    const several = buildProgram("allReduce", catalogue.allReduce["double-tree"], 4, -1);
    const [subject, credits] = kind === "move to another lane" ? [several, 0] : [program, 1];
    const norm = normOf(subject, credits);
    const mutants = mutantsOf(subject).get(kind) ?? [];
    expect(mutants.length).toBeGreaterThan(0);
    const harmful = mutants.filter((mutant) => differenceOf(mutant.make(), norm) !== undefined);
    expect(harmful.length / mutants.length).toBeGreaterThan(0.9);
  });
});
