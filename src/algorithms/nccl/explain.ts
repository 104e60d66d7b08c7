/** A plan in words: the account of one element with its hops, and the outline of all channels and orders. */
import { bytesOf, dtypeInfo } from "../../api/dtype.ts";
import { alignedTable, countText } from "../../api/error-text.ts";
import { InvalidArgumentError } from "../../api/errors.ts";
import type { NamedReduceOp, ReduceOp } from "../../api/reduce-op.ts";
import { assertIndex } from "../program.ts";
import { type FoldOrder, firstOf, orderText } from "./fold-order.ts";
import { lastChunk } from "./pieces.ts";
import { isFusedAt } from "./plan.ts";
import type { ChannelPlan, NcclPlan, Piece, PlannedPart } from "./plan-types.ts";
import { assertPlan, blocksOf } from "./rules.ts";
import type { Tree } from "./topology.ts";

/** The rounding of the products of an element's pre-multiplied contributions; `none` where there are none. */
export type ElementRounding = "none" | "fused" | "separate";

/** The piece that holds an element, and the element's hops. */
export interface ElementPlan {
  /** Element within its block. */
  readonly element: number;
  readonly piece: Piece;
  readonly rounding: ElementRounding;
  /** False where NCCL's own result depends on an uninitialised register. */
  readonly defined: boolean;
}

