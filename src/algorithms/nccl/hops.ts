/** The hops of one element in words: which rank's contribution is folded when, and what is rounded there. */
import { bytesOf, dtypeInfo } from "../../api/dtype.ts";
import { elementPlan } from "./explain.ts";
import type { NcclPlan } from "./plan-types.ts";

/** A line for each rank of the fold order, and one more where the end does something. */
export function elementHops(plan: NcclPlan, element: number, block = 0): string[] {
  const { order } = elementPlan(plan, element, block).piece;
  if (plan.op === undefined) return [`copy of r${order[0]}`];
  const hop = hopText(plan, element, block);
  return [...order.map((rank, i) => hop(rank, i === 0)), ...endings(plan)];
}

/** The sign of an operator between two operands. */
export function operatorSign({ op }: NcclPlan): string {
  if (op === "prod") return "×";
  return op === "min" || op === "max" ? op : "+";
}

function hopText(
  plan: NcclPlan,
  element: number,
  block: number,
): (rank: number, first: boolean) => string {
  const { dtype, op, accumulator, ranks } = plan;
  const sign = operatorSign(plan);
  const joined = (rank: number, first: boolean): string =>
    first ? `r${rank}` : `${sign} r${rank}`;
  if (dtypeInfo[dtype].kind !== "float") {
    const wraps = `exact modulo 2^${8 * bytesOf(dtype)}`;
    const how = op === "min" || op === "max" ? "exact" : wraps;
    const factor = typeof op === "object" ? " × scalar" : "";
    return (rank, first) =>
      first && factor === "" ? `r${rank}` : `${joined(rank, first)}${factor}: ${how}`;
  }
  if (op === "min" || op === "max") {
    return (rank, first) => (first ? `r${rank}` : `${joined(rank, first)}: exact`);
  }
  if (op !== "avg" && typeof op !== "object") {
    const width = accumulator === "float32" ? "float32" : dtype;
    return (rank, first) => (first ? `r${rank}` : `${joined(rank, first)}: rounded to ${width}`);
  }
  const factor = op === "avg" ? `1/${ranks}` : "scalar";
  const fused = elementPlan(plan, element, block).rounding === "fused";
  const how = fused
    ? `product and sum rounded once to ${dtype}`
    : `product rounded to ${dtype}, then the sum`;
  return (rank, first) =>
    first ? `r${rank} × ${factor}: rounded to ${dtype}` : `+ r${rank} × ${factor}: ${how}`;
}

/** The step after the last rank. */
function endings({ dtype, op, accumulator, ranks }: NcclPlan): string[] {
  if (accumulator === "float32" && dtype !== "float32") return [`rounded to ${dtype}`];
  const divides = op === "avg" && dtypeInfo[dtype].kind !== "float";
  return divides ? [`÷ ${ranks}: toward zero`] : [];
}
