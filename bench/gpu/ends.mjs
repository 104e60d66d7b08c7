// A process that uses GPUs and ends without closing anything, the way programs that fail do.
//   node ends.mjs SIZE return|exit|throw
import { createWorld } from "twinccl";
import { nccl } from "twinccl/nccl";

const size = Number(process.argv[2]);
const how = process.argv[3];
const world = await createWorld({ backend: nccl(), size });
await world.run(async (comm) => {
  const send = comm.alloc("float32", 1024).fill(1);
  await comm.allReduce({ send, op: "sum" });
  const [first] = await send.subarray(0, 1).toHost();
  if (first !== size) throw new Error(`found ${first}, needs ${size}`);
});
process.stdout.write("used\n");
if (how === "exit") process.exit(0);
if (how === "throw") throw new Error("on purpose");
