/**
 * The lanes of a program, one at a time: read from a finished program, or written afresh by its algorithm.
 *
 * An algorithm writes each rank's steps from the rank's number alone, so a program of a million ranks need never lie in
 * memory as a whole.
 */
import type { SpecifiedCollective } from "../../api/collectives/index.ts";
import { type Algorithm, builderOf } from "../algorithm.ts";
import { type Program, stepWidth } from "../program.ts";

/** What a program is for, without its steps. */
export type ProgramFrame = Pick<
  Program,
  "collective" | "algorithm" | "ranks" | "root" | "channels" | "chunksPerBlock" | "scratchChunks"
>;

/** A program, lane by lane. */
export interface LaneSource extends ProgramFrame {
  /** Steps of one lane, packed as in `Program.code`; good until the next lane is asked for. */
  steps(rank: number, channel: number): Int32Array;
}

/** The lanes of a finished program. */
export function lanesOfProgram(program: Program): LaneSource {
  const { starts, code, channels } = program;
  return {
    ...frameOf(program),
    steps: (rank, channel) => {
      const lane = rank * channels + channel;
      return code.subarray(
        (starts[lane] as number) * stepWidth,
        (starts[lane + 1] as number) * stepWidth,
      );
    },
  };
}

/** The lanes that an algorithm writes for a number of ranks. */
export function writtenLanes(
  collective: SpecifiedCollective,
  algorithm: Algorithm,
  ranks: number,
  root = -1,
): LaneSource {
  const builder = builderOf(collective, algorithm, ranks, root);
  return {
    ...builder.frame,
    steps: (rank, channel) => builder.stepsOf(algorithm.write, rank, channel),
  };
}

function frameOf(program: Program): ProgramFrame {
  const { collective, algorithm, ranks, root, channels, chunksPerBlock, scratchChunks } = program;
  return { collective, algorithm, ranks, root, channels, chunksPerBlock, scratchChunks };
}
