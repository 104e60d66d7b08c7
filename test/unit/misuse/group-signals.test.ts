/** A signal that fires while the callback of a group runs: none of the group's calls is made, whichever of them has it. */
import type { CommError } from "twinccl";
import { expect, test } from "vitest";
import { inWorld } from "../../support/in-world.ts";

test.each([0, 1])("the signal of call %i of two", async (which) => {
  const reason = new Error("enough");
  const seen = await inWorld(2, async (comm) => {
    const send = new Float32Array([comm.rank + 1]);
    const [first, second] = [new Float32Array(1), new Float32Array(1)];
    const giveUp = new AbortController();
    const { signal } = giveUp;
    const group = comm.group(() => {
      for (const [at, recv] of [first, second].entries()) {
        void comm.allReduce({ send, recv, op: "sum", ...(at === which && { signal }) });
      }
      giveUp.abort(reason);
    });
    const error = (await group.then(null, (caught) => caught)) as CommError;
    const { calls } = comm.stats();
    // The ranks are in step: their next calls are each other's.
    await comm.allReduce({ send, recv: first, op: "sum" });
    return [error.code, error.cause, calls, first[0], second[0]];
  });
  expect(seen).toEqual(Array.from({ length: 2 }, () => ["ERR_COMM_ABORTED", reason, {}, 3, 0]));
});
