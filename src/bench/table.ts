/** Results as text: the table of fixed width that nccl-tests prints, with `#` before all other lines, and CSV. */
import { assertArgument, assertInteger, hasFields } from "../algorithms/arguments.ts";
import { countText } from "../api/error-text.ts";
import { assertOptions } from "../api/option-kinds.ts";
import {
  assertResult,
  assertResults,
  averageBusBandwidth,
  type BenchResult,
  type Measurement,
  type Tally,
  tally,
} from "./document.ts";

/** Columns and words of a table that depend on the measurement. */
export interface TableStyle {
  /** Times are this process's, and a column of predicted, virtual time follows. */
  readonly simulated: boolean;
  /** Calls were timed alone: their 99th percentile replaces the bandwidths. */
  readonly latency?: boolean | undefined;
}

function assertStyle(subject: string, style: TableStyle): void {
  const kinds = { simulated: "boolean", latency: "boolean" } as const;
  assertOptions<TableStyle>(subject, style, kinds, { path: "style" });
}

/**
 * The two groups of columns and their units.
 *
 * @throws InvalidArgumentError for another style.
 */
export function tableHead(style: TableStyle): string {
  assertStyle("tableHead", style);
  const { simulated, latency = false } = style;
  const group = latency ? ["median", "p99", "", "#wrong"] : ["time", "algbw", "busbw", "#wrong"];
  const units = latency ? ["(us)", "(us)", "", ""] : ["(us)", "(GB/s)", "(GB/s)", ""];
  const title = (text: string): string =>
    centred(simulated ? `${text} (simulated, in process)` : text, sum(groupWidths));
  return [
    " ".repeat(sum(firstWidths)) + title("out-of-place") + title("in-place"),
    line(["size", "count", "type", "redop", "root"], group, group, simulated ? "predicted" : ""),
    line(["(B)", "(elements)", "", "", ""], units, units, simulated ? "(us, virtual)" : ""),
  ]
    .map((text) => `#${text.slice(1).trimEnd()}\n`)
    .join("");
}

/**
 * One result.
 *
 * @throws InvalidArgumentError for what is no result.
 */
export function tableRow(result: BenchResult): string {
  assertResult("tableRow", "result", result);
  const { size, count, type, redop, root, out_of_place, in_place, predicted_us } = result;
  const first = [`${size}`, `${count}`, type, redop, `${root}`];
  const predicted = predicted_us === null ? "" : timeText(predicted_us);
  return `${line(first, cells(out_of_place), cells(in_place), predicted).trimEnd()}\n`;
}

/**
 * Wrong elements and the average bus bandwidth.
 *
 * @throws InvalidArgumentError for what is no result, and another style.
 */
export function tableFoot(results: readonly BenchResult[], style: TableStyle): string {
  assertResults("tableFoot", results);
  assertStyle("tableFoot", style);
  const { simulated, latency = false } = style;
  const { wrong, results: checked } = tally(results);
  const verdict = checked === 0 ? "not checked" : `${wrong} ${wrong === 0 ? "OK" : "FAILED"}`;
  const average = `${averageBusBandwidth(results).toPrecision(6)}`;
  return [
    `# Out of bounds values : ${verdict}`,
    ...(latency
      ? []
      : [`# Avg bus bandwidth    : ${average} GB/s${simulated ? " (simulated, in process)" : ""}`]),
    "#",
    "",
  ].join("\n");
}

/**
 * `checked 1,234,567 elements of 84 results on 8 ranks: 0 wrong`.
 *
 * @throws InvalidArgumentError for what is no tally, and no number of ranks.
 */
export function tallyText(sums: Tally, ranks: number): string {
  const isTally = hasFields(sums, { elements: "number", results: "number", wrong: "number" });
  assertArgument(isTally, "tallyText", "sums", sums, "a tally");
  assertInteger("tallyText", "ranks", ranks, 1, Number.MAX_SAFE_INTEGER);
  const { elements, results, wrong } = sums;
  const count = (value: number): string => value.toLocaleString("en-US");
  return `checked ${count(elements)} elements of ${count(results)} results on ${countText(ranks, "rank")}: ${count(wrong)} wrong`;
}

