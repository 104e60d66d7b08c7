/** Repeated calls by ranks of different processes: the missing ranks, and the comparisons. */
import type { CallOptions, CommError, CommOp, ConnectedCommunicator, DeviceBuffer } from "twinccl";
import { describe, expect, test } from "vitest";
import { within } from "../../../../support/planted.ts";
import { quickTime } from "../../../../support/quick-time.ts";
import { watchRepeats } from "../../../../support/watched-repeats.ts";
import { cleanGpus, turns } from "../gpus.ts";
import { closeAll, type Joined, joinAll, onAll } from "./joined.ts";

quickTime();

describe("repeated calls in a job", () => {
  test.each([
    ["a new call", ({ comm }: Joined, options: CallOptions = {}) => comm.barrier(options)],
    ["one more of them", (joined: Joined, options?: CallOptions) => allReduce(joined, options)],
  ])("count in a deadline's query for missing ranks in %s", async (_, call) => {
    const ranks = await joinAll(3);
    for (let round = 0; round < 3; round++) await onAll(ranks, reduceAgain);
    // Rank 2 stays away from call 3.
    const [asker, other, away] = ranks as [Joined, Joined, Joined];
    const waiting = call(other).catch((error) => (error as CommError).code);
    const late = call(asker, { timeoutMs: 60 }).catch((error) => error);
    expect(await within(5000, late)).toMatchObject({
      code: "ERR_COMM_TIMEOUT",
      call: 3,
      ranks: [2],
    });
    const alone = call(away).catch((error) => (error as CommError).code);
    for (const { comm } of ranks) comm.abort(new Error("enough"));
    expect(await Promise.all([waiting, alone])).toEqual(["ERR_COMM_ABORTED", "ERR_COMM_ABORTED"]);
    await closeAll(ranks);
  });

  test('are compared every time with compareCalls: "always"', async () => {
    const ranks = await joinAll(2, "always");
    for (let round = 0; round < 3; round++) await onAll(ranks, reduceAgain);
    const compared = ["call world 0", "call world 1", "call world 2"];
    expect(ranks.map((joined) => joined.compared)).toEqual([compared, compared]);
    const outcomes = await onAll(ranks, (joined) =>
      (joined.comm.rank === 0 ? reduceAgain(joined) : joined.comm.barrier()).then(
        () => "done",
        (error) => [(error as CommError).code, (error as CommError).call],
      ),
    );
    expect(outcomes).toEqual([
      ["ERR_COMM_MISMATCH", 3],
      ["ERR_COMM_MISMATCH", 3],
    ]);
    expect(await onAll(ranks, reduceAgain)).toEqual([16, 16]);
    await closeAll(ranks);
  });

  test.each([
    ["once", ["call world 0", "call world 3"]],
    ["off", []],
  ] as const)(
    "are submitted without a comparison with compareCalls: %j",
    async (compareCalls, compared) => {
      const ranks = await joinAll(2, compareCalls);
      const again = ranks.map(({ session }) => watchRepeats(session));
      for (let round = 0; round < 3; round++) await onAll(ranks, reduceAgain);
      await onAll(ranks, ({ comm }) => comm.barrier());
      await onAll(ranks, reduceAgain);
      await onAll(ranks, ({ comm }) => comm.barrier());
      expect(ranks.map((joined) => joined.compared)).toEqual([compared, compared]);
      for (const { numbers } of again) expect(numbers).toEqual([1, 2, 4, 5]);
      await closeAll(ranks);
    },
  );

  test("follow an exchange that is under way, with the next number", async () => {
    const gpus = cleanGpus();
    const ranks = await joinAll(2, undefined, gpus);
    const again = ranks.map(({ session }) => watchRepeats(session));
    const data = ranks.map(({ comm }) => comm.alloc("int32", 2).fill(comm.rank + 1));
    for (let round = 0; round < 2; round++) await onAll(ranks, reduceAgain);
    gpus.machine.hold();
    const made = ranks.map((joined, rank) => {
      const send = data[rank] as DeviceBuffer<"int32">;
      const exchange = joined.comm.allToAllv({ send, sendCounts: [1, 1] });
      return { exchange, ops: [allReduce(joined), allReduce(joined)] };
    });
    const statuses = () =>
      made.map(({ exchange, ops }) => [exchange, ...ops].map((op) => op.status));
    await turns(5);
    const waiting = new Array<string>(3).fill("waiting");
    expect(statuses()).toEqual([waiting, waiting]);
    gpus.machine.release();
    for (const { exchange, ops } of made) {
      const { recv } = await exchange;
      await Promise.all(ops);
      expect([exchange, ...ops].map(({ call }) => call)).toEqual([2, 3, 4]);
      expect([...(await recv.toHost())]).toEqual([1, 2]);
    }
    await onAll(ranks, reduceAgain);
    for (const { numbers } of again) expect(numbers).toEqual([1, 3, 4, 5]);
    await closeAll(ranks);
  });
});

const buffers = new WeakMap<ConnectedCommunicator, DeviceBuffer<"int32">>();

/** The same call every time. */
function allReduce({ comm }: Joined, options: CallOptions = {}): CommOp<DeviceBuffer<"int32">> {
  const send = buffers.get(comm) ?? comm.alloc("int32", 1).fill(1);
  buffers.set(comm, send);
  return comm.allReduce({ send, op: "sum", ...options });
}

/** Awaits it; gives the sum, which doubles. */
async function reduceAgain(joined: Joined): Promise<number> {
  return (await (await allReduce(joined)).toHost())[0] as number;
}
