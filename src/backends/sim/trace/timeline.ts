/**
 * Draws a trace as a timeline in virtual time: one band per rank, with its ports and its work, and arrows for messages. Without
 * messages, bars have labels, and a legend sorts work by the first word of its name.
 *
 * A self-contained SVG that follows the reader's light or dark preference.
 */
import { largest } from "../../../api/largest.ts";
import { svgNumber, svgText } from "./svg.ts";

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

/** Labels and the tints of kinds of work. */
const labelledStyle = `
  .calls { fill: #8fb8de } .inside { text-anchor: middle; font-size: 10px; fill: #222 } .mark { stroke: #888 }
  .kind1 { fill: #c96f4a } .kind2 { fill: #8e7cc3 } .kind3 { fill: #5f9e8f } .kind4 { fill: #b58db6 } .kind5 { fill: #9a9a4a }
  @media (prefers-color-scheme: dark) { .calls { fill: #6f9cc9 } }`;

/** Kinds of work with a tint; more are drawn alike. */
const maxKinds = 6;

/** In microseconds. */
const picosecond = 1e-6;

/** Pixels between bars that follow one another. */
const gap = 0.5;

interface Span {
  readonly pid: number;
  readonly row: number;
  readonly name: string;
  readonly failed: boolean;
  readonly begin: number;
  readonly end: number;
}

/** Places in the drawing: of a time, and of the top of a row. */
interface Places {
  x(time: number): number;
  y(pid: number, row: number): number;
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
  const labelled = !events.some(({ ph }) => ph === "s");
  const kinds = labelled ? kindsOf(spans) : [];
  const begin = labelled ? top + 16 : top;
  const rows = used.filter(Boolean).length;
  const band = rows * rowHeight + bandGap;
  const height = begin + bands.size * band + 22;
  const places: Places = {
    x: (time) => left + (time / end) * (width - left - 16),
    y: (pid, row) =>
      begin + (order.get(pid) ?? 0) * band + used.slice(0, row).filter(Boolean).length * rowHeight,
  };
  const isFailed = spans.some(({ failed }) => failed);
  const styles = `${style}${isFailed ? failedStyle : ""}${labelled ? labelledStyle : ""}`;
  return [
    `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 ${width} ${height}" role="img">`,
    `<title>${svgText(title)}</title>`,
    `<style>${styles}</style>`,
    `<text x="${left}" y="14">${svgText(title)}</text>`,
    ...(labelled ? legend(used, kinds, left) : []),
    ...grid(end, places, { top: begin - 6, height }),
    ...Array.from(
      bands,
      ([pid, name]) => `<text x="8" y="${places.y(pid, 0) + 11}">${svgText(name)}</text>`,
    ),
    ...spans.map((span) => (labelled ? labelledBar(span, kinds, places) : rectangle(span, places))),
    ...arrows(events, places),
    "</svg>\n",
  ].join("\n");
}

/** The first words of work, in the order of their first bar; none where they are too many. */
function kindsOf(spans: readonly Span[]): string[] {
  const work = spans.filter(({ row, begin, end }) => rowNames[row] === "work" && begin < end);
  const kinds = [...new Set(work.map(({ name }) => firstWord(name)))];
  return kinds.length > maxKinds ? [] : kinds;
}

function firstWord(name: string): string {
  return name.split(" ")[0] ?? "";
}

/** Names of the colours, below the title. */
function legend(used: readonly boolean[], kinds: readonly string[], left: number): string[] {
  const rows = rowNames.filter((row, at) => used[at] && (row !== "work" || kinds.length === 0));
  const entries = [
    ...rows.map((row) => ({ kind: `${row}`, text: `${row}` })),
    ...kinds.map((text, at) => ({ kind: `work kind${at}`, text })),
  ];
  let x = left;
  return entries.map(({ kind, text }) => {
    const at = x;
    x += 30 + 6.5 * text.length;
    return (
      `<rect class="${kind}" x="${svgNumber(at)}" y="21" width="10" height="10" rx="2"/>` +
      `<text x="${svgNumber(at + 15)}" y="30">${svgText(text)}</text>`
    );
  });
}

