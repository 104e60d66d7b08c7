/** Programs hold the promises of their calls and cannot settle them. */
import { type Communicator, createWorld } from "twinccl";
import { sim } from "twinccl/sim";
import { expect, test } from "vitest";

const settling = ["complete", "fail", "assign", "submit", "submittedAs", "resolve", "reject"];

test("the promise of a call has no way to settle it, to number it or to submit it", async () => {
  const world = await createWorld({ backend: sim(), size: 2 });
  await world.run(async (comm: Communicator) => {
    const send = comm.alloc("float32", 4).fill(1);
    const calls = [
      comm.barrier(),
      comm.allReduce({ send, op: "sum" }),
      comm.split({ color: 0 }),
      comm.group(() => undefined),
    ];
    for (const call of calls) {
      for (const name of settling) expect(call).not.toHaveProperty(name);
      await call;
    }
  });
  await world.close();
});
