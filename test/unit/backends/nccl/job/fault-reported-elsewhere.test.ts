/** A background fault of NCCL on one rank without a waiting call: the ranks of other processes learn it, with the cause. */
import { expect, test } from "vitest";
import { ncclError } from "../../../../support/fake-gpus/index.ts";
import { quickTime } from "../../../../support/quick-time.ts";
import { cleanGpus, turns } from "../gpus.ts";
import { closeAll, errorOf, type Joined, joinAll, onAll } from "./joined.ts";

quickTime();

test("the waiting ranks learn that the faulty rank ended the communicator", async () => {
  const gpus = cleanGpus();
  const ranks = await joinAll(2, "off", gpus);
  const [, waits] = ranks as [Joined, Joined];
  await onAll(ranks, ({ comm }) => comm.barrier());
  const waiting = errorOf(waits.comm.barrier());
  await turns();
  const failure = ncclError("ncclCommGetAsyncError", 3, "ncclInternalError");
  for (const end of gpus.nccl.ends.values()) if (end.device === 0) end.failure = failure;
  const error = await waiting;
  expect(error).toMatchObject({ code: "ERR_COMM_ABORTED", rank: 1, ranks: [0] });
  expect(error?.message).toMatch(/rank 0 has aborted it: .*ncclInternalError/);
  await closeAll(ranks);
});