/** A bar with its label, where that fits; work without a duration is a line. */
function labelledBar(span: Span, kinds: readonly string[], { x, y }: Places): string {
  const { pid, row, name, begin, end } = span;
  const isWork = rowNames[row] === "work";
  const [from, above] = [x(begin), y(pid, row)];
  if (isWork && begin === end) {
    const at = svgNumber(from);
    const ends = `y1="${above - rowHeight}" y2="${above + rowHeight}"`;
    return `<line class="mark" x1="${at}" x2="${at}" ${ends}><title>${svgText(name)}</title></line>`;
  }
  const kind = isWork ? ` kind${Math.max(0, kinds.indexOf(firstWord(name)))}` : "";
  const bar = rectangle(span, { x, y }, { gap, kind });
  const words = [name, firstWord(name), ...(isWork ? [name.split(" ").at(-1) ?? ""] : [])];
  const wide = x(end) - from - gap;
  const label = words.find((each) => each !== "" && 5.5 * each.length + 4 <= wide);
  if (label === undefined) return bar;
  return `${bar}<text class="inside" x="${svgNumber(from + wide / 2)}" y="${above + 10.5}">${svgText(label)}</text>`;
}

function spanOf({ pid, tid, name, ts = 0, dur = 0, args }: ChromeEvent): Span {
  const failed = args?.["error"] !== undefined;
  return { pid, row: tid, name, failed, begin: ts, end: ts + dur };
}

function rectangle(
  { pid, row, name, failed, begin, end }: Span,
  { x, y }: Places,
  drawn = { gap: 0, kind: "" },
): string {
  const wide = Math.max(1, x(end) - x(begin) - drawn.gap);
  const place = `x="${svgNumber(x(begin))}" y="${y(pid, row) + 1}" width="${svgNumber(wide)}"`;
  const tip = `${name}: ${svgNumber(begin)} to ${svgNumber(end)} µs`;
  const kind = `${rowNames[row]}${drawn.kind}${failed ? " failed" : ""}`;
  return `<rect class="${kind}" ${place} height="${rowHeight - 2}" rx="2"><title>${svgText(tip)}</title></rect>`;
}

/** A line from each message's send to its receipt. */
function arrows(events: readonly ChromeEvent[], { x, y }: Places): string[] {
  const starts = new Map<number, ChromeEvent>();
  for (const event of events)
    if (event.ph === "s" && event.id !== undefined) starts.set(event.id, event);
  return events.flatMap((event) => {
    const start = event.ph === "f" ? starts.get(event.id ?? -1) : undefined;
    if (start === undefined) return [];
    const from = `${svgNumber(x(start.ts ?? 0))} ${y(start.pid, start.tid) + rowHeight / 2}`;
    const to = `${svgNumber(x(event.ts ?? 0))} ${y(event.pid, event.tid) + rowHeight / 2}`;
    return [`<path class="message" d="M ${from} L ${to}"/>`];
  });
}

/** About eight vertical lines at round times, whole picoseconds apart; labels stay within the picture. */
function grid(
  end: number,
  { x }: Places,
  { top, height }: { readonly top: number; readonly height: number },
): string[] {
  const rough = end / 8;
  const power = 10 ** Math.floor(Math.log10(rough));
  const round = [1, 2, 5, 10].map((n) => n * power).find((n) => n >= rough) ?? rough;
  const step = Math.max(picosecond, round);
  const lines: string[] = [];
  for (let i = 0; i * step <= end; i++) {
    const at = svgNumber(x(i * step));
    lines.push(`<line class="grid" x1="${at}" x2="${at}" y1="${top}" y2="${height - 18}"/>`);
    const text = timeText(i * step, end);
    const middle = svgNumber(Math.min(x(i * step), width - 3.5 * text.length));
    lines.push(`<text x="${middle}" y="${height - 6}" text-anchor="middle">${text}</text>`);
  }
  return lines;
}

/** A time of the axis; all of them in one unit. */
function timeText(us: number, end: number): string {
  return end < 10_000 ? `${svgNumber(us)} µs` : `${svgNumber(us / 1000)} ms`;
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