function cells(measurement: Measurement | null): string[] {
  if (measurement === null) return ["-", "-", "-", "-"];
  const { time, p99, alg_bw, bus_bw, nwrong } = measurement;
  const figures = p99 === undefined ? [alg_bw.toFixed(2), bus_bw.toFixed(2)] : [timeText(p99), ""];
  return [timeText(time), ...figures, nwrong === null ? "N/A" : `${nwrong}`];
}

/** Fewer decimals for longer times, as in nccl-tests. */
function timeText(us: number): string {
  return us.toFixed(us >= 10_000 ? 0 : us >= 100 ? 1 : 2);
}

const firstWidths = [12, 13, 11, 7, 7];
const groupWidths = [11, 9, 9, 8];

function line(
  first: readonly string[],
  outOfPlace: readonly string[],
  inPlace: readonly string[],
  last: string,
): string {
  const padded = (texts: readonly string[], widths: readonly number[]): string =>
    texts.map((text, column) => text.padStart(widths[column] ?? 0)).join("");
  return [
    padded(first, firstWidths),
    padded(outOfPlace, groupWidths),
    padded(inPlace, groupWidths),
    last === "" ? "" : last.padStart(15),
  ].join("");
}

function sum(widths: readonly number[]): number {
  return widths.reduce((total, width) => total + width, 0);
}

function centred(text: string, width: number): string {
  const before = Math.floor((width - text.length) / 2);
  return text.padStart(before + text.length).padEnd(width);
}

type Cell = string | number | null;

type Column = readonly [name: string, cell: (result: BenchResult) => Cell];

const columns: readonly Column[] = [
  ["collective", ({ collective }) => collective],
  ["backend", ({ backend }) => backend],
  ["ranks", ({ ranks }) => ranks],
  ["algorithm", ({ algorithm }) => algorithm],
  ["size", ({ size }) => size],
  ["count", ({ count }) => count],
  ["type", ({ type }) => type],
  ["redop", ({ redop }) => redop],
  ["root", ({ root }) => root],
  ...placement("out_of_place", (result) => result.out_of_place),
  ...placement("in_place", (result) => result.in_place),
  ["predicted_us", ({ predicted_us }) => predicted_us],
];

function placement(
  name: string,
  of: (result: BenchResult) => Measurement | null,
): [string, (result: BenchResult) => Cell][] {
  return (["time", "alg_bw", "bus_bw", "nwrong"] as const).map((figure) => [
    `${name}_${figure}`,
    (result) => of(result)?.[figure] ?? null,
  ]);
}

/** Only where calls were timed alone. */
const latencyColumns: readonly Column[] = [
  ["out_of_place_p99", ({ out_of_place }) => out_of_place.p99 ?? null],
  ["in_place_p99", ({ in_place }) => in_place?.p99 ?? null],
];

/** A cell in RFC 4180's form: in quotes where its text would end the cell or the line. */
function csvCell(cell: Cell): string {
  const text = `${cell ?? ""}`;
  return /[",\r\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
}

/**
 * The results as CSV; missing values are empty cells.
 *
 * @throws InvalidArgumentError for what is no result.
 */
export function toCsv(results: readonly BenchResult[]): string {
  assertResults("toCsv", results);
  const hasLatency = results.some(({ out_of_place }) => out_of_place.p99 !== undefined);
  const all = hasLatency ? [...columns, ...latencyColumns] : columns;
  const rows = results.map((result) => all.map(([, cell]) => csvCell(cell(result))));
  return [all.map(([name]) => name), ...rows].map((cells) => `${cells.join(",")}\n`).join("");
}
