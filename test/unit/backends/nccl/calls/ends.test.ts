/** Ends of communicators, which are meetings of ranks in several processes: in whatever order these come, and called off. */
import type { Communicator } from "twinccl";
import { describe, expect, onTestFinished, test, vi } from "vitest";
import { fakeGpus, ncclError } from "../../../../support/fake-gpus/index.ts";
import { quickTime } from "../../../../support/quick-time.ts";
import { fragile, place } from "../../../job/stores.ts";
import { cleanGpus, turns } from "../gpus.ts";
import { closeAll, errorOf, type Joined, joinAll, onAll } from "../job/joined.ts";

quickTime();

/** The other ranks' end of a communicator is waited for twice as long. */
const soonMs = 5_000;

/** Runs work that needs no longer than ranks that are all there; no missing rank is reported. */
async function soon<T>(work: () => Promise<T>): Promise<T> {
  const warn = vi.spyOn(process, "emitWarning").mockReturnValue(undefined);
  onTestFinished(() => warn.mockRestore());
  const began = performance.now();
  const made = await work();
  expect(performance.now() - began).toBeLessThan(soonMs);
  expect(warn.mock.calls).toEqual([]);
  return made;
}

/** Communicators that both ranks waited for each other to end. */
const endedTogether = (a: Joined, b: Joined): string[] =>
  a.met.filter((key) => key.startsWith("end ") && b.met.includes(key));

/** Splits that all ranks join, by rank. */
const splits = (ranks: readonly Joined[], count: number): Promise<Communicator[][]> =>
  onAll(ranks, async ({ comm }) => {
    const made: Communicator[] = [];
    for (let at = 0; at < count; at++) {
      made.push(await comm.split({ color: 0 }));
    }
    return made;
  });

describe("ranks that are all in close()", () => {
  test.each<[string, orders: readonly (readonly number[])[]]>([
    ["close a split, or leave it to the world", [[], [0]]],
    ["close one split each, and leave the others to the world", [[0], [1], []]],
    ["close their splits in other orders, not all of them", [[0, 1], [2, 1], [1, 2, 0], [2]]],
  ])("%s", async (_, orders) => {
    const ranks = await joinAll(orders.length);
    const made = await splits(ranks, 3);
    await soon(() =>
      onAll(ranks, async ({ comm }) => {
        for (const at of orders[comm.rank] ?? []) {
          await made[comm.rank]?.[at]?.close();
          await turns(comm.rank);
        }
        await comm.close();
      }),
    );
  });
});

test("a window that cannot be released delays no rank, and is reported", async () => {
  const gpus = fakeGpus();
  const ranks = await joinAll(2, "off", gpus);
  await onAll(ranks, ({ comm }) =>
    comm.allReduce({ send: comm.alloc("int8", 1, { symmetric: true }), op: "sum" }),
  );
  gpus.machine.failNext(
    "deregisterWindow",
    ncclError("ncclCommWindowDeregister", 3, "ncclInternalError"),
  );
  const closing = await soon(() => Promise.allSettled(ranks.map(({ comm }) => comm.close())));
  expect(closing.map(({ status }) => status).toSorted()).toEqual(["fulfilled", "rejected"]);
  const { reason } = closing.find(({ status }) => status === "rejected") as PromiseRejectedResult;
  expect(reason).toMatchObject({ cCall: "ncclCommWindowDeregister" });
  expect(gpus.nccl.ends.size).toBe(0);
});

