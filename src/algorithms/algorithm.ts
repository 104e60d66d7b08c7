/** The interface of an algorithm: its program, its cost, its order of folding and its source. */
import type { SpecifiedCollective } from "../api/collectives/index.ts";
import { invalid, textOf } from "../api/option-kinds.ts";
import { assertInteger } from "./arguments.ts";
import type { FoldPlace, Folds } from "./association.ts";
import { ProgramBuilder } from "./builder.ts";
import { maxChunks, type Program } from "./program.ts";

/** A call's shape as far as cost depends on it. */
export interface CostShape {
  readonly ranks: number;
  /** Elements as NCCL counts them for the collective; for an all-to-all the elements per peer. */
  readonly count: number;
}

/** Closed form of an algorithm's cost; the verifier compares every program with it. */
export interface Cost {
  /** Rounds on the longest path when a rank sends and receives one message a round. */
  readonly steps: number;
  /** Elements that the busiest rank sends, for counts that divide evenly. */
  readonly sentElements: number;
  /** True when `steps` is an upper bound, at most twice the program's steps; else it is exact. */
  readonly bound?: boolean | undefined;
}

/**
 * A renumbering of the ranks under which a program sends the same messages. Rank 0 becomes rank r; rank p becomes (p + r) mod n
 * (`rotation`), or p with the bits of r flipped (`hypercube`).
 */
export type Symmetry = "rotation" | "hypercube";

/** One way of doing one collective. */
export interface Algorithm {
  readonly name: string;
  /** One sentence for users. */
  readonly summary: string;
  /** Paper or source. */
  readonly source: string;
  /** Messages in flight between two ranks before the sender must wait; fewer would deadlock. */
  readonly credits: (ranks: number) => number;
  /** Lanes of each rank; 1 when left out. */
  readonly channels?: number | undefined;
  /** Chunks that each block is cut into. */
  readonly chunksPerBlock: (ranks: number) => number;
  /** Chunks of scratch memory per rank; none when left out. */
  readonly scratchChunks?: ((ranks: number) => number) | undefined;
  /** Closed form of its cost. */
  readonly cost: (shape: CostShape) => Cost;
  /** Order in which it folds an element; required for every collective that reduces. */
  readonly order?: (<V>(folds: Folds<V>, place: FoldPlace) => V) | undefined;
  /** Renumbering that turns rank 0's messages into those of every rank; left out where none exists. */
  readonly symmetry?: ((ranks: number) => Symmetry | undefined) | undefined;
  /** Writes the steps of every rank. */
  readonly write: (program: ProgramBuilder) => void;
}

/** Needs an algorithm. */
export function assertAlgorithm(subject: string, collective: string, found: unknown): void {
  const { write, chunksPerBlock } = Object(found) as Partial<Algorithm>;
  if (typeof write === "function" && typeof chunksPerBlock === "function") return;
  const needed = `an algorithm, such as catalogue.${collective}`;
  throw invalid(subject, "algorithm", textOf(found), needed);
}

/** The program of an algorithm for a number of ranks. */
export function buildProgram(
  collective: SpecifiedCollective,
  algorithm: Algorithm,
  ranks: number,
  root: number,
): Program {
  assertAlgorithm("buildProgram", collective, algorithm);
  const builder = builderOf(collective, algorithm, ranks, root);
  if (algorithm.symmetry?.(ranks) !== undefined) builder.assertFits(algorithm.write);
  algorithm.write(builder);
  return builder.build();
}

/**
 * The builder that an algorithm writes its program into.
 *
 * @throws InvalidArgumentError for numbers of ranks, chunks or channels that no program has.
 */
export function builderOf(
  collective: SpecifiedCollective,
  algorithm: Algorithm,
  ranks: number,
  root: number,
): ProgramBuilder {
  assertInteger("program", "ranks", ranks, 1, Number.MAX_SAFE_INTEGER);
  const { name, channels = 1 } = algorithm;
  const chunksPerBlock = algorithm.chunksPerBlock(ranks);
  const scratchChunks = algorithm.scratchChunks?.(ranks) ?? 0;
  assertInteger("algorithm", "chunksPerBlock", chunksPerBlock, 1, maxChunks);
  return new ProgramBuilder({
    ...{ collective, algorithm: name, ranks, root },
    ...{ chunksPerBlock, channels, scratchChunks },
  });
}
