/** The verifier's time for every program of the catalogue, 1 to 64 ranks. */
import { specifications } from "twinccl";
import { algorithmsOf, builtCollectives, verifyAlgorithm } from "twinccl/algorithms";
import { type Figure, report } from "./support/report.ts";

const maxRanks = 64;
const figures: Figure[] = [];
let total = 0;
let programs = 0;
for (const collective of builtCollectives) {
  for (const algorithm of algorithmsOf(collective)) {
    const began = performance.now();
    for (let ranks = 1; ranks <= maxRanks; ranks++) {
      const root = specifications[collective].rooted ? 0 : -1;
      const { problems } = verifyAlgorithm(collective, algorithm, ranks, root);
      const [problem] = problems;
      if (problem !== undefined) {
        throw new Error(`${collective} ${algorithm.name} on ${ranks} ranks: ${problem.text}`);
      }
      programs++;
    }
    const seconds = (performance.now() - began) / 1000;
    total += seconds;
    figures.push({ name: `${collective} ${algorithm.name}`, unit: "s", value: seconds });
  }
}
figures.push({ name: `all ${programs} programs`, unit: "s", value: total, goal: 10 });
report("verify-catalogue", figures);
