/** Faults that NCCL blames on another process: the calls fail with what became of that one, where somebody knows it. */
import type { CommError, Communicator } from "twinccl";
import { expect, test, vi } from "vitest";
import { type FakeGpus, fakeGpus, ncclError } from "../../support/fake-gpus/index.ts";
import { fragile, place } from "../nccl-rendezvous/stores.ts";
import { cleanGpus, turns } from "./gpus.ts";
import { closeAll, type Joined, joinAll, onAll, told } from "./joined.ts";

/** NCCL on a device says that another process is to blame. */
function blame(gpus: FakeGpus, device: number): void {
  for (const end of gpus.nccl.ends.values()) {
    if (end.device !== device) continue;
    end.failure = ncclError("ncclCommGetAsyncError", 6, "ncclRemoteError");
  }
}

test("a rank hears who has aborted the communicator", async () => {
  const gpus = cleanGpus();
  const [a, b] = (await joinAll(2, "off", gpus)) as [Joined, Joined];
  await onAll([a, b], ({ comm }) => comm.barrier());
  const waiting = told(a.comm.barrier());
  await turns();
  b.comm.abort(new Error("enough of this"));
  blame(gpus, 0);
  const error = (await waiting) as CommError;
  expect(error).toMatchObject({ code: "ERR_COMM_ABORTED", rank: 0, ranks: [1] });
  expect(error.message).toContain("enough of this");
  await closeAll([a, b]);
});

test.each(["the world", "a split"])("a rank hears who has closed %s", async (which) => {
  // Host memory that one frees is no other one's where each has a process of its own.
  const gpus = fakeGpus();
  const ranks = await joinAll(2, "off", gpus);
  const [a, b] = ranks as [Joined, Joined];
  const splits = await onAll(ranks, ({ comm }) => comm.split({ color: 0 }));
  const [mine, others] = which === "the world" ? [a.comm, b.comm] : (splits as Communicator[]);
  await Promise.all([mine?.barrier(), others?.barrier()]);
  // Over sockets NCCL's end of a communicator waits for nobody.
  vi.spyOn(gpus.nccl.calls, "finalizeInBackground").mockResolvedValue(undefined);
  const waiting = told(mine!.barrier());
  await others?.close();
  blame(gpus, 0);
  const error = (await waiting) as CommError;
  expect(error).toMatchObject({
    code: "ERR_COMM_REMOTE",
    rank: 0,
    ranks: [1],
    collective: "barrier",
  });
  expect(error.message).toMatch(/rank 1 will not make it: it has closed its end of "\S+"/);
  await closeAll(ranks);
});

test("a rank hears which one is gone", async () => {
  const gpus = cleanGpus();
  const links = await fragile(await place(3), 3);
  const members = links.map(({ member }) => member);
  const ranks = await joinAll(3, "off", gpus, 5_000, members);
  const [a, b, lost] = ranks as [Joined, Joined, Joined];
  await onAll(ranks, ({ comm }) => comm.barrier());
  const waiting = [told(a.comm.barrier()), told(b.comm.barrier())];
  await turns();
  // NCCL hears it first.
  blame(gpus, 0);
  blame(gpus, 1);
  await new Promise((resolve) => setTimeout(resolve, 300));
  links[2]?.cut();
  for (const error of await Promise.all(waiting)) {
    expect(error).toMatchObject({ code: "ERR_COMM_LOST", ranks: [2], collective: "barrier" });
  }
  lost.comm.abort();
  await closeAll(ranks);
});

test("a rank hears NCCL's own words where nobody knows more, and the others hear them of it", async () => {
  // Host memory that one frees is no other one's where each has a process of its own.
  const gpus = fakeGpus();
  const ranks = await joinAll(2, "off", gpus);
  const [a, b] = ranks as [Joined, Joined];
  await onAll(ranks, async ({ comm }) => (await comm.split({ color: 0 }))?.barrier());
  const waiting = told(a.comm.barrier());
  await turns();
  blame(gpus, 0);
  const began = performance.now();
  expect(await waiting).toMatchObject({
    code: "ERR_COMM_NCCL",
    statusName: "ncclRemoteError",
    rank: 0,
  });
  expect(performance.now() - began).toBeLessThan(15_000);
  // The part of rank 0 in the call that it waited for was there.
  await told(b.comm.barrier());
  const next = (await told(b.comm.barrier())) as CommError;
  expect(next).toMatchObject({ code: "ERR_COMM_ABORTED", rank: 1, ranks: [0] });
  expect(next.message).toContain("rank 0 has aborted it: ncclCommGetAsyncError: ncclRemoteError");
  await closeAll(ranks);
});
