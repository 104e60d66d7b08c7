// Goes on from the newest checkpoint of a directory and saves after every step, until it is killed.

import { createWorld } from "twinccl";
import { Checkpoints, directoryFiles, ParameterSet, Random } from "twinccl/parallel";
import { sim } from "twinccl/sim";

const [directory] = process.argv.slice(2);
const world = await createWorld({ backend: sim(), size: 3 });
await world.run(async (comm) => {
  const model = new ParameterSet([{ name: "w", shape: [50_000] }]);
  const random = new Random(7, comm.rank);
  const checkpoints = new Checkpoints(comm, directoryFiles(directory));
  const parts = { shared: { model }, perRank: { random } };
  const begun = (await checkpoints.load(parts))?.step ?? 0;
  for (let step = begun + 1; ; step++) {
    model.get("w").value.fill(step);
    random.word();
    if (comm.rank === 0) process.stdout.write(`saving ${step}\n`);
    await checkpoints.save(step, parts);
    if (comm.rank === 0) process.stdout.write(`saved ${step}\n`);
  }
});
