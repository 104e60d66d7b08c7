/**
 * Draws a trace as a timeline in virtual time: one band per rank, with its ports and its work, and arrows for messages.
 *
 * A self-contained SVG that follows the reader's light or dark preference.
 */
import { largest } from "../../api/largest.ts";

/** The least left margin; longer process names widen it. */
const least = 64;
const width = 960;
const rowHeight = 14;
const bandGap = 10;
const top = 28;

/** Rows of a rank's band, as the trace numbers them: calls, out, in, work. */
const rowNames = ["calls", "out", "in", "work"] as const;

/** Scheme-aware colours: calls, sending port, receiving port, work. */
const style = `
  text { font: 11px system-ui, sans-serif; fill: #444 }
  .calls { fill: #cfd8e3 } .out { fill: #3b82c4 } .in { fill: #2f9e6e } .work { fill: #d99a2b }
  .grid { stroke: #e3e3e3 } .message { stroke: #888; stroke-width: .7; fill: none }
  @media (prefers-color-scheme: dark) {
    text { fill: #bbb } .calls { fill: #39424e } .grid { stroke: #333 } .message { stroke: #777 }
  }`;

/** The background of failed calls, readable in light and dark themes. */
const failedStyle = `
  .failed { fill: #c0392b }`;

interface Span {
  readonly pid: number;
  readonly row: number;
  readonly name: string;
  readonly failed: boolean;
  readonly begin: number;
  readonly end: number;
}

/** The SVG of the events of `Trace.toChrome`. */
export function timelineSvg(events: readonly ChromeEvent[], title: string): string {
  const spans = events.filter(({ ph }) => ph === "X").map(spanOf);
  const bands = new Map<number, string>();
  for (const { name, pid, args } of events) {
    if (name === "process_name") bands.set(pid, String(args?.["name"]));
  }
  const left = largest(
    Array.from(bands.values(), ({ length }) => 16 + 6 * length),
    least,
  );
  const order = new Map([...bands.keys()].map((pid, at) => [pid, at]));
  const end = largest(
    spans.map((span) => span.end),
    1e-9,
  );
  const used = rowNames.map((_, row) => spans.some((span) => span.row === row));
  const rows = used.filter(Boolean).length;
  const band = rows * rowHeight + bandGap;
  const height = top + bands.size * band + 22;
  const x = (time: number): number => left + (time / end) * (width - left - 16);
  const y = (pid: number, row: number): number =>
    top + (order.get(pid) ?? 0) * band + used.slice(0, row).filter(Boolean).length * rowHeight;
  return [
    `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 ${width} ${height}" role="img">`,
    `<title>${escaped(title)}</title>`,
    `<style>${style}${spans.some(({ failed }) => failed) ? failedStyle : ""}</style>`,
    `<text x="${left}" y="14">${escaped(title)}</text>`,
    ...grid(end, x, height),
    ...Array.from(
      bands,
      ([pid, name]) => `<text x="8" y="${y(pid, 0) + 11}">${escaped(name)}</text>`,
    ),
    ...spans.map((span) => rectangle(span, x, y)),
    ...arrows(events, x, y),
    "</svg>\n",
  ].join("\n");
}

function spanOf({ pid, tid, name, ts = 0, dur = 0, args }: ChromeEvent): Span {
  const failed = args?.["error"] !== undefined;
  return { pid, row: tid, name, failed, begin: ts, end: ts + dur };
}

function rectangle(
  { pid, row, name, failed, begin, end }: Span,
  x: (time: number) => number,
  y: (pid: number, row: number) => number,
): string {
  const wide = Math.max(1, x(end) - x(begin));
  const place = `x="${fixed(x(begin))}" y="${y(pid, row) + 1}" width="${fixed(wide)}"`;
  const tip = `${name}: ${fixed(begin)} to ${fixed(end)} µs`;
  const kind = failed ? `${rowNames[row]} failed` : rowNames[row];
  return `<rect class="${kind}" ${place} height="${rowHeight - 2}" rx="2"><title>${escaped(tip)}</title></rect>`;
}

/** A line from each message's send to its receipt. */
function arrows(
  events: readonly ChromeEvent[],
  x: (time: number) => number,
  y: (pid: number, row: number) => number,
): string[] {
  const starts = new Map<number, ChromeEvent>();
  for (const event of events)
    if (event.ph === "s" && event.id !== undefined) starts.set(event.id, event);
  return events.flatMap((event) => {
    const start = event.ph === "f" ? starts.get(event.id ?? -1) : undefined;
    if (start === undefined) return [];
    const from = `${fixed(x(start.ts ?? 0))} ${y(start.pid, start.tid) + rowHeight / 2}`;
    const to = `${fixed(x(event.ts ?? 0))} ${y(event.pid, event.tid) + rowHeight / 2}`;
    return [`<path class="message" d="M ${from} L ${to}"/>`];
  });
}

/** About eight vertical lines at round times. */
function grid(end: number, x: (time: number) => number, height: number): string[] {
  const rough = end / 8;
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].map((n) => n * power).find((n) => n >= rough) ?? rough;
  const lines: string[] = [];
  for (let i = 0; i * step <= end; i++) {
    const at = fixed(x(i * step));
    lines.push(`<line class="grid" x1="${at}" x2="${at}" y1="${top - 6}" y2="${height - 18}"/>`);
    lines.push(
      `<text x="${at}" y="${height - 6}" text-anchor="middle">${fixed(i * step)} µs</text>`,
    );
  }
  return lines;
}

function fixed(value: number): string {
  return String(Number(value.toPrecision(6)));
}

function escaped(text: string): string {
  return text.replaceAll("&", "&amp;").replaceAll("<", "&lt;").replaceAll(">", "&gt;");
}

/** An event of the Chrome trace format; times in microseconds. */
export interface ChromeEvent {
  readonly name: string;
  readonly ph: "X" | "s" | "f" | "M";
  readonly pid: number;
  readonly tid: number;
  readonly ts?: number;
  readonly dur?: number;
  readonly id?: number;
  readonly bp?: "e";
  readonly cat?: string;
  /** The name of a color of chrome://tracing. */
  readonly cname?: "terrible";
  readonly args?: Readonly<Record<string, unknown>>;
}
