/** The element inspector: a table with a row for each hop, values and bits, and what was rounded. */
import type { ReduceOp } from "twinccl";
import type { Making } from "../data/association.ts";
import { html } from "../dom.ts";
import { bitFields, type Cell, hexText, valueText } from "../inspect/cell.ts";
import type { ElementReport, Hop, Operand } from "../inspect/hops.ts";
import { roundingText } from "../inspect/rounding.ts";
import { rankStyle } from "../theme.ts";
import { timeText } from "./time-text.ts";

/** The context of a report. */
export interface InspectorContext {
  readonly op: ReduceOp | undefined;
  readonly ranks: number;
  readonly endPs: number;
  /** The element as the executors left it, by name. */
  readonly results: readonly { readonly executor: string; readonly bits: bigint }[];
}

const signs = { sum: "+", avg: "+", prod: "×", min: "min", max: "max" } as const;

/** Shows a report. */
export function showInspector(
  room: HTMLElement,
  report: ElementReport | undefined,
  context: InspectorContext,
): void {
  if (report === undefined) {
    room.replaceChildren(
      html("p", { class: "quiet" }, "No element: the output of this rank is empty."),
    );
    return;
  }
  const { target, chunk, offset, length, order, making, hops, result } = report;
  const where =
    `Element ${count(target.element)} of rank ${target.rank} lies in chunk ${chunk}, ` +
    `elements ${count(offset)} to ${count(offset + length - 1)}.`;
  room.replaceChildren(html("p", { class: "quiet" }, where));
  if (context.op === undefined) {
    const text = html("p", {}, "A copy of the input of rank ", dots(order, context.ranks), ": ");
    text.append(cell(result));
    room.append(text, agreement(result, context));
    return;
  }
  const fold = html("p", { class: "order" }, "Folded as ");
  fold.append(formula(making, signOf(context.op), context.ranks));
  room.append(fold);
  if (hops.length > 0) room.append(table(hops, context.op, context));
  room.append(agreement(result, context));
}

function table(hops: readonly Hop[], op: ReduceOp, context: InspectorContext): HTMLElement {
  const head = ["hop", "where", "running value", "", "contribution", "result", "rounding"];
  const body = html("tbody");
  hops.forEach((hop, i) => {
    body.append(row(hop, i, op, context));
  });
  const names = html("tr", {}, ...head.map((name) => html("th", { scope: "col" }, name)));
  const whole = html("table", { class: "hops" }, html("thead", {}, names), body);
  const room = {
    class: "table-room",
    tabindex: 0,
    role: "region",
    "aria-label": "Hops of the element",
  };
  return html("div", room, whole);
}

function row(hop: Hop, i: number, op: ReduceOp, context: InspectorContext): HTMLTableRowElement {
  const { left, right, result, birth, kind, isContribution } = hop;
  const { ranks, endPs } = context;
  const where = html("td");
  if (birth !== undefined) {
    where.append(
      dots([birth.rank], ranks),
      html("span", { class: "quiet" }, ` ${timeText(birth.atPs, endPs)}`),
    );
  }
  const scales = op === "avg" || typeof op === "object";
  const factor = typeof op === "object" ? `× ${op.preMul}` : `× 1/${ranks}`;
  const isFloat = typeof result.cell.value === "number";
  const scaled = scales && isContribution && (isFloat || typeof op === "object");
  const sign = kind === "finish" ? "→" : kind === "begin" ? factor : signOf(op);
  return html(
    "tr",
    {},
    html("th", { scope: "row" }, `${i + 1}`),
    where,
    html("td", {}, operand(left, ranks)),
    html("td", { class: "sign" }, sign),
    html(
      "td",
      {},
      ...(right === undefined ? [] : [operand(right, ranks)]),
      ...(scaled && right !== undefined ? [html("span", { class: "quiet" }, ` ${factor}`)] : []),
    ),
    html("td", { class: "result" }, cell(result.cell)),
    html("td", { class: "rounding" }, roundingText(hop, op, ranks)),
  );
}

function operand({ order, cell: value }: Operand, ranks: number): HTMLElement {
  return html("span", { class: "operand" }, dots(order, ranks), cell(value));
}

/** A value with its bits below. */
function cell(value: Cell): HTMLElement {
  const fields = bitFields(value);
  const bits = html("span", { class: "bits" });
  if (fields === undefined || value.dtype === "float64") bits.append(hexText(value));
  else {
    const [sign, exponent, fraction] = fields;
    bits.append(
      html("i", { class: "sign-bit" }, sign),
      html("i", { class: "exponent" }, exponent),
      html("i", { class: "fraction" }, fraction),
    );
  }
  return html(
    "span",
    { class: "cell", title: hexText(value) },
    html("span", { class: "value" }, valueText(value)),
    bits,
  );
}

/** Ranks as coloured dots, with the order in words too. */
function dots(order: readonly number[], ranks: number): HTMLElement {
  const room = html("span", { class: order.length > 1 ? "dots many" : "dots" });
  room.append(html("span", { class: "unseen" }, order.map((rank) => `r${rank}`).join(" + ")));
  for (const rank of order) {
    const style = `--rank: ${rankStyle(rank, ranks)}`;
    room.append(html("b", { style, "aria-hidden": "true" }, order.length > 1 ? "" : `${rank}`));
  }
  return room;
}

/** The fold as it is bracketed: a chain from left to right, a fold of its own in brackets. */
function formula(making: Making, sign: string, ranks: number): HTMLElement {
  const room = html("span", { class: "formula" });
  const write = (at: Making): void => {
    if (at.kind === "leaf") {
      const style = `--rank: ${rankStyle(at.rank, ranks)}`;
      room.append(html("span", { class: "chip", style }, `r${at.rank}`));
    } else if (at.kind === "fold") {
      write(at.acc);
      room.append(` ${sign} `);
      const own = unwrapped(at.next).kind === "fold";
      if (own) room.append("(");
      write(at.next);
      if (own) room.append(")");
    } else write(at.of);
  };
  write(making);
  return room;
}

function unwrapped(making: Making): Making {
  return making.kind === "begin" || making.kind === "finish" ? unwrapped(making.of) : making;
}

/** Compares the executors' bits with those of the hops. */
function agreement(result: Cell, { results }: InspectorContext): HTMLElement {
  const same = results.filter(({ bits }) => bits === result.bits).map(({ executor }) => executor);
  const others = results.filter(({ bits }) => bits !== result.bits);
  const text =
    others.length === 0
      ? `The same bits on ${same.join(", ")}: ${hexText(result)}.`
      : `The hops give ${hexText(result)}, but ${others.map(({ executor, bits }) => `${executor} gives ${hexText({ ...result, bits })}`).join(", ")}.`;
  return html("p", { class: others.length === 0 ? "agrees" : "differs" }, text);
}

function signOf(op: ReduceOp): string {
  return typeof op === "object" ? "+" : signs[op];
}

function count(n: number): string {
  return n.toLocaleString("en");
}
