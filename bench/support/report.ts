/** The output of all benches: figures are printed, and with `--out FILE` added to one document. */
import { existsSync, readFileSync, writeFileSync } from "node:fs";
import { environment, environmentText } from "twinccl/bench";

/** One measured figure. */
export interface Figure {
  readonly name: string;
  readonly unit: string;
  readonly value: number;
  /** The upper goal, where there is one. It is shown, never enforced. */
  readonly goal?: number;
  /** Fastest and slowest sample, where there were several. */
  readonly least?: number;
  readonly most?: number;
  readonly samples?: number;
}

/** Prints figures, and adds them to the document of `--out FILE` under `bench`. */
export function report(
  bench: string,
  figures: readonly Figure[],
  results: readonly object[] = [],
): void {
  const found = environment();
  const width = Math.max(...figures.map(({ name }) => name.length));
  process.stdout.write(`# ${environmentText(found)}\n`);
  for (const { name, unit, value, goal, least, most } of figures) {
    const range = least === undefined ? "" : `  (${text(least)} to ${text(most ?? least)})`;
    const aim =
      goal === undefined ? "" : `  goal ${goal} ${unit}: ${value <= goal ? "met" : "MISSED"}`;
    process.stdout.write(`${name.padEnd(width)}  ${text(value)} ${unit}${range}${aim}\n`);
  }
  const at = process.argv.indexOf("--out");
  const path = at < 0 ? undefined : process.argv[at + 1];
  if (path === undefined) return;
  const document = existsSync(path)
    ? JSON.parse(readFileSync(path, "utf8"))
    : { ...found, benches: {}, results: [] };
  document.benches[bench] = figures;
  document.results.push(...results);
  writeFileSync(path, `${JSON.stringify(document, null, 2)}\n`);
}

/** The middle one of the samples, with the range. */
export function median(
  samples: readonly number[],
): Pick<Figure, "value" | "least" | "most" | "samples"> {
  const sorted = [...samples].sort((a, b) => a - b);
  const middle = sorted[Math.floor(sorted.length / 2)] ?? Number.NaN;
  const least = sorted[0] ?? Number.NaN;
  return { value: middle, least, most: sorted.at(-1) ?? Number.NaN, samples: sorted.length };
}

function text(value: number): string {
  return value.toFixed(value >= 100 ? 0 : value >= 10 ? 1 : 2);
}
