/** A plan in few lines: its channels, and which orders the elements are folded in. */
import { bytesOf } from "../../api/dtype.ts";
import { alignedTable } from "../../api/error-text.ts";
import { operatorSign } from "./hops.ts";
import type { ChannelPlan, NcclPlan, PlannedPart } from "./plan-types.ts";

/** Tables of at most some dozens of lines, however large the call is. */
export function planOutline(plan: NcclPlan): string[] {
  const channels = plan.algorithm === "Ring" || plan.algorithm === "Tree" ? channelTable(plan) : [];
  return [...channels, ...orderTable(plan)];
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
    const largest = Math.min(chunk, perLoop === 1 ? length : lastChunk(plan, length, perLoop));
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
  const of = plan.collective === "allGather" || plan.collective === "reduceScatter";
  const head = ["channel", of ? "elements of a block" : "elements"];
  const table = [[...head, "of each", "chunk", "a loop", "loops"], ...rows];
  return ["", "channels", ...indented(table)];
}

/** Elements of a chunk in a loop that is not full. */
function lastChunk({ dtype }: ChannelPlan, length: number, ranks: number): number {
  const step = 16 / bytesOf(dtype);
  return Math.ceil(Math.ceil(length / ranks) / step) * step;
}

function orderTable(plan: NcclPlan): string[] {
  const rows = new Map<string, { block: number; elements: number; pieces: number; fold: string }>();
  const sign = plan.op === undefined ? "" : ` ${operatorSign(plan)} `;
  for (const { block, length, order } of plan.pieces) {
    if (length === 0) continue;
    const key = `${block}/${order.join()}`;
    const row = rows.get(key);
    const fold = sign === "" ? `copy of r${order[0]}` : order.map((rank) => `r${rank}`).join(sign);
    if (row === undefined) rows.set(key, { block, elements: length, pieces: 1, fold });
    else {
      row.elements += length;
      row.pieces++;
    }
  }
  if (rows.size === 0) return [];
  const byBlock = plan.collective === "reduceScatter" || plan.collective === "allGather";
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

function rangeText(first: number, last: number): string {
  return first === last ? `${first}` : `${first}..${last}`;
}

function indented(rows: readonly (readonly string[])[]): string[] {
  return alignedTable(rows).map((line) => `  ${line}`);
}
