/**
 * Does a value fit into a chunk, whatever the counts of the call?
 *
 * Chunks of one block differ in length when the count does not divide evenly, and blocks differ where the caller gives
 * counts of their own. A value is as long as the input chunk that it is about; scratch chunks are as long as the
 * rank's input chunks, counted round and round.
 */
import { type SpecifiedCollective, specifications } from "../../api/collectives/index.ts";
import type { Program } from "../program.ts";
import type { ValueId, ValueTable } from "./values.ts";

/** Collectives whose blocks may each have a length of their own. */
const uneven: ReadonlySet<SpecifiedCollective> = new Set<SpecifiedCollective>([
  "allGatherv",
  "reduceScatterv",
  "allToAllv",
  "gather",
  "scatter",
]);

/** Compares the lengths of values and chunks of one program. */
export class Lengths {
  readonly #program: Program;
  readonly #values: ValueTable;
  readonly #chunksPerBlock: number;
  readonly #reduces: boolean;
  readonly #even: boolean;

  constructor(program: Program, values: ValueTable) {
    this.#program = program;
    this.#values = values;
    this.#chunksPerBlock = program.chunksPerBlock;
    this.#reduces = specifications[program.collective].reduces;
    this.#even = !uneven.has(program.collective);
  }

  /** True when a value is as long as a chunk of `out` (1) or scratch (2) in every call. */
  fits(value: ValueId, buffer: number, rank: number, chunk: number): boolean {
    const about = this.#values.chunkOf(value);
    const piece = this.#chunksPerBlock;
    if (about !== chunk && (about - chunk) % piece !== 0) return false;
    if (this.#even) return true;
    const source = this.#source(buffer, rank, Math.floor(chunk / piece));
    const from = this.#reduces ? undefined : this.#values.contributors(value);
    return (
      source !== undefined &&
      source.block === Math.floor(about / piece) &&
      (from === undefined || from === source.rank)
    );
  }

  /** The input block that a block of `out` or scratch is as long as. */
  #source(buffer: number, rank: number, block: number) {
    const { collective, ranks, root } = this.#program;
    const spec = specifications[collective];
    if (buffer === 1) return spec.expected(ranks, rank, block, root)[0];
    const blocks = spec.inBlocks(ranks, rank, root);
    return blocks === 0 ? undefined : { rank, block: block % blocks };
  }
}
