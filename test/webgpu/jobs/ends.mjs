// Sums on a device, and closes the world or does not; then there is nothing left to do.

import { createWorld } from "twinccl";
import { sim } from "twinccl/sim";
import { webgpu } from "twinccl/webgpu";

const world = await createWorld({ backend: sim({ executor: webgpu() }), size: 3 });
const sums = await world.run(async (comm) => {
  const buffer = comm.alloc("int32", 5).fill(comm.rank + 1);
  await comm.allReduce({ send: buffer, op: "sum" });
  return (await buffer.toHost())[4];
});
console.log(sums[2]);
if (process.argv[2] === "closed") await world.close();
