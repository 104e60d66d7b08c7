/**
 * The verifier: checks a program against the specification of its collective, without running it on numbers.
 *
 * Every message has its receive. Every output holds exactly the specified contributions, each once and complete. All ranks that
 * hold the same output hold it by the same association, hence the same bits. No chunk is read before it is written or after it
 * was overwritten, in place too. No deadlock occurs with the declared number of credits. Steps, bytes and fold order equal
 * those in the algorithm's header. The stated symmetry of ranks holds, and the fused folds compute the same values.
 */
import { type SpecifiedCollective, specifications } from "../../api/collectives/index.ts";
import { invalid, textOf } from "../../api/option-kinds.ts";
import type { InputBlock } from "../../api/specification.ts";
import { type Algorithm, assertAlgorithm, buildProgram } from "../algorithm.ts";
import { assertCollective } from "../arguments.ts";
import { proveFused } from "../fuse.ts";
import { assertProgram, none, type Program } from "../program.ts";
import { type Execution, executeMatched } from "../symbolic/execution.ts";
import { type Matching, matchSteps, type Problem } from "../symbolic/matching.ts";
import { hashAll, type ValueId, type ValueTable } from "../symbolic/values.ts";
import { cycleOf, smallestSafeCredits } from "./credits.ts";
import { associationProblems, costOf, costProblems, noCost, symmetryProblems } from "./header.ts";
import { laneHazards } from "./lane-hazards.ts";

/** The verifier's result for one program. */
export interface Verdict {
  readonly program: Program;
  readonly problems: readonly Problem[];
  /** Rounds on the longest path, one message per port and round. */
  readonly steps: number;
  /** Elements that the busiest rank sends when every chunk has four. */
  readonly sentElements: number;
  /** Association hash of each output chunk of rank 0; equal on every rank that holds the same chunk. */
  readonly associations: readonly string[];
  /** One hash of the associations on all ranks: programs with the same one compute the same bits. */
  readonly association: string;
}

/**
 * Verifies an algorithm for a number of ranks and, where the collective has one, a root: 0 when left out.
 *
 * @throws InvalidArgumentError for a collective, number of ranks or root that does not exist, or what is no algorithm.
 */
export function verifyAlgorithm(
  collective: SpecifiedCollective,
  algorithm: Algorithm,
  ranks: number,
  root = 0,
): Verdict {
  const refuse = (field: string, found: unknown, needed: string): never => {
    throw invalid("verifyAlgorithm", field, textOf(found), needed);
  };
  assertCollective("verifyAlgorithm", collective);
  assertAlgorithm("verifyAlgorithm", collective, algorithm);
  if (!Number.isSafeInteger(ranks) || ranks < 1) {
    refuse("ranks", ranks, "a whole number of at least 1");
  }
  const { rooted } = specifications[collective];
  if (rooted && !(Number.isSafeInteger(root) && root >= 0 && root < ranks)) {
    refuse("root", root, `a rank in 0..${ranks - 1}`);
  }
  return verifyProgram(buildProgram(collective, algorithm, ranks, rooted ? root : -1), algorithm);
}

/** Verifies a program; with its algorithm, also credits, cost and order of folding against the header. */
export function verifyProgram(program: Program, algorithm?: Algorithm): Verdict {
  assertProgram("verifyProgram", program);
  if (algorithm !== undefined) assertAlgorithm("verifyProgram", program.collective, algorithm);
  const matching = matchSteps(program);
  const apart = executeMatched(program, matching, false);
  let problems = [
    ...apart.problems,
    ...contributionProblems(program, apart),
    ...laneHazards(program),
  ];
  if (problems.length === 0) {
    problems = [...inPlaceProblems(program, matching, apart), ...proveFused(apart)];
  }
  const cost = problems.length === 0 ? costOf(program, matching) : noCost;
  if (algorithm !== undefined && problems.length === 0) {
    problems = [
      ...creditProblems(program, matching, algorithm),
      ...costProblems(program, algorithm, cost),
      ...associationProblems(program, algorithm, apart),
      ...symmetryProblems(program, algorithm),
    ];
  }
  const { values, outputs } = apart;
  return {
    program,
    problems,
    ...cost,
    // Computed on access: hashing every value costs more than all passes together.
    get associations() {
      return Array.from(outputs[0] ?? [], (value) => (value < 0 ? "" : values.hash(value)));
    },
    get association() {
      return hashAll(
        outputs.flatMap((chunks) => Array.from(chunks, (value) => values.hash(value))),
      );
    },
  };
}

