import { createWorld } from "twinccl";
import { sim } from "twinccl/sim";

/** The life of a small program in a test that tries many: a world of its own, a few calls, the end. */
export async function smallProgram(seed) {
  const world = await createWorld({ backend: sim({ seed }), size: 4 });
  try {
    await world.run(async (comm) => {
      const send = comm.alloc("int32", 8).fill(seed + comm.rank);
      const recv = comm.alloc("int32", 32);
      await comm.allReduce({ send, op: "sum" });
      await comm.allGather({ send, recv });
      await comm.barrier();
    });
  } finally {
    await world.close();
  }
}
