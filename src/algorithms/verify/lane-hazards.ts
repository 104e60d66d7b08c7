/**
 * Races between lanes of one rank. They run side by side, so no chunk may be written by one and used by another: the
 * order would depend on timing. In place, an output chunk and the input chunk under it are one.
 */
import { coveredInputs } from "../layout.ts";
import {
  bufferOf,
  chunkOf,
  column,
  input,
  none,
  type Program,
  refText,
  stepWidth,
} from "../program.ts";
import type { Problem } from "../symbolic/matching.ts";

/** Chunks that lanes of one rank could race for. */
export function laneHazards(program: Program): Problem[] {
  if (program.channels === 1) return [];
  const covered = coveredInputs(program);
  return covered.flatMap((under, rank) => rankHazards(program, rank, under));
}

/** The lanes that use a chunk. */
interface Use {
  readonly lanes: Set<number>;
  /** The chunk in the words of the step that writes it. */
  written: string | undefined;
}

function rankHazards(program: Program, rank: number, under: Int32Array): Problem[] {
  const { starts, code, channels } = program;
  const uses = new Map<number, Use>();
  const touch = (lane: number, ref: number, written: boolean): void => {
    const chunk = chunkOf(ref);
    const below = bufferOf(ref) === 1 ? (under[chunk] ?? none) : none;
    const cell = below === none ? ref : input(below);
    const use = uses.get(cell) ?? { lanes: new Set(), written: undefined };
    uses.set(cell, use);
    use.lanes.add(lane);
    if (written) use.written = refText(ref);
  };
  for (let lane = rank * channels; lane < (rank + 1) * channels; lane++) {
    for (let step = starts[lane] as number; step < (starts[lane + 1] as number); step++) {
      const at = step * stepWidth;
      for (const field of [column.read, column.other, column.write]) {
        const ref = code[at + field] as number;
        const span = ref === none ? 0 : (code[at + column.span] as number);
        for (let i = 0; i < span; i++) touch(lane, ref + 4 * i, field === column.write);
      }
    }
  }
  return [...uses.values()].flatMap(({ lanes, written }): Problem[] => {
    if (written === undefined || lanes.size === 1) return [];
    const text = `rank ${rank}: ${written} is written by one lane and touched by another beside it`;
    return [{ pass: "hazard", text }];
  });
}
