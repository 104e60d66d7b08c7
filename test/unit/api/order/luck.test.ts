/** Calls on different streams, in different orders: they are done, and the order is reported once, or is an error under `strict`. */
import type { CallOrderError, Communicator } from "twinccl";
import { sim } from "twinccl/sim";
import { describe, expect, onTestFinished, test, vi } from "vitest";
import type { CommInfo } from "../../../../src/api/backend.ts";
import { IssueOrder, type StreamEntry } from "../../../../src/api/ledger/streams.ts";
import { codesOf, inWorld, outcomesOf, turns } from "./orders.ts";

/** The warnings of order of a test. */
function warningsOf(): string[] {
  const found: string[] = [];
  const spy = vi.spyOn(process, "emitWarning").mockImplementation((text, kind) => {
    if (String(kind) === "TwincclOrder") found.push(String(text));
  });
  onTestFinished(() => spy.mockRestore());
  return found;
}

/** A communicator of all ranks on the shared stream, and one with streams of its own. */
async function two(comm: Communicator): Promise<[shared: Communicator, own: Communicator]> {
  return [await comm.split({ color: 0 }), await comm.split({ color: 0, stream: "own" })];
}

describe("calls on different streams", () => {
  test.each([true, false])(
    "in different orders are reported once; awaited in between: %s",
    async (isAwaited) => {
      const warnings = warningsOf();
      await inWorld(3, async (comm) => {
        const [shared, own] = await two(comm);
        const x = () => shared.barrier();
        const y = () => own.barrier();
        for (let i = 0; i < 3; i++) {
          if (comm.rank === 1) await Promise.all([y(), x()]);
          else if (isAwaited) {
            await x();
            await y();
          } else await Promise.all([x(), y()]);
          await comm.barrier();
        }
      });
      expect(warnings).toHaveLength(1);
      const [headline, ...rows] = warnings[0]?.split("\n") ?? [];
      expect(headline).toBe(
        'ranks made calls on "world/0" and "world/0#2" in different orders, on different streams',
      );
      expect(rows.at(-1)).toMatch(/^hint: NCCL does not promise/);
      expect(rows.find((row) => row.includes("rank 1"))).toMatch(
        /call 0 on "world\/0#2" +before barrier: call 0 on "world\/0"/,
      );
    },
  );

  test("in different orders are reported for messages too, also when those are over", async () => {
    const warnings = warningsOf();
    await inWorld(2, async (comm) => {
      const [shared, own] = await two(comm);
      const data = new Int8Array(1);
      if (comm.rank === 0) {
        await own.send({ send: data, peer: 1 });
        await shared.barrier();
      } else await Promise.all([shared.barrier(), own.recv({ recv: data, peer: 0 })]);
    });
    expect(warnings).toHaveLength(1);
    expect(warnings[0]).toMatch(/rank 0 {2}send: .*before barrier: /);
    expect(warnings[0]).toMatch(/rank 1 {2}barrier: .*before recv: /);
  });

  test("of each pair of communicators have a report of their own", async () => {
    const warnings = warningsOf();
    await inWorld(2, async (comm) => {
      const [shared, own] = await two(comm);
      const other = await comm.split({ color: 0, stream: "own" });
      for (const second of [own, other, own]) {
        const calls = [() => shared.barrier(), () => second.barrier()];
        if (comm.rank === 1) calls.reverse();
        await Promise.all(calls.map((call) => call()));
        await comm.barrier();
      }
    });
    expect(warnings.map((each) => /and "(\S+)"/.exec(each)?.[1])).toEqual([
      "world/0#2",
      "world/0#3",
    ]);
  });

  test("in one order are not reported, however far ranks run ahead", async () => {
    const warnings = warningsOf();
    await inWorld(4, async (comm) => {
      const [shared, own] = await two(comm);
      const half = await comm.split({ color: comm.rank % 2, stream: "own" });
      const open: PromiseLike<unknown>[] = [];
      for (let i = 0; i < 20; i++) {
        if (comm.rank === i % 4) await turns(1);
        open.push(shared.barrier(), own.barrier(), half.barrier());
        if ((comm.rank + i) % 3 === 0) await open.at(-1);
      }
      await Promise.all(open);
    });
    expect(warnings).toEqual([]);
  });

  test("are not reported behind a barrier, in another order than before it", async () => {
    const warnings = warningsOf();
    await inWorld(2, async (comm) => {
      const [shared, own] = await two(comm);
      await shared.barrier();
      await own.barrier();
      await comm.barrier();
      await own.barrier();
      await shared.barrier();
    });
    expect(warnings).toEqual([]);
  });

  test("in different orders are an error under `strict`, on all ranks", async () => {
    const warnings = warningsOf();
    const seen = await inWorld(
      3,
      async (comm) => {
        const [shared, own] = await two(comm);
        const x = () => shared.barrier();
        const y = () => own.barrier();
        const found =
          comm.rank === 1
            ? await outcomesOf([y(), x()])
            : [...(await outcomesOf([x()])), ...(await outcomesOf([y()]))];
        const again = await outcomesOf([shared.barrier(), own.barrier()]);
        await comm.barrier();
        return { found, again };
      },
      { backend: sim({ strict: true }) },
    );
    expect(warnings).toEqual([]);
    for (const { found, again } of seen) {
      const errors = found.filter((each) => each !== "done") as CallOrderError[];
      expect(errors.length).toBeGreaterThan(0);
      for (const error of [...errors, ...again]) {
        expect(error).toMatchObject({ code: "ERR_COMM_ORDER" });
        expect(
          (error as CallOrderError).orders.find(({ rank }) => rank === 1)?.calls,
        ).toMatchObject([
          { comm: "world/0#2", call: 0 },
          { comm: "world/0", call: 0 },
        ]);
      }
    }
  });

  test("do not wait for each other where one communicator has streams of its own", async () => {
    const warnings = warningsOf();
    const seen = await inWorld(2, async (comm) => {
      const [shared, own] = await two(comm);
      const calls = [() => shared.barrier(), () => own.barrier()];
      if (comm.rank === 1) calls.reverse();
      return codesOf(calls.map((call) => call()));
    });
    expect(seen).toEqual(new Array(2).fill(["done", "done"]));
    expect(warnings).toHaveLength(1);
  });
});

