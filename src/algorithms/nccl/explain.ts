/** A plan's account of one element, for readers. */
import { bytesOf, dtypeInfo } from "../../api/dtype.ts";
import { InvalidArgumentError } from "../../api/errors.ts";
import { assertIndex } from "../limits.ts";
import { isFusedAt } from "./folds.ts";
import type { NcclPlan, Piece } from "./plan-types.ts";

/** The rounding of the products of an element's pre-multiplied contributions; `none` where there are none. */
export type ElementRounding = "none" | "fused" | "separate";

/** The piece an element lies in, and what happens to it there. */
export interface ElementPlan {
  /** Element within its block. */
  readonly element: number;
  readonly piece: Piece;
  readonly rounding: ElementRounding;
  /** False where NCCL's own result hangs on what a register happened to hold. */
  readonly defined: boolean;
}

/** The plan of element `element` of output block `block`. */
export function elementPlan(plan: NcclPlan, element: number, block = 0): ElementPlan {
  const piece = pieceAt(plan, element, block);
  return {
    element,
    piece,
    rounding: roundingAt(plan, element - piece.offset),
    defined: !plan.undefinedBlocks.includes(block),
  };
}

/**
 * The piece that holds an element; found by bisection.
 *
 * @throws InvalidArgumentError for an element or a block that is no index, or that the plan does not have.
 */
export function pieceAt({ pieces, count }: NcclPlan, element: number, block = 0): Piece {
  assertIndex("explain", "element", element);
  assertIndex("explain", "block", block);
  let low = 0;
  let high = pieces.length - 1;
  while (low <= high) {
    const middle = (low + high) >> 1;
    const piece = pieces[middle] as Piece;
    if (before(piece, element, block)) low = middle + 1;
    else if (after(piece, element, block)) high = middle - 1;
    else return piece;
  }
  const headline = `explain: found element ${element} of block ${block}; the blocks hold ${count}`;
  throw new InvalidArgumentError({ headline }, { field: "element" });
}

/** The rounding of the hops of an element, by its position in its piece. */
export function roundingAt({ rounding, dtype }: NcclPlan, position: number): ElementRounding {
  if (rounding !== "byPosition") return rounding;
  return isFusedAt(position * bytesOf(dtype)) ? "fused" : "separate";
}

/** An element's plan in words. */
export function elementText(plan: NcclPlan, element: number, block = 0): string {
  const { piece, rounding, defined } = elementPlan(plan, element, block);
  const { channel, loop, chunk, offset, length, order } = piece;
  const where =
    plan.algorithm === "Copy"
      ? "one rank"
      : plan.algorithm === "Symmetric"
        ? `range ${chunk}`
        : `channel ${channel}, loop ${loop}, chunk ${chunk}`;
  const range = `elements ${offset}..${offset + length - 1}`;
  return [
    `element ${element}: ${where} (${range})`,
    `fold order ${order.map((rank) => `r${rank}`).join(", ")}`,
    roundingText(plan, rounding),
    ...(defined ? [] : ["NCCL does not define this result: misaligned loads of its LL kernel"]),
  ].join("; ");
}

function roundingText({ accumulator, dtype, op }: NcclPlan, rounding: ElementRounding): string {
  if (op === undefined) return "copied";
  if (op === "min" || op === "max") return "exact: one of the contributions";
  if (accumulator === "float32" && dtype !== "float32") {
    return `accumulated in float32, rounded to ${dtype} once`;
  }
  if (rounding === "fused") return "product and sum of a hop rounded once";
  if (rounding === "separate") return "product and sum of a hop rounded separately";
  return dtypeInfo[dtype].kind === "float"
    ? "rounded at every hop"
    : "exact in the integer's width";
}

function before({ block, offset, length }: Piece, element: number, wanted: number): boolean {
  return block < wanted || (block === wanted && offset + length <= element);
}

function after({ block, offset }: Piece, element: number, wanted: number): boolean {
  return block > wanted || offset > element;
}
