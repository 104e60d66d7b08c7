/**
 * The arithmetic of a plan: the fold that an executor runs, and the rounding of its hops.
 *
 * A hop of a float average or pre-multiplied sum computes `x * s + partial`, with one rounding or with two. The operator's
 * source leaves that to the compiler; these rules are those of NCCL 2.28.9's library on sm_90. Over LL128 the lanes of a warp
 * that carry the flag pass the second half of their 16 bytes to other lanes. Only there the product is rounded separately. So
 * for 4- and 8-byte floats the rounding depends on the position in the chunk. An executor folds each block both ways and
 * selects element by element.
 */

import { specifications } from "../../api/collectives/index.ts";
import { bytesOf, type DType, dtypeInfo } from "../../api/dtype.ts";
import type { ReduceOp } from "../../api/reduce-op.ts";
import type { Fold, Lanes } from "../arithmetic/fold.ts";
import { foldFor } from "../arithmetic/fold-for.ts";
import type { FusedFold, FusedPlan, Operand, Place } from "../fuse.ts";
import type { ChunkTable, Layout } from "../layout.ts";
import type { HopRounding, NcclPlan, Piece } from "./plan-types.ts";
import type { NcclProtocol } from "./protocol.ts";
import { symmetricFold } from "./symmetric-fold.ts";

/** The folds of a plan. */
export interface PlanFolds {
  readonly fold: Fold;
  /**
   * Second fold of plans that round by position: every block is folded both ways, and `takeSeparate` joins them
   * before `finish`.
   */
  readonly separate: Fold | undefined;
  /** Type of a running value: the element type, or float32, which is rounded to the element type once at the end. */
  readonly accumulator: "element" | "float32";
}

/** The folds of a plan; `op` is a rank's own where the scalars of ranks differ. */
export function planFolds(plan: NcclPlan, op: ReduceOp): PlanFolds {
  const { dtype, ranks, rounding, accumulator } = plan;
  // NCCL has no 8-bit float kernel for one rank, so its average there is a copy.
  if (ranks === 1 && op === "avg" && bytesOf(dtype) === 1) return planFolds(plan, "sum");
  if (accumulator === "float32")
    return { fold: symmetricFold(dtype), separate: undefined, accumulator };
  const separate = foldFor(dtype, op, ranks, "separate");
  if (rounding === "separate") return { fold: separate, separate: undefined, accumulator };
  const fold = foldFor(dtype, op, ranks, "fused");
  return { fold, separate: rounding === "byPosition" ? separate : undefined, accumulator };
}

/** Bytes after which positions repeat: the data that half a warp moves in one LL128 line. */
export const patternBytes = 960;

/** Packs of 16 bytes, within a pattern, that are fused whole; of the others the second 8 bytes are not. */
const wholePacks: readonly number[] = [7, 15, 23, 31];

/** The rounding of the hops of a call. */
export function hopRounding(dtype: DType, op: ReduceOp, protocol: NcclProtocol): HopRounding {
  const { kind, bytes } = dtypeInfo[dtype];
  const scales = op === "avg" || typeof op === "object";
  if (!scales || kind !== "float" || bytes === 1) return "none";
  if (protocol !== "LL128") return "fused";
  return bytes === 2 ? "separate" : "byPosition";
}

/** True if an element of a 4- or 8-byte float is fused over LL128, by its byte offset in its chunk. */
export function isFusedAt(byteOffset: number): boolean {
  const inPattern = byteOffset % patternBytes;
  return inPattern % 16 < 8 || wholePacks.includes(Math.floor(inPattern / 16));
}

const masks = new Map<number, Uint8Array>();

/** One pattern, by element: 1 where the product is rounded separately. */
export function separateMask(elementBytes: number): Uint8Array {
  let mask = masks.get(elementBytes);
  if (mask === undefined) {
    mask = Uint8Array.from({ length: patternBytes / elementBytes }, (_, i) =>
      isFusedAt(i * elementBytes) ? 0 : 1,
    );
    masks.set(elementBytes, mask);
  }
  return mask;
}

