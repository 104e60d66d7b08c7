/**
 * A plan as folds, straight from its pieces: what an executor runs.
 *
 * It is the same list that `fuse` reads off the plan's program, found without running that program; the tests prove
 * the two equal by association.
 */
import { specifications } from "../../api/collectives/index.ts";
import type { FusedFold, FusedPlan, Operand, Place } from "../fuse.ts";
import { piecesPerBlock } from "./layout.ts";
import type { NcclPlan, Piece } from "./plan-shape.ts";

/** The folds of a plan, one for each piece. */
export function ncclFused(plan: NcclPlan): FusedPlan {
  const perBlock = piecesPerBlock(plan);
  const groups = plan.pieces.map((piece, i) => [fusedFold(plan, piece, i % perBlock, perBlock)]);
  // A fold reads, of the inputs that outputs may lie on, only those that its own outputs lie on.
  return { groups, inPlaceSafe: true, independent: true };
}

function fusedFold(plan: NcclPlan, piece: Piece, index: number, perBlock: number): FusedFold {
  const { collective, accumulator } = plan;
  const { reduces } = specifications[collective];
  const { block, order } = piece;
  const input = (collective === "reduceScatter" ? block * perBlock : 0) + index;
  // Symmetric kernels hand raw values around, which count as partials of one rank.
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

/** Where a piece of an output block ends up. */
function targetsOf(plan: NcclPlan, block: number, index: number, perBlock: number): Place[] {
  const { collective, ranks, root } = plan;
  if (collective === "reduceScatter") return [{ rank: block, chunk: index }];
  if (collective === "reduce") return [{ rank: root, chunk: index }];
  const chunk = (collective === "allGather" ? block * perBlock : 0) + index;
  return Array.from({ length: ranks }, (_, rank) => ({ rank, chunk }));
}
