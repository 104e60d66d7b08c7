/**
 * The verifier: judges a program against the specification of its collective, without running it on numbers.
 *
 * Passes: every message meets its receive; every output holds exactly the specified contributions, each once and
 * complete; all ranks that hold the same output hold it by the same association, hence the same bits; nothing is read
 * before it is written or after it was overwritten, in place too; no deadlock with the declared number of credits;
 * steps and bytes equal the closed form in the algorithm's header; the fused folds compute the same values.
 */

import type { SpecifiedCollective } from "../../api/collectives/index.ts";
import { type Specification, specifications } from "../../api/collectives/index.ts";
import { type Algorithm, buildProgram } from "../algorithm.ts";
import { fuse, proveFusion } from "../fuse.ts";
import { layoutOf } from "../layout.ts";
import type { Program } from "../program.ts";
import { evaluate } from "../timing.ts";
import { findDeadlock, smallestSafeCredits } from "./credits.ts";
import { type Execution, execute, type Problem } from "./execution.ts";
import { lowestBit } from "./values.ts";

/** What the verifier found out about one program. */
export interface Verdict {
  readonly program: Program;
  readonly problems: readonly Problem[];
  /** Rounds on the longest path, one message per port and round. */
  readonly steps: number;
  /** Elements the busiest rank sends at `costCount` elements. */
  readonly sentElements: number;
  /** Association hash of each output chunk of rank 0; equal on every rank that holds the same chunk. */
  readonly associations: readonly string[];
}

/** Verifies an algorithm for a number of ranks and, where there is one, a root. */
export function verifyAlgorithm(
  collective: SpecifiedCollective,
  algorithm: Algorithm,
  ranks: number,
  root = -1,
): Verdict {
  return verifyProgram(buildProgram(collective, algorithm, ranks, root), algorithm);
}

/** Verifies a program; with its algorithm, also credits and cost against the header. */
export function verifyProgram(program: Program, algorithm?: Algorithm): Verdict {
  const apart = execute(program, false);
  const problems = [...apart.problems, ...contributionProblems(program, apart)];
  if (problems.length === 0) {
    problems.push(...inPlaceProblems(program, apart), ...proveFusion(program, fuse(program)));
  }
  const count = costCount(program);
  const { steps, sentElements } = problems.length === 0 ? costOf(program, count) : noCost;
  if (algorithm !== undefined && problems.length === 0) {
    problems.push(...creditProblems(program, algorithm));
    problems.push(...costProblems(program, algorithm, count, { steps, sentElements }));
  }
  const associations = Array.from(apart.outputs[0] ?? [], (value) =>
    value < 0 ? "" : apart.values.hash(value),
  );
  return { program, problems, steps, sentElements, associations };
}

const noCost = { steps: 0, sentElements: 0 };

/** A count that every chunking divides evenly, so that closed forms are exact. */
export function costCount(program: Program): number {
  return 4 * program.chunksPerBlock;
}

/** Steps and elements of the busiest rank, by the one-port recurrence. */
function costOf(program: Program, count: number): { steps: number; sentElements: number } {
  const { ranks } = program;
  const layout = layoutOf(program, { count });
  const oneRound = { latency: 0, occupancy: () => 1 };
  const { finished, sentElements } = evaluate(program, layout, new Float64Array(ranks), oneRound);
  return { steps: Math.max(...finished), sentElements: Math.max(...sentElements) };
}

function costProblems(
  program: Program,
  algorithm: Algorithm,
  count: number,
  found: { readonly steps: number; readonly sentElements: number },
): Problem[] {
  const stated = algorithm.cost({ ranks: program.ranks, count });
  return (["steps", "sentElements"] as const).flatMap((figure): Problem[] => {
    const within = found[figure] <= stated[figure] && stated[figure] <= 2 * found[figure];
    if (stated.bound === true ? within : found[figure] === stated[figure]) return [];
    const text = `${figure}: the header says ${stated[figure]}, the program takes ${found[figure]}`;
    return [{ pass: "cost", text }];
  });
}

function creditProblems(program: Program, algorithm: Algorithm): Problem[] {
  const declared = algorithm.credits(program.ranks);
  const deadlock = findDeadlock(program, declared);
  if (deadlock !== undefined) {
    const text = `with the declared ${declared} credits: ${deadlock.join("; ")}`;
    return [{ pass: "deadlock", text }];
  }
  const enough = smallestSafeCredits(program, declared);
  if (enough === declared) return [];
  return [
    { pass: "deadlock", text: `the header declares ${declared} credits, ${enough} are enough` },
  ];
}

/** In place, the same values must come out and nothing may be read after it was overwritten. */
function inPlaceProblems(program: Program, apart: Execution): Problem[] {
  const within = execute(program, true, apart.values);
  const problems = [...within.problems];
  within.outputs.forEach((chunks, rank) => {
    chunks.forEach((value, chunk) => {
      if (value === apart.outputs[rank]?.[chunk]) return;
      problems.push({
        pass: "hazard",
        text: `out[${chunk}] of rank ${rank} differs when in place`,
      });
    });
  });
  return problems;
}

function contributionProblems(program: Program, execution: Execution): Problem[] {
  const spec = specifications[program.collective];
  const problems: Problem[] = [];
  const norms = new Map<string, number>();
  execution.outputs.forEach((chunks, rank) => {
    chunks.forEach((value, chunk) => {
      const text = outputFault(program, spec, execution, { rank, chunk, value }, norms);
      if (text !== undefined) {
        problems.push({ pass: "contribution", text: `out[${chunk}] of rank ${rank} ${text}` });
      }
    });
  });
  return problems;
}

function outputFault(
  program: Program,
  spec: Specification,
  { values }: Execution,
  { rank, chunk, value }: { rank: number; chunk: number; value: number },
  norms: Map<string, number>,
): string | undefined {
  if (value < 0) return "was never written";
  const { ranks, root, chunksPerBlock } = program;
  const block = Math.floor(chunk / chunksPerBlock);
  const expected = spec.expected(ranks, rank, block, root);
  const source = (expected[0]?.block ?? 0) * chunksPerBlock + (chunk % chunksPerBlock);
  if (values.chunkOf(value) !== source) {
    return `holds input chunk ${values.chunkOf(value)}, needs ${source}`;
  }
  const needed = expected.reduce((set, { rank: from }) => set | (1n << BigInt(from)), 0n);
  const found = values.ranksOf(value);
  if (found !== needed) {
    const lacking = needed & ~found;
    const extra = found & ~needed;
    return lacking === 0n
      ? `holds a contribution of rank ${lowestBit(extra)} too many`
      : `lacks the contribution of rank ${lowestBit(lacking)}`;
  }
  if (values.isFinal(value) !== spec.reduces) {
    return spec.reduces ? "was never completed" : "was completed, but nothing was folded";
  }
  if (!spec.reduces) return undefined;
  // Whoever holds the same fold must hold it by the same association: the same bits everywhere.
  const key = `${source}/${needed}`;
  const norm = norms.get(key) ?? value;
  norms.set(key, norm);
  return norm === value ? undefined : "was folded in another order than on another rank";
}