function creditProblems(program: Program, matching: Matching, algorithm: Algorithm): Problem[] {
  const declared = algorithm.credits(program.ranks);
  const deadlock = cycleOf(program, matching, declared);
  if (deadlock !== undefined) {
    const text = `with the declared ${declared} credits: ${deadlock.join("; ")}`;
    return [{ pass: "deadlock", text }];
  }
  // More credits never deadlock, so the declared number is minimal when one fewer is not enough.
  if (declared === 0 || cycleOf(program, matching, declared - 1) !== undefined) return [];
  const enough = smallestSafeCredits(program, declared);
  return [
    { pass: "deadlock", text: `the header declares ${declared} credits, ${enough} are enough` },
  ];
}

/** In place, the outputs must have the same values, and no step may read an overwritten input. */
function inPlaceProblems(program: Program, matching: Matching, apart: Execution): Problem[] {
  // Without reads of overwritten inputs, every step computes the same values in place.
  if (!apart.readsCovered) return [];
  const within = executeMatched(program, matching, true, apart.values);
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

// Checks every output chunk against the specification: each contribution once, complete, and the same bits on all ranks.

/** The required content of an output chunk. */
interface Need {
  /** Number of the input chunk. */
  readonly source: number;
  /** Ranks that contribute, as a set's number. */
  readonly ranks: number;
  readonly reduces: boolean;
}

/** Problems of the values that a program leaves in its outputs. */
function contributionProblems(program: Program, execution: Execution): Problem[] {
  const { ranks, root, chunksPerBlock, collective } = program;
  const { expected, reduces } = specifications[collective];
  const { values, outputs } = execution;
  const problems: Problem[] = [];
  // Ranks that hold the same fold must hold it by the same association: the same bits everywhere.
  const norms: ValueId[] = [];
  let previous: readonly InputBlock[] | undefined;
  let all = none;
  for (let rank = 0; rank < ranks; rank++) {
    const chunks = outputs[rank] as Int32Array;
    for (let block = 0; block * chunksPerBlock < chunks.length; block++) {
      const sources = expected(ranks, rank, block, root);
      const first = (sources[0]?.block ?? 0) * chunksPerBlock;
      // The specification returns the same array for equal requirements.
      if (sources !== previous) all = values.setOf(sources.map((source) => source.rank));
      previous = sources;
      for (let piece = 0; piece < chunksPerBlock; piece++) {
        const chunk = block * chunksPerBlock + piece;
        const value = chunks[chunk] as ValueId;
        const need = { source: first + piece, ranks: all, reduces };
        const text = fault(values, value, need) ?? orderFault(values, value, need, norms);
        if (text === undefined) continue;
        problems.push({ pass: "contribution", text: `out[${chunk}] of rank ${rank} ${text}` });
      }
    }
  }
  return problems;
}

function fault(values: ValueTable, value: ValueId, need: Need): string | undefined {
  if (value < 0) return "was never written";
  const { source, ranks, reduces } = need;
  if (values.chunkOf(value) !== source) {
    return `holds input chunk ${values.chunkOf(value)}, needs ${source}`;
  }
  const found = values.contributors(value);
  if (!values.sameSet(found, ranks)) {
    const lacking = values.firstMissing(ranks, found);
    return lacking === undefined
      ? `holds an extra contribution of rank ${values.firstMissing(found, ranks)}`
      : `lacks the contribution of rank ${lacking}`;
  }
  if (values.isFinal(value) === reduces) return undefined;
  return reduces ? "was never completed" : "was completed, but nothing was folded";
}

/** Compares a value with the first one of the same fold; every fold of a chunk is over the same ranks. */
function orderFault(
  values: ValueTable,
  value: ValueId,
  { source, ranks, reduces }: Need,
  norms: ValueId[],
): string | undefined {
  if (!reduces) return undefined;
  const norm = norms[source] ?? value;
  norms[source] = norm;
  if (norm === value || !values.sameSet(values.contributors(norm), ranks)) return undefined;
  return "was folded in another order than on another rank";
}
