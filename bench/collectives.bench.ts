/** The command line's own loop, for every backend that can be used here: nccl-tests' table, every result checked. */
import {
  type BenchResult,
  bench,
  measuredCollectives,
  tableHead,
  tableRow,
  tally,
} from "twinccl/bench";
import { sim } from "twinccl/sim";
import { type Figure, report } from "./support/report.ts";

const backends = [sim()];
const ranks = 8;
const results: BenchResult[] = [];
const figures: Figure[] = [];

for (const backend of backends) {
  const probe = await backend.probe({ size: ranks, name: "bench" });
  if (!probe.ok) {
    process.stdout.write(`# ${backend.name} is left out: ${probe.reason}\n`);
    continue;
  }
  const simulated = backend.name === "sim";
  for (const { collective } of measuredCollectives) {
    process.stdout.write(`# ${backend.name}: ${collective}\n${tableHead({ simulated })}`);
    const document = await bench({
      backend,
      collective,
      ranks,
      sizes: { min: 1024, max: 2 ** 24, factor: 128 },
      onResult: (result) => process.stdout.write(tableRow(result)),
    });
    results.push(...document.results);
    const { wrong, elements } = tally(document.results);
    figures.push({
      name: `${backend.name} ${collective}: wrong of ${elements}`,
      unit: "elements",
      value: wrong,
      goal: 0,
    });
  }
}
report("collectives", figures, results);
if (figures.some(({ value }) => value > 0)) process.exitCode = 1;
