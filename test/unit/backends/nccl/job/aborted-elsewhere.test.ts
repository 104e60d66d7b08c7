/** A rank aborts in the middle of a call: NCCL ends the kernels of the others with wrong elements, which are no result. */
import { describe, expect, test } from "vitest";
import type { Membership } from "../../../../../src/job/rendezvous.ts";
import { quickTime } from "../../../../support/quick-time.ts";
import { fragile, place } from "../../../job/stores.ts";
import { cleanGpus, turns } from "../gpus.ts";
import { closeAll, closeRest, errorOf, type Joined, joinAll, onAll } from "./joined.ts";

quickTime();

const pause = (ms: number) => new Promise((resolve) => setTimeout(resolve, ms));

/** A rank that adds up with the others. */
interface Summing extends Joined {
  readonly sum: () => PromiseLike<unknown>;
}

/** Three ranks after a first call. */
async function afterOneCall(members?: readonly Membership[]): Promise<readonly Summing[]> {
  const joined = await joinAll(3, "off", cleanGpus(), 60_000, members);
  const ranks = joined.map((joined): Summing => {
    const send = joined.comm.alloc("int32", 8).fill(1);
    return { ...joined, sum: () => joined.comm.allReduce({ send, op: "sum" }) };
  });
  await Promise.all(ranks.map(({ sum }) => sum()));
  return ranks;
}

describe("a call of a rank", () => {
  test("fails, begun after the abort of a rank and before that of another one", async () => {
    const ranks = await afterOneCall();
    const [waits, late, aborts] = ranks;
    const first = errorOf(waits!.sum());
    await pause(300);
    aborts!.comm.abort(new Error("as planned"));
    await pause(700);
    for (const error of [await errorOf(late!.sum()), await first])
      expect(error).toMatchObject({
        code: "ERR_COMM_ABORTED",
        ranks: [2],
        message: expect.stringMatching(/rank 2 has aborted it: as planned/),
      });
    await closeRest(ranks, [waits!.comm, late!.comm]);
  });

  test("has its result, where a rank without work under way aborts", async () => {
    const ranks = await afterOneCall();
    const [sends, receives, aborts] = ranks;
    const sent = errorOf(
      sends!.comm.send({ send: sends!.comm.alloc("int32", 8).fill(7), peer: 1 }),
    );
    await turns();
    aborts!.comm.abort(new Error("as planned"));
    await turns();
    const recv = receives!.comm.alloc("int32", 8);
    expect(await errorOf(receives!.comm.recv({ recv, peer: 0 }))).toBeUndefined();
    expect(await sent).toBeUndefined();
    expect([...(await recv.toHost())]).toEqual(new Array(8).fill(7));
    await closeRest(ranks, [sends!.comm, receives!.comm]);
  });

  test("fails, where the deadline of another rank passes", async () => {
    const ranks = await afterOneCall();
    const [patient, hurried] = ranks;
    const waiting = errorOf(patient!.sum());
    const send = hurried!.comm.alloc("int32", 8);
    const missed = await errorOf(hurried!.comm.allReduce({ send, op: "sum", timeoutMs: 100 }));
    expect(missed).toMatchObject({ code: "ERR_COMM_TIMEOUT", ranks: [2] });
    expect(await waiting).toMatchObject({ code: "ERR_COMM_ABORTED", ranks: [1] });
    await closeRest(ranks, [patient!.comm, ranks[2]!.comm]);
  });

  test("fails, where a rank is lost and another one aborts first", async () => {
    const links = await fragile(await place(3), 3);
    const ranks = await afterOneCall(links.map(({ member }) => member));
    const calls = ranks.slice(0, 2).map(({ sum }) => errorOf(sum()));
    await turns();
    links[2]!.cut();
    for (const error of await Promise.all(calls))
      expect(error).toMatchObject({ code: "ERR_COMM_LOST", ranks: [2] });
    await closeAll(ranks.slice(0, 2));
    await closeRest(ranks.slice(2));
  });
});

test.each([
  ["a first connection", "off"],
  ["a comparison", "always"],
] as const)("close ends %s that waits for a rank with an abort", async (_, compareCalls) => {
  const ranks = await joinAll(2, compareCalls, cleanGpus(), 60_000);
  const [waits, aborts] = await onAll(ranks, ({ comm }) => comm.split({ color: 0 }));
  const buffer = waits!.alloc("int32", 1);
  const call =
    compareCalls === "off"
      ? waits!.send({ send: buffer, peer: 1 })
      : waits!.allReduce({ send: buffer, op: "sum" });
  const failed = errorOf(call);
  await turns(20);
  const beganMs = performance.now();
  const closing = ranks[0]!.comm.close();
  await turns(20);
  aborts!.abort(new Error("as planned"));
  await Promise.all([closing, ranks[1]!.comm.close()]);
  expect(await failed).toMatchObject({ code: "ERR_COMM_CLOSED" });
  expect(performance.now() - beganMs).toBeLessThan(20_000);
});