describe("the order of issue", () => {
  const comms = [0, 1].map((id): CommInfo => ({ id, name: `${id}`, ranks: [0, 1], local: [0, 1] }));
  const entry = (serial: number, comm = comms[serial % 2] as CommInfo): StreamEntry => ({
    ...{ comm, serial, isOver: false },
  });

  test("keeps a bounded number of calls behind one that stays open", () => {
    const order = new IssueOrder<StreamEntry>();
    const open = entry(1);
    for (const rank of [0, 1]) order.push(rank, open, false);
    for (let serial = 2; serial < 20_000; serial++) {
      const next = entry(serial);
      // Every other rank makes two calls the other way round.
      for (const rank of serial % 3 === 0 ? [1, 0] : [0, 1])
        order.push(rank, next, serial % 5 === 0);
      next.isOver = true;
      order.retire(next);
    }
    const lengths = order.ofComm(comms[0] as CommInfo).map(({ length }) => length);
    for (const length of lengths) expect(length).toBeLessThanOrEqual(4096);
    expect(order.reordered.size).toBeLessThanOrEqual(2 * 4096);
  });

  test("keeps none of the calls that are over on all ranks", () => {
    const order = new IssueOrder<StreamEntry>();
    const entries = Array.from({ length: 100 }, (_, at) => entry(at + 1));
    for (const rank of [0, 1]) for (const each of entries) order.push(rank, each, false);
    for (const each of [...entries].reverse()) {
      each.isOver = true;
      order.retire(each);
    }
    expect(order.ofComm(comms[0] as CommInfo).map(({ length }) => length)).toEqual([0, 0]);
    expect(order.reordered.size).toBe(0);
  });
});
