/**
 * Draws time against size on logarithmic axes: a line for each choice of NCCL, or for each algorithm, with the taken one in bold.
 *
 * A self-contained SVG that follows the reader's light or dark preference.
 */
import { countText } from "../../api/error-text.ts";
import { largest } from "../../api/largest.ts";
import { svgNumber, svgText } from "../../backends/sim/trace/svg.ts";
import { sizeText } from "../../bench/index.ts";
import { fastestOf, type PredictedSizes } from "./table.ts";
import { exactLabel, timeLabel } from "./units.ts";

/** The drawing, and the plot in it; the legend is right of the plot. */
const width = 960;
const height = 560;
const plot = { left: 72, right: 764, top: 96, bottom: 504 } as const;
const legendLeft = plot.right + 24;
const rowHeight = 20;

/** Colours of the lines, in their order; readable on light and dark. */
const colours = [
  ...["#3b82c4", "#d9822b", "#2f9e6e", "#c0392b", "#8e5bb5", "#8a6d4b"],
  ...["#d14d8b", "#6b7a8c", "#b0a020", "#2aa5b0"],
];

const style = `
  .paper { fill: #fff } text { font: 12px system-ui, sans-serif; fill: #444 } .title { font-size: 15px; font-weight: 600 }
  .grid { stroke: #e6e6e6 } .frame { stroke: #999; fill: none } .switch { stroke: #777; stroke-dasharray: 4 3 }
  .line { fill: none; stroke-width: 1.5 } .taken { fill: none; stroke-width: 5; stroke-linecap: round; stroke-linejoin: round }
  .x { text-anchor: middle } .y { text-anchor: end } .note { font-size: 11px }
  @media (prefers-color-scheme: dark) {
    .paper { fill: #16181c } text { fill: #bbb } .grid { stroke: #2c3036 } .frame { stroke: #666 } .switch { stroke: #999 }
  }`;

interface Point {
  readonly bytes: number;
  readonly ns: number;
}

interface Line {
  readonly name: string;
  readonly points: readonly Point[];
  /** The parts of the line where it is taken. */
  readonly taken: readonly (readonly Point[])[];
}

/** A size from which another line is taken. */
interface Switch {
  readonly bytes: number;
  readonly to: string;
}

/** The picture of a sweep. */
export function sizesPicture(table: PredictedSizes): string {
  const { lines, switches } = linesOf(table);
  const points = lines.flatMap((line) => line.points);
  const place = placesOf(points);
  const isMeasured = table.library?.profile !== undefined;
  return [
    `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 ${width} ${height}" role="img">`,
    `<title>${svgText(titleOf(table))}</title>`,
    `<style>${style}</style>`,
    `<rect class="paper" width="${width}" height="${height}"/>`,
    `<text class="title" x="${plot.left}" y="26">${svgText(titleOf(table))}</text>`,
    `<text x="${plot.left}" y="46">${svgText(subtitleOf(table))}</text>`,
    ...(points.length === 0 ? [] : axes(points, place)),
    ...switchLines(switches, place),
    ...lines.flatMap((line, at) => lineOf(line, colourOf(at), place)),
    ...legend(lines, isMeasured ? "bold: NCCL's choice" : "bold: the fastest"),
    "</svg>\n",
  ].join("\n");
}

function titleOf({ collective, machine }: PredictedSizes): string {
  return `${collective} ${machine["dtype"]} on ${countText(Number(machine["ranks"]), "rank")}: predicted time by size`;
}

function subtitleOf({ library, machine }: PredictedSizes): string {
  if (library?.profile !== undefined) return `${library.machineText}; ${library.modeText}`;
  const { topology, latencyNs, gigabytesPerSecond } = machine;
  return `${topology}, ${latencyNs} ns, ${gigabytesPerSecond} GB/s`;
}

