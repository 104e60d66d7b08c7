/** Benchmarks of collectives in nccl-tests' language, with every result checked. Needs Node. */
export { bench } from "./bench.ts";
export {
  type Arrival,
  type CallData,
  type CallShape,
  findCollective,
  type InPlace,
  type MeasuredCollective,
  measuredCollectives,
  type Skew,
} from "./collectives.ts";
export {
  averageBusBandwidth,
  type BenchDocument,
  type BenchResult,
  type Measurement,
  type Tally,
  tally,
} from "./document.ts";
export { type Environment, environment, environmentText, type Machine } from "./environment.ts";
export type { Issue } from "./issue.ts";
export type { BenchOptions } from "./options.ts";
export { parseSize, type SizeSweep, sizeText, sweepSizes } from "./sizes.ts";
export { type TableStyle, tableFoot, tableHead, tableRow, tallyText, toCsv } from "./table.ts";
export { heaviestRank, skewedTraffic, type TrafficMatrix, transposed } from "./traffic.ts";
