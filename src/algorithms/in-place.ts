/** Where outputs lie on inputs when a call is in place. */
import { specifications } from "../api/collectives/index.ts";
import { none, type Program } from "./program.ts";

/** For every rank: the input chunk under each output chunk, -1 where there is none. */
export function coveredInputs(program: Program): Int32Array[] {
  const { collective, ranks, root, chunksPerBlock } = program;
  const spec = specifications[collective];
  return Array.from({ length: ranks }, (_, rank) => {
    const covered = new Int32Array(spec.outBlocks(ranks, rank, root) * chunksPerBlock).fill(none);
    const blocks = spec.inBlocks(ranks, rank, root);
    for (let block = 0; block < blocks; block++) {
      const over = spec.inPlace(ranks, rank, block, root);
      if (over === undefined) continue;
      for (let i = 0; i < chunksPerBlock; i++) {
        covered[over * chunksPerBlock + i] = block * chunksPerBlock + i;
      }
    }
    return covered;
  });
}
