// One rank of a job that runs random programs; writes what it held after every call to FOLDER/RANK.json.
//   node programs-job.mjs SEED RUNS FOLDER [--nodes 2]
import { writeFileSync } from "node:fs";
import { connect } from "twinccl";
import { nccl } from "twinccl/nccl";
import { runProgramAs } from "twinccl/testing";
import { drawnPrograms, written } from "./drawn-programs.mjs";
import { imitateNodes } from "./imitated-nodes.mjs";

const [seed, runs] = process.argv.slice(2, 4).map(Number);
const folder = process.argv[4];
const nodes = imitateNodes();
const comm = await connect({ backend: nccl(), timeoutMs: 30_000 });
const { rank, size } = comm;
const held = [];
for (const program of drawnPrograms({ size, seed, runs, exact: nodes > 1 })) {
  try {
    held.push(written(await runProgramAs(comm, program)));
  } catch (error) {
    throw new Error(`program ${held.length}: ${JSON.stringify(program)}`, { cause: error });
  }
}
writeFileSync(`${folder}/${rank}.json`, JSON.stringify(held));
await comm.close();
process.stdout.write(`result ${JSON.stringify({ programs: held.length })}\n`);