describe("an end that waits for another rank", () => {
  test.each([0, 1])("is called off by rebuild(), which rank %i calls first", async (first) => {
    const ranks = await joinAll(2);
    const [made] = await splits(ranks, 1);
    await made?.[0]?.close();
    await turns();
    const next = await soon(() => {
      const order = [ranks[first], ranks[1 - first]] as Joined[];
      return onAll(order, ({ comm }) => comm.rebuild());
    });
    expect(next.map(({ initialRanks }) => initialRanks)).toEqual([
      [0, 1],
      [0, 1],
    ]);
    await Promise.all(next.map((comm) => comm.close()));
  });

  test("is called off by rebuild() while the world is closing", async () => {
    const ranks = await joinAll(2);
    const [a, b] = ranks as [Joined, Joined];
    const closing = a.session.close();
    await turns();
    await soon(async () => {
      const next = a.session.rejoin(undefined);
      await closing;
      const comm = await b.comm.rebuild();
      await Promise.all([comm.close(), (await next).close()]);
    });
  });

  test.each([
    ["a split", 2],
    ["the world with all of its splits", 0],
  ])(
    "is called off when that rank has aborted %s, and other ends are not",
    async (which, together) => {
      const ranks = await joinAll(2, "off", cleanGpus());
      const made = await splits(ranks, which === "a split" ? 2 : 9);
      const [mine, others] = ranks.map(({ comm }) =>
        which !== "a split" ? comm : made[comm.rank]?.[0],
      ) as [Communicator, Communicator];
      others.abort(new Error("enough of this"));
      await soon(async () => {
        await mine.close();
        await closeAll(ranks);
      });
      expect(endedTogether(...(ranks as [Joined, Joined]))).toHaveLength(together);
    },
  );

  test("is called off when that rank's own wait has timed out", async () => {
    const ranks = await joinAll(2);
    const [a, b] = ranks as [Joined, Joined];
    const [mine, others] = (await splits(ranks, 1)).flat() as [Communicator, Communicator];
    const warn = vi.spyOn(process, "emitWarning").mockReturnValue(undefined);
    await mine.close();
    await a.session.close();
    warn.mockRestore();
    await soon(async () => {
      await others.close();
      await b.comm.close();
    });
    await a.comm.close();
  }, 40_000);

  test("is withdrawn from the store when it has timed out", async () => {
    const ranks = await joinAll(2);
    const [a, b] = ranks as [Joined, Joined];
    const [mine, others] = (await splits(ranks, 1)).flat() as [Communicator, Communicator];
    const warn = vi.spyOn(process, "emitWarning").mockReturnValue(undefined);
    await mine.close();
    await expect.poll(() => warn.mock.calls.length, { timeout: 20_000 }).toBe(1);
    warn.mockRestore();
    const key = a.met.find((each) => each.startsWith("end ")) as string;
    const barrier = b.membership.awaitBarriers([{ key, ranks: [0, 1] }], { timeoutMs: 50 });
    expect(await errorOf(barrier)).toMatchObject({ code: "ERR_COMM_TIMEOUT", ranks: [0] });
    await others.close();
    await closeAll(ranks);
  }, 40_000);

  test("is called off when that rank's process is gone, and other ends are not", async () => {
    const gpus = cleanGpus();
    const links = await fragile(await place(3), 3);
    const members = links.map(({ member }) => member);
    const ranks = await joinAll(3, undefined, gpus, 5_000, members);
    const [a, b, lost] = ranks as [Joined, Joined, Joined];
    const pairs = await onAll([a, b, lost], async ({ comm }) => [
      await comm.split({ color: comm.rank === 2 ? undefined : 0 }),
      await comm.split({ color: comm.rank === 1 ? undefined : 0 }),
    ]);
    await Promise.all(pairs[0]?.map((comm) => comm?.close()) ?? []);
    await turns();
    const sizesOn = (device: number): number[] =>
      [...gpus.nccl.ends.values()].flatMap((end) => (end.device === device ? end.clique.size : []));
    await soon(async () => {
      links[2]?.cut();
      // What the others had with it, they have ended alone.
      while (sizesOn(0).length > 1) await turns(1);
      await turns();
      expect([sizesOn(0), sizesOn(1)]).toEqual([[2], [2]]);
      await Promise.all([a, b].map(({ comm }) => comm.close()));
    });
    expect(endedTogether(a, b)).toHaveLength(1);
    lost.comm.abort();
    await lost.comm.close();
  });
});

test("a rank's end of its own communicators does not end those of other ranks", async () => {
  const warn = vi.spyOn(process, "emitWarning").mockReturnValue(undefined);
  onTestFinished(() => warn.mockRestore());
  const ranks = await joinAll(4, "off", fakeGpus());
  const halves = (await onAll(ranks, ({ comm }) =>
    comm.split({ color: Math.floor(comm.rank / 2) }),
  )) as [Communicator, Communicator, Communicator, Communicator];
  // Rank 2 ends what it has alone, and says so of it.
  const first = (ranks[2] as Joined).comm.rebuild();
  const early = halves[0].barrier();
  // As long as it takes to look for such words twice.
  await new Promise((resolve) => setTimeout(resolve, 2_500));
  await Promise.all([early, halves[1].barrier()]);
  const others = [0, 1, 3].map((rank) => (ranks[rank] as Joined).comm.rebuild());
  await Promise.all((await Promise.all([first, ...others])).map((comm) => comm.close()));
});