/** The plan of element `element` of output block `block`. */
export function elementPlan(plan: NcclPlan, element: number, block = 0): ElementPlan {
  assertPlan("elementPlan", plan);
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
 * @throws InvalidArgumentError for an element or a block that the plan does not have.
 */
export function pieceAt(plan: NcclPlan, element: number, block = 0): Piece {
  assertPlan("pieceAt", plan);
  assertIndex("explain", "element", element);
  assertIndex("explain", "block", block);
  const { pieces, count } = plan;
  let low = 0;
  let high = pieces.length - 1;
  while (low <= high) {
    const middle = (low + high) >> 1;
    const piece = pieces[middle] as Piece;
    if (isBefore(piece, element, block)) low = middle + 1;
    else if (isAfter(piece, element, block)) high = middle - 1;
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
  assertPlan("elementText", plan);
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
    `fold order ${orderText(order, ", ")}`,
    roundingText(plan, rounding),
    ...(defined ? [] : ["NCCL does not define this result: a defect of its LL kernel"]),
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

function isBefore(
  { block, offset, length }: Piece,
  element: number,
  elementBlock: number,
): boolean {
  return block < elementBlock || (block === elementBlock && offset + length <= element);
}

function isAfter({ block, offset }: Piece, element: number, elementBlock: number): boolean {
  return block > elementBlock || offset > element;
}

// The hops of one element in words: the order of the ranks' contributions, and the rounding of each.

/** A line for each rank of the fold order, and one more for a final operation. */
export function elementHops(plan: NcclPlan, element: number, block = 0): string[] {
  assertPlan("elementHops", plan);
  const { order } = elementPlan(plan, element, block).piece;
  if (plan.op === undefined) return [`copy of r${firstOf(order)}`];
  const hop = hopText(plan, element, block);
  return [...order.map((each, i) => hop(each, i === 0)), ...finishSteps(plan)];
}

const operatorSigns: Readonly<Record<NamedReduceOp, string>> = {
  sum: "+",
  prod: "×",
  min: "min",
  max: "max",
  avg: "+",
};

/** The sign of an operator between two operands. */
export function operatorSign(op: ReduceOp | undefined): string {
  return typeof op === "string" ? operatorSigns[op] : "+";
}

function hopText(
  plan: NcclPlan,
  element: number,
  block: number,
): (operand: FoldOrder[number], first: boolean) => string {
  const { dtype, op, accumulator, ranks } = plan;
  const sign = operatorSign(op);
  const joined = (operand: FoldOrder[number], first: boolean, factor = ""): string => {
    const text = orderText([operand], ` ${sign} `, factor);
    return first ? text : `${sign} ${text}`;
  };
  if (dtypeInfo[dtype].kind !== "float") {
    const wraps = `exact modulo 2^${8 * bytesOf(dtype)}`;
    const how = op === "min" || op === "max" ? "exact" : wraps;
    const factor = typeof op === "object" ? " × scalar" : "";
    return (operand, first) => {
      const text = joined(operand, first, factor);
      return first && factor === "" ? text : `${text}: ${how}`;
    };
  }
  if (op === "min" || op === "max") {
    return (operand, first) => `${joined(operand, first)}${first ? "" : ": exact"}`;
  }
  if (op !== "avg" && typeof op !== "object") {
    const width = accumulator === "float32" ? "float32" : dtype;
    return (operand, first) => `${joined(operand, first)}${first ? "" : `: rounded to ${width}`}`;
  }
  const factor = op === "avg" ? ` × 1/${ranks}` : " × scalar";
  const fused = elementPlan(plan, element, block).rounding === "fused";
  const how = fused
    ? `product and sum rounded once to ${dtype}`
    : `product rounded to ${dtype}, then the sum`;
  return (operand, first) => {
    const text = joined(operand, first, factor);
    // A value that was folded before is added as it is.
    return `${text}: ${first || typeof operand !== "number" ? `rounded to ${dtype}` : how}`;
  };
}

/** The step after the last rank. */
function finishSteps({ dtype, op, accumulator, ranks }: NcclPlan): string[] {
  if (accumulator === "float32" && dtype !== "float32") return [`rounded to ${dtype}`];
  const divides = op === "avg" && dtypeInfo[dtype].kind !== "float";
  return divides ? [`÷ ${ranks}: toward zero`] : [];
}

// A plan in few lines: its channels, and its fold orders with their elements.

/** Tables of at most some dozens of lines, for calls of any size. */
export function planOutline(plan: NcclPlan): string[] {
  assertPlan("planOutline", plan);
  if (!("paths" in plan)) return orderTable(plan);
  const trees = plan.algorithm === "Tree" ? treeLines(plan) : [];
  return [...channelTable(plan), ...trees, ...orderTable(plan)];
}

/** Channels with parts of the same length and chunk share a line. */
function channelTable(plan: ChannelPlan): string[] {
  const groups: PlannedPart[][] = [];
  for (const part of plan.parts) {
    const group = groups.at(-1);
    if (group?.[0]?.length === part.length && group[0].chunk === part.chunk) group.push(part);
    else groups.push([part]);
  }
  if (groups.length === 0) return [];
  const perLoop = plan.collective === "allReduce" && plan.algorithm === "Ring" ? plan.ranks : 1;
  const rows = groups.map((group) => {
    const [first, last] = [group[0], group.at(-1)] as [PlannedPart, PlannedPart];
    const { length, chunk } = first;
    const largest = Math.min(
      chunk,
      perLoop === 1 ? length : lastChunk(length, perLoop, bytesOf(plan.dtype)),
    );
    const loops = Math.ceil(length / (perLoop * chunk));
    return [
      rangeText(first.channel, last.channel),
      rangeText(first.offset, last.offset + last.length - 1),
      `${length}`,
      `${loops === 1 ? largest : chunk}`,
      `${perLoop}`,
      `${loops}`,
    ];
  });
  const head = ["channel", hasBlocks(plan) ? "elements of a block" : "elements"];
  const table = [[...head, "of each", "chunk", "a loop", "loops"], ...rows];
  return ["", "channels", ...indented(table)];
}

/** Hosts that are drawn of one tree, and trees of one plan. */
const maxDrawn = 64;
const maxTrees = 4;

/** The different trees of a plan over hosts, each after its channels; on one host they are chains. */
function treeLines(plan: ChannelPlan): string[] {
  const { paths, channels, nodes } = plan;
  if (nodes === 1) return [];
  const users = new Map<Tree, number[]>();
  for (let channel = 0; channel < channels; channel++) {
    const { tree } = paths[channel] as ChannelPlan["paths"][number];
    users.set(tree, [...(users.get(tree) ?? []), channel]);
  }
  const trees = [...users].map(([tree, of], i) => [
    "",
    `tree ${users.size > 2 ? i + 1 : "AB"[i]}: ${of.length === 1 ? "channel" : "channels"} ${rangesText(of)}`,
    ...drawn(plan, tree).map((line) => `  ${line}`),
  ]);
  if (trees.length <= maxTrees) return trees.flat();
  // Trees A come before trees B: the first ones of both halves are of both kinds.
  const half = Math.ceil(trees.length / 2);
  const shown = [0, 1, half, half + 1].flatMap((i) => trees[i] as string[]);
  return [...shown, "", `${trees.length - maxTrees} more trees over other chains of GPUs`];
}

/** A line for each host: its chain of ranks from the root on, below the host that takes its value. */
function drawn(plan: ChannelPlan, { root, children }: Tree): string[] {
  const hosts = hostsOf(plan);
  const hasChains = plan.nodes < plan.ranks;
  const lines: string[] = [];
  const draw = (rank: number, target: number | undefined, head: string, indent: string): void => {
    if (lines.length >= maxDrawn) return;
    const host = hosts[rank];
    const chain = [rank];
    for (let at = rank; hosts[children[at]?.[0] ?? -1] === host; at = chain.at(-1) as number) {
      chain.push(children[at]?.[0] as number);
    }
    const ranks = chain.map((each) => `r${each}`).join(" ← ");
    const into = target === undefined ? "" : ` into r${target}`;
    lines.push(hasChains ? `${head}host ${host}: ${ranks}${into}` : `${head}${ranks}`);
    const below = chain.flatMap((each) =>
      (children[each] ?? []).filter((child) => hosts[child] !== host).map((child) => [child, each]),
    ) as [number, number][];
    below.forEach(([child, each], i) => {
      const isLast = i === below.length - 1;
      draw(child, each, `${indent}${isLast ? "└─ " : "├─ "}`, `${indent}${isLast ? "   " : "│  "}`);
    });
  };
  draw(root, undefined, "", "");
  const hidden = plan.nodes - lines.length;
  return hidden === 0 ? lines : [...lines, `${hidden} more ${hasChains ? "hosts" : "ranks"}`];
}

/** The host of every rank. */
function hostsOf({ ranks, nodes, nodeSizes }: ChannelPlan): number[] {
  return Array.from({ length: nodes }, (_, node) =>
    new Array<number>(nodeSizes?.[node] ?? ranks / nodes).fill(node),
  ).flat();
}

/** Ascending numbers as `0..3, 8`. */
function rangesText(numbers: readonly number[]): string {
  const ranges: [number, number][] = [];
  for (const number of numbers) {
    const last = ranges.at(-1);
    if (last?.[1] === number - 1) last[1] = number;
    else ranges.push([number, number]);
  }
  return ranges.map(([first, last]) => rangeText(first, last)).join(", ");
}

/** Contributions in a table of orders, at most; a larger one would fill screens. */
const maxContributions = 4096;

function orderTable(plan: NcclPlan): string[] {
  const distinct = new Set(plan.pieces.map(({ order }) => order)).size;
  if (plan.op !== undefined && distinct * plan.ranks > maxContributions) {
    const orders = countText(distinct, "fold order");
    return ["", `${orders}: chunkOf(element) tells that of an element`];
  }
  const rows = new Map<string, { block: number; elements: number; pieces: number; fold: string }>();
  const sign = plan.op === undefined ? "" : ` ${operatorSign(plan.op)} `;
  for (const { block, length, order } of plan.pieces) {
    if (length === 0) continue;
    const fold = sign === "" ? `copy of r${firstOf(order)}` : orderText(order, sign);
    const key = `${block}/${fold}`;
    const row = rows.get(key);
    if (row === undefined) rows.set(key, { block, elements: length, pieces: 1, fold });
    else {
      row.elements += length;
      row.pieces++;
    }
  }
  if (rows.size === 0) return [];
  const byBlock = hasBlocks(plan);
  const table = [...rows.values()].map(({ block, elements, pieces, fold }) => [
    ...(byBlock ? [`${block}`] : []),
    `${elements}`,
    `${pieces}`,
    fold,
  ]);
  const head = [...(byBlock ? ["block"] : []), "elements", "pieces"];
  return [
    "",
    plan.op === undefined ? "where elements come from" : "fold orders, each from left to right",
    ...indented([[...head, plan.op === undefined ? "value" : "fold"], ...table]),
  ];
}

/** True for a call with a block for each rank. */
function hasBlocks({ collective }: NcclPlan): boolean {
  return blocksOf(collective, 2) > 1;
}

function rangeText(first: number, last: number): string {
  return first === last ? `${first}` : `${first}..${last}`;
}

function indented(rows: readonly (readonly string[])[]): string[] {
  return alignedTable(rows).map((line) => `  ${line}`);
}