/** The lines: NCCL's choices where a library has times, else the algorithms. */
function linesOf(table: PredictedSizes): { lines: Line[]; switches: readonly Switch[] } {
  const { library, rows, names } = table;
  if (library?.profile !== undefined) {
    const choices = [...new Set(rows.flatMap(({ every }) => every.map(({ name }) => name)))];
    const switches = table.switches.map(({ bytes, to }) => ({ bytes, to: to.name }));
    const all = choices.map((name) => ({
      name,
      points: [
        ...rows.flatMap(({ bytes, every }) => {
          const ns = every.find((each) => each.name === name)?.predictedNs ?? 0;
          return ns === 0 || bytes === 0 ? [] : [{ bytes, ns }];
        }),
        ...table.switches.flatMap(({ bytes, from, to }) =>
          [from, to].flatMap((each) => {
            return each.name === name ? [{ bytes, ns: each.predictedNs ?? 0 }] : [];
          }),
        ),
      ].sort((a, b) => a.bytes - b.bytes),
    }));
    const steps = rows.map(({ bytes, chosen }) => ({ bytes, name: chosen?.name }));
    return { lines: all.map((line) => withTaken(line, steps, switches)), switches };
  }
  const steps = rows.map((row) => ({ bytes: row.bytes, name: fastestOf(table, row) }));
  const switches = steps.flatMap(({ bytes, name }, at) => {
    const isNew = at > 0 && steps[at - 1]?.name !== name && name !== undefined;
    return isNew ? [{ bytes, to: name }] : [];
  });
  const all = names.map((name, at) => ({
    name,
    points: rows.flatMap(({ bytes, found }) => {
      const ps = found[at]?.timePs ?? 0;
      return ps === 0 || bytes === 0 ? [] : [{ bytes, ns: ps / 1000 }];
    }),
  }));
  return { lines: all.map((line) => withTaken(line, steps, switches)), switches };
}

/** The parts of a line between the switches to it and from it. */
function withTaken(
  { name, points }: Omit<Line, "taken">,
  steps: readonly { readonly bytes: number; readonly name: string | undefined }[],
  switches: readonly Switch[],
): Line {
  const first = { bytes: 0, to: steps[0]?.name ?? "" };
  const all = [first, ...switches];
  const taken = all.flatMap(({ bytes: from, to }, at) => {
    if (to !== name) return [];
    const until = all[at + 1]?.bytes ?? Infinity;
    const part = points.filter(({ bytes }) => bytes >= from && bytes <= until);
    return part.length === 0 ? [] : [part];
  });
  return { name, points, taken };
}

/** Places in the plot. */
interface Places {
  readonly x: (bytes: number) => number;
  readonly y: (ns: number) => number;
}

function placesOf(points: readonly Point[]): Places {
  const [left, right] = spanOf(points.map(({ bytes }) => bytes));
  const [low, high] = spanOf(points.map(({ ns }) => ns));
  const share = (value: number, from: number, to: number): number =>
    from === to ? 0.5 : Math.log(value / from) / Math.log(to / from);
  // A margin keeps lines off the frame.
  const [least, most] = [low / 1.15, high * 1.15];
  return {
    x: (bytes) => plot.left + share(bytes, left, right) * (plot.right - plot.left),
    y: (ns) => plot.bottom - share(ns, least, most) * (plot.bottom - plot.top),
  };
}

function spanOf(values: readonly number[]): [number, number] {
  return [
    -largest(
      values.map((value) => -value),
      -Infinity,
    ),
    largest(values, 0),
  ];
}

function axes(points: readonly Point[], { x, y }: Places): string[] {
  const sizes = sizeTicks(spanOf(points.map(({ bytes }) => bytes)));
  const times = timeTicks(spanOf(points.map(({ ns }) => ns)));
  return [
    ...sizes.map((bytes) => {
      const at = svgNumber(x(bytes));
      return (
        `<line class="grid" x1="${at}" x2="${at}" y1="${plot.top}" y2="${plot.bottom}"/>` +
        `<text class="x" x="${at}" y="${plot.bottom + 18}">${sizeText(bytes)}</text>`
      );
    }),
    ...times.map((ns) => {
      const at = svgNumber(y(ns));
      return (
        `<line class="grid" x1="${plot.left}" x2="${plot.right}" y1="${at}" y2="${at}"/>` +
        `<text class="y" x="${plot.left - 8}" y="${svgNumber(y(ns) + 4)}">${timeLabel(ns)}</text>`
      );
    }),
    `<rect class="frame" x="${plot.left}" y="${plot.top}" width="${plot.right - plot.left}" height="${plot.bottom - plot.top}"/>`,
    `<text class="x" x="${(plot.left + plot.right) / 2}" y="${plot.bottom + 40}">size</text>`,
    `<text class="y" x="${plot.left - 8}" y="${plot.top - 10}">time</text>`,
  ];
}

