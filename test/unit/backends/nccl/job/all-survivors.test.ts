/** Every survivor joins the next generation, also if it leaves the old one slowly or receives the rebuild late. */
import type { ConnectedCommunicator } from "twinccl";
import { expect, test, vi } from "vitest";
import { cudaError, fakeGpus } from "../../../../support/fake-gpus/index.ts";
import { quickTime } from "../../../../support/quick-time.ts";
import { fragile, place } from "../../../job/stores.ts";
import { turns } from "../gpus.ts";
import { errorOf, type Joined, joinAll, onAll } from "./joined.ts";

quickTime();

/** The ranks that rebuilding gives. */
const positions = async (rebuilding: readonly Promise<ConnectedCommunicator>[]) => {
  const next = await Promise.all(rebuilding);
  const seen = next.map(({ rank, size }) => `rank ${rank} of ${size}`);
  await Promise.all(next.map((comm) => comm.close()));
  return seen;
};

test.each(["NCCL's abort takes 4 s", "the stream is busy for 4 s"])(
  "survivors wait for a slow one in rebuild(): %s",
  async (what) => {
    const gpus = fakeGpus();
    const links = await fragile(await place(4), 4);
    const members = links.map(({ member }) => member);
    const ranks = await joinAll(4, "off", gpus, 30_000, members);
    await onAll(ranks, ({ comm }) => comm.barrier());
    const slow = 2;
    if (what.startsWith("NCCL")) {
      const { abortInBackground } = gpus.nccl.calls;
      const own = [...gpus.nccl.ends.values()].find(({ device }) => device === slow)?.handle;
      vi.spyOn(gpus.nccl.calls, "abortInBackground").mockImplementation(async (handle) => {
        if (handle === own) await new Promise((resolve) => setTimeout(resolve, 4_000));
        return abortInBackground(handle);
      });
    } else {
      const until = Date.now() + 4_000;
      const kernel = { step: () => Date.now() > until, what: "a kernel of the caller" };
      gpus.machine.stream(ranks[slow]?.comm.stream as bigint).put(() => kernel);
    }
    links[3]?.cut();
    await turns(50);
    const survivors = ranks.slice(0, 3);
    expect(await positions(survivors.map(({ comm }) => comm.rebuild()))).toEqual([
      "rank 0 of 3",
      "rank 1 of 3",
      "rank 2 of 3",
    ]);
  },
);

test("when one survivor cannot release all resources of the old generation", async () => {
  const warn = vi.spyOn(process, "emitWarning").mockReturnValue(undefined);
  try {
    const gpus = fakeGpus();
    const ranks = await joinAll(2, "off", gpus);
    await onAll(ranks, ({ comm }) => comm.barrier());
    const broken = cudaError("cudaStreamDestroy", 400, "cudaErrorInvalidResourceHandle");
    gpus.machine.failNext("streamDestroy", broken);
    const seen = await positions(ranks.map(({ comm }) => comm.rebuild()));
    expect(seen).toEqual(["rank 0 of 2", "rank 1 of 2"]);
    const [[text, how] = []] = warn.mock.calls;
    expect(text).toMatch(
      /^rebuild: not all resources of the last generation were released: .* cudaStreamDestroy/,
    );
    expect(how).toEqual({ type: "TwincclClose" });
  } finally {
    warn.mockRestore();
  }
});

test("survivors in calls learn of the rebuild as late as possible", async () => {
  const ranks = await joinAll(3, "off", fakeGpus());
  const joinedMs = performance.now();
  await onAll(ranks, ({ comm }) => comm.barrier());
  // Each looks once a second for calls that were open at the look before: ones made right after a look wait for two more.
  const patienceMs = 1_005 - (performance.now() - joinedMs);
  await new Promise((resolve) => setTimeout(resolve, patienceMs));
  const [first, ...others] = ranks as [Joined, ...Joined[]];
  const late = others.map(async ({ comm }) => {
    expect(await errorOf(comm.barrier())).toMatchObject({ code: "ERR_COMM_ABORTED", ranks: [0] });
    return comm.rebuild();
  });
  const rebuilding = [first.comm.rebuild(), ...late];
  expect(await positions(rebuilding)).toEqual(["rank 0 of 3", "rank 1 of 3", "rank 2 of 3"]);
});
