/** Predictions as a table, sizes by algorithms with the best one marked, and as a document. */
import type { Prediction } from "../algorithms/index.ts";
import { sizeText } from "../bench/index.ts";
import type { OwnRow } from "./predict-algorithms.ts";

/** The predictions. */
export interface Predictions {
  readonly machine: Readonly<Record<string, string | number>>;
  /** Names of the algorithms, in the order of `found`. */
  readonly names: readonly string[];
  /** The note on the user's own among them. */
  readonly own: readonly OwnRow[];
  readonly rows: readonly {
    readonly size: number;
    readonly count: number;
    /** By algorithm; `undefined` where the program was too large. */
    readonly found: readonly (Prediction | undefined)[];
  }[];
  /** Bus bandwidth over algorithm bandwidth. */
  readonly bus: number;
}

/** Place of the fastest; of equal ones the first. */
function bestOf(found: readonly (Prediction | undefined)[]): number {
  let best = -1;
  found.forEach((each, at) => {
    if (each !== undefined && each.timePs < (found[best]?.timePs ?? Infinity)) best = at;
  });
  return best;
}

/** One document: the request, and a result a size with every algorithm's time in microseconds. */
export function predictionDocument({ machine, names, own, rows, bus }: Predictions): object {
  const results = rows.map(({ size, count, found }) => ({
    size,
    count,
    best: names[bestOf(found)] ?? null,
    predictions: names.map((algorithm, at) => {
      const each = found[at];
      if (each === undefined) return { algorithm, time: null, reason: "too large" };
      const { timePs, messages, sentElements, engine } = each;
      const time = timePs / 1e6;
      const bus_bw = timePs === 0 ? null : (bus * size * 1000) / timePs;
      return { algorithm, time, bus_bw, messages, sent_elements: sentElements, engine };
    }),
  }));
  const told = own.map(({ algorithm, file, soundOn }) => ({ algorithm, file, sound_on: soundOn }));
  return { predicted: true, ...machine, ...(told.length > 0 && { own: told }), results };
}

/** Times in microseconds, a row a size; `*` marks the fastest, `-` a program that is too large. */
export function predictionTable({ machine, names, own, rows }: Predictions): string {
  const facts = Object.entries(machine).map(([name, value]) => `${name} ${value}`);
  const cells = rows.map(({ size, found }) => {
    const best = bestOf(found);
    const times = found.map((each, at) => {
      if (each === undefined) return "- ";
      return `${timeText(each.timePs / 1e6)}${at === best ? "*" : " "}`;
    });
    return [`${size === 0 ? "0" : sizeText(size)} `, ...times];
  });
  const head = ["size ", ...names.map((name) => `${name} `)];
  const widths = head.map((title, at) =>
    Math.max(title.length, ...cells.map((row) => (row[at] ?? "").length)),
  );
  const line = (row: readonly string[]): string =>
    row.map((cell, at) => cell.padStart((widths[at] ?? 0) + 2)).join("");
  return [
    `# predicted, not measured: ${facts.join(", ")}`,
    ...own.map(({ text }) => `# ${text}`),
    `#${line(head).slice(1).trimEnd()}   (us, * fastest)`,
    ...cells.map((row) => line(row).trimEnd()),
    ...(rows.some(({ found }) => found.includes(undefined))
      ? ["# -: a program too large to be timed; take a size that the ranks divide, or fewer ranks"]
      : []),
    "",
  ].join("\n");
}

function timeText(us: number): string {
  return us >= 1000 ? us.toFixed(0) : us.toPrecision(4);
}
