// What is claimed of NCCL's bits for ranks on the devices of each list; prints a line of JSON.
import { createWorld } from "twinccl";
import { nccl } from "twinccl/nccl";

const question = { collective: "allReduce", dtype: "float32", op: "sum", count: 1 << 20 };
const claims = [];
for (const list of process.argv.slice(2)) {
  const devices = list.split(",").map(Number);
  const world = await createWorld({ backend: nccl({ devices }), size: devices.length });
  claims.push(world.explain(question).claim);
  await world.close();
}
process.stdout.write(`${JSON.stringify(claims)}\n`);