/** At most ten powers of two; the ends where fewer than two are between them. */
function sizeTicks([least, most]: readonly [number, number]): number[] {
  const [first, last] = [Math.ceil(Math.log2(least)), Math.floor(Math.log2(most))];
  if (last <= first) return [...new Set([least, most])];
  const step = Math.max(1, Math.ceil((last - first) / 9));
  const count = Math.floor((last - first) / step) + 1;
  return Array.from({ length: count }, (_, at) => 2 ** (first + at * step));
}

/** Digits of the round times of a decade, from few to many. */
const tickDigits = [
  [1],
  [1, 2, 5],
  [1, 1.5, 2, 3, 4, 5, 6, 7, 8, 9],
  Array.from({ length: 90 }, (_, at) => 1 + at / 10),
];

/** Round times: few of every decade, more where fewer than two are in the plot. */
function timeTicks([least, most]: readonly [number, number]): number[] {
  const [first, last] = [Math.floor(Math.log10(least / 1.15)), Math.ceil(Math.log10(most))];
  const within = (digits: readonly number[]): number[] =>
    Array.from({ length: last - first + 1 }, (_, at) =>
      digits.map((digit) => digit * 10 ** (first + at)),
    )
      .flat()
      .filter((ns) => ns >= least / 1.15 && ns <= most * 1.15);
  const choices = tickDigits.slice(last - first > 4 ? 0 : 1).map(within);
  return choices.find(({ length }) => length > 1) ?? [];
}

/** A dashed line for each switch, with its label above the plot; labels that are close lie in rows. */
function switchLines(switches: readonly Switch[], { x }: Places): string[] {
  const ends: number[] = [];
  return switches.map(({ bytes, to }) => {
    const at = x(bytes);
    const label = `${to} from ${exactLabel(bytes)}`;
    const half = label.length * 3;
    const middle = Math.min(Math.max(at, plot.left + half), width - 8 - half);
    const free = ends.findIndex((end) => end + 8 < middle - half);
    const row = free < 0 ? ends.length : free;
    ends[row] = middle + half;
    const y = plot.top - 8 - 13 * row;
    const place = svgNumber(at);
    return (
      `<line class="switch" x1="${place}" x2="${place}" y1="${plot.top - 4}" y2="${plot.bottom}"/>` +
      `<text class="x note" x="${svgNumber(middle)}" y="${y}">${svgText(label)}</text>`
    );
  });
}

function colourOf(at: number): string {
  return colours[at % colours.length] as string;
}

function lineOf({ name, points, taken }: Line, colour: string, { x, y }: Places): string[] {
  const path = (part: readonly Point[]): string =>
    part.map(({ bytes, ns }) => `${svgNumber(x(bytes))},${svgNumber(y(ns))}`).join(" ");
  const tip = `<title>${svgText(name)}</title>`;
  const thin = `<polyline class="line" stroke="${colour}" points="${path(points)}">${tip}</polyline>`;
  const bold = taken.map((part) => {
    const [only] = part;
    return part.length === 1 && only !== undefined
      ? `<circle fill="${colour}" cx="${svgNumber(x(only.bytes))}" cy="${svgNumber(y(only.ns))}" r="4">${tip}</circle>`
      : `<polyline class="taken" stroke="${colour}" points="${path(part)}">${tip}</polyline>`;
  });
  return [thin, ...bold];
}

/** Names of the lines, right of the plot; those that are taken anywhere in bold. */
function legend(lines: readonly Line[], bold: string): string[] {
  const rows = lines.map(({ name, taken }, at) => {
    const y = plot.top + 10 + at * rowHeight;
    const kind = taken.length > 0 ? "taken" : "line";
    return (
      `<line class="${kind}" stroke="${colourOf(at)}" x1="${legendLeft}" x2="${legendLeft + 24}" y1="${y}" y2="${y}"/>` +
      `<text x="${legendLeft + 34}" y="${y + 4}">${svgText(name)}</text>`
    );
  });
  const y = plot.top + 16 + lines.length * rowHeight;
  const note = `<text class="note" x="${legendLeft}" y="${y + 6}">${bold}</text>`;
  return lines.length === 0 ? [] : [...rows, note];
}