/**
 * Copies into `fused` the elements of `separate` that NCCL does not fuse. `first` is the position of element 0 of both in
 * its piece. Call it before `finish`, which can change the bits of a NaN.
 */
export function takeSeparate(
  fused: Lanes,
  separate: Lanes,
  count: number,
  elementBytes: number,
  first: number,
): void {
  const mask = separateMask(elementBytes);
  let at = first % mask.length;
  for (let i = 0; i < count; i++) {
    if (mask[at] === 1) fused[i] = separate[i] as number;
    at++;
    if (at === mask.length) at = 0;
  }
}

// A plan in the form that executors run: its folds, and the layout of their chunks.
//
// The folds follow directly from the plan's pieces. `fuse` reads the same list off the plan's program; the tests prove
// the two equal by association. Every piece of a block is one chunk, block after block.

/** The folds of a plan, one for each piece. */
export function ncclFused(plan: NcclPlan): FusedPlan {
  const perBlock = piecesPerBlock(plan);
  const groups = plan.pieces.map((piece, i) => [fusedFold(plan, piece, i % perBlock, perBlock)]);
  // In place, a fold reads no input that another fold's output overwrites.
  return { groups, inPlaceSafe: true, independent: true };
}

function fusedFold(plan: NcclPlan, piece: Piece, index: number, perBlock: number): FusedFold {
  const { collective, accumulator } = plan;
  const { reduces } = specifications[collective];
  const { block, order } = piece;
  const input = (collective === "reduceScatter" ? block * perBlock : 0) + index;
  // Symmetric kernels exchange raw values, which count as partials of one rank.
  const later = accumulator === "float32" ? "partial" : "contribution";
  return {
    operands: order.map((rank, i): Operand => {
      return { kind: i === 0 ? "contribution" : later, place: { rank, chunk: input } };
    }),
    final: reduces,
    reduces,
    targets: targetsOf(plan, block, index, perBlock),
  };
}

/** The output chunks of a piece. */
function targetsOf(plan: NcclPlan, block: number, index: number, perBlock: number): Place[] {
  const { collective, ranks, root } = plan;
  if (collective === "reduceScatter") return [{ rank: block, chunk: index }];
  if (collective === "reduce") return [{ rank: root, chunk: index }];
  const chunk = (collective === "allGather" ? block * perBlock : 0) + index;
  return Array.from({ length: ranks }, (_, rank) => ({ rank, chunk }));
}

/** Number of pieces of each block. */
export function piecesPerBlock({ pieces, collective, ranks }: NcclPlan): number {
  const blocks = collective === "reduceScatter" || collective === "allGather" ? ranks : 1;
  return pieces.length / blocks;
}

/** Chunk tables of every rank's buffers; equal ones are shared. */
export function ncclLayout(plan: NcclPlan): Layout {
  const { collective, ranks, root } = plan;
  const spec = specifications[collective];
  const tables = new Map<number, ChunkTable>();
  const table = (blocks: number): ChunkTable => {
    const known = tables.get(blocks) ?? blockTable(plan, blocks);
    tables.set(blocks, known);
    return known;
  };
  const everyRank = Array.from({ length: ranks }, (_, rank) => rank);
  return {
    in: everyRank.map((rank) => table(spec.inBlocks(ranks, rank, root))),
    out: everyRank.map((rank) => table(spec.outBlocks(ranks, rank, root))),
  };
}

/** The table of equally cut blocks. */
function blockTable(plan: NcclPlan, blocks: number): ChunkTable {
  const { pieces, count } = plan;
  const perBlock = piecesPerBlock(plan);
  const offsets = new Float64Array(blocks * perBlock);
  const lengths = new Float64Array(blocks * perBlock);
  for (let block = 0, chunk = 0; block < blocks; block++) {
    for (let i = 0; i < perBlock; i++, chunk++) {
      offsets[chunk] = block * count + (pieces[i]?.offset ?? 0);
      lengths[chunk] = pieces[i]?.length ?? 0;
    }
  }
  return { offsets, lengths };
}
