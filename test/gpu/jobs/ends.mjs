// A process that uses GPUs and ends without closing anything.
//   node ends.mjs SIZE return|exit|split|graph|open-calls
import { createWorld } from "twinccl";
import { nccl } from "twinccl/nccl";

const [size, how] = [Number(process.argv[2]), process.argv[3]];
const world = await createWorld({ backend: nccl(), size });
await world.run(async (comm) => {
  const send = comm.alloc("float32", 1024).fill(1);
  await comm.allReduce({ send, op: "sum" });
  const [found] = await send.toHost();
  if (found !== size) throw new Error(`found ${found}, needs ${size}`);
  if (how === "split") {
    const half = await comm.split({ color: comm.rank % 2 });
    await half.barrier();
  }
  if (how === "graph") {
    const graph = await comm.capture(() => void comm.allReduce({ send, op: "max" }));
    await graph.replay();
  }
  if (how === "open-calls") {
    for (let i = 0; i < 50; i++) void comm.allReduce({ send, op: "max" });
    if (comm.rank === size - 1) process.exit(0);
  }
});
if (how === "exit") process.exit(0);
