/** Wild calls: counts that no chunking divides, blocks of different lengths, numbers of very different sizes. */
import { specifications } from "twinccl";
import {
  allToAllvBlocks,
  type ChunkTable,
  type Layout,
  layoutOf,
  type Program,
  rowBlocks,
} from "twinccl/algorithms";
import type { HopArithmetic } from "../support/interpreter.ts";
import { randomWords } from "../support/seed.ts";
import { readings, twoReadings } from "./arithmetic.ts";

/** A call of all ranks. */
export interface WildCall {
  readonly layout: Layout;
  /** Elements as NCCL counts them; the lengths of the blocks where they differ. */
  readonly count: number;
  readonly counts: readonly (readonly number[])[] | undefined;
  /** Numbers of every rank's input. */
  readonly inputs: readonly Float64Array[];
  readonly arithmetic: HopArithmetic | undefined;
}

/** A call for a program, the same every time. */
export function wildCall(program: Program): WildCall {
  const { collective, ranks, chunksPerBlock } = program;
  const next = randomWords(ranks * 977 + chunksPerBlock);
  const { reduces } = specifications[collective];
  // So many elements a chunk that another order of folding shows in one of them.
  const count = (reduces ? 12 : 2) * chunksPerBlock + 1;
  const lengths = (): number[] => Array.from({ length: ranks }, () => next() % (reduces ? 20 : 5));
  const even = { count, counts: undefined, layout: layoutOf(program, { count }) };
  let shape: Omit<WildCall, "inputs" | "arithmetic"> = even;
  if (collective === "allToAllv") {
    const counts = Array.from({ length: ranks }, lengths);
    const layout = layoutOf(program, { count, blocks: allToAllvBlocks(counts) });
    shape = { count, counts, layout };
  } else if (["allGatherv", "reduceScatterv", "gather", "scatter"].includes(collective)) {
    const row = lengths();
    const layout = layoutOf(program, { count, blocks: rowBlocks(program, row) });
    shape = { count, counts: Array.from({ length: ranks }, () => row), layout };
  }
  const inputs = shape.layout.in.map((table, rank) => {
    const elements = lengthOf(table);
    if (!reduces) return Float64Array.from({ length: elements }, (_, i) => rank * 10_000 + i + 1);
    return Float64Array.from({ length: elements * readings }, (_, i) =>
      i % readings === 0 ? wildFloat(next) : next() | 0,
    );
  });
  return { ...shape, inputs, arithmetic: reduces ? twoReadings(ranks) : undefined };
}

/** Elements of a buffer. */
export function lengthOf({ lengths }: ChunkTable): number {
  return lengths.reduce((sum, length) => sum + length, 0);
}

/** A float32 of either sign and 24 random bits, between about 2^-12 and 2^12. */
function wildFloat(next: () => number): number {
  const fraction = 0x800000 + (next() % 0x800000);
  const sign = (next() & 1) === 0 ? 1 : -1;
  return sign * fraction * 2 ** ((next() % 24) - 35);
}

/**
 * The required outputs of a call, as far as the definition of the collective alone determines them: bytes for a copy, the
 * integer average (the second reading of every element) for a reduction.
 */
export function specified(program: Program, call: WildCall): number[][] {
  const { collective, ranks, root, chunksPerBlock } = program;
  const spec = specifications[collective];
  const width = spec.reduces ? readings : 1;
  const numberAt = (rank: number, block: number, i: number): number => {
    const offset = call.layout.in[rank]!.offsets[block * chunksPerBlock]!;
    return call.inputs[rank]![(offset + i) * width + width - 1]!;
  };
  return Array.from({ length: ranks }, (_, rank) => {
    const numbers: number[] = [];
    for (let block = 0; block < spec.outBlocks(ranks, rank, root); block++) {
      const sources = spec.expected(ranks, rank, block, root);
      const length = blockLength(call.layout.out[rank]!, block, chunksPerBlock);
      for (let i = 0; i < length; i++) {
        const all = sources.map((source) => numberAt(source.rank, source.block, i));
        numbers.push(spec.reduces ? average(all) : all[0]!);
      }
    }
    return numbers;
  });
}

/** The sum in 32 bits, divided towards zero. */
function average(values: readonly number[]): number {
  const sum = values.reduce((total, value) => total + BigInt(value), 0n);
  return Number(BigInt.asIntN(32, sum) / BigInt(values.length));
}

function blockLength({ lengths }: ChunkTable, block: number, chunksPerBlock: number): number {
  const chunks = lengths.subarray(block * chunksPerBlock, (block + 1) * chunksPerBlock);
  return chunks.reduce((sum, length) => sum + length, 0);
}
