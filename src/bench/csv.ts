/** Results as CSV: one header line, one line a row; every text in it is a plain word. */
import type { BenchResult, Measurement } from "./document.ts";

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

/** The results as CSV; what does not exist is an empty cell. */
export function toCsv(results: readonly BenchResult[]): string {
  const hasLatency = results.some(({ out_of_place }) => out_of_place.p99 !== undefined);
  const all = hasLatency ? [...columns, ...latencyColumns] : columns;
  const rows = results.map((result) => all.map(([, cell]) => cell(result) ?? ""));
  return [all.map(([name]) => name), ...rows].map((cells) => `${cells.join(",")}\n`).join("");
}
