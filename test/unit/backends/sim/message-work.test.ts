/** Work for each of many messages: objects that one message needs are made once, and what all share is made once for all. */
import type { Communicator } from "twinccl";
import { sim } from "twinccl/sim";
import { expect, onTestFinished, test, vi } from "vitest";
import type { Transfer } from "../../../../src/api/backend.ts";
import { SimObserver } from "../../../../src/backends/sim/observer.ts";
import { bindTransfers } from "../../../../src/backends/sim/transfers.ts";
import { inWorld } from "../../../support/in-world.ts";

test("a message is one call from its posting to its end", async () => {
  const posting = vi.spyOn(SimObserver.prototype, "posting");
  const posted = vi.spyOn(SimObserver.prototype, "posted");
  const settled = vi.spyOn(SimObserver.prototype, "settled");
  onTestFinished(() => void vi.restoreAllMocks());
  await inWorld(
    2,
    async (comm) => {
      const data = comm.alloc("int8", 1);
      if (comm.rank === 0) await comm.send({ send: data, peer: 1 });
      else await comm.recv({ recv: data, peer: 0 });
    },
    sim({ strict: true }),
  );
  const made = new Set(posting.mock.calls.map(([, call]) => call));
  expect(made.size).toBe(2);
  expect(new Set(posted.mock.calls.map(([, call]) => call))).toEqual(made);
  for (const [call] of settled.mock.calls) expect(made.has(call)).toBe(true);
});

test("messages share one table of offsets, which are all 0", async () => {
  const bind = (comm: Communicator) => {
    const message = (bytes: number): Transfer => {
      const buffer = comm.alloc("int8", bytes);
      return { send: { send: buffer }, recv: { recv: buffer } } as unknown as Transfer;
    };
    return bindTransfers([message(4), message(8), message(4)]).layout;
  };
  const [layout] = await inWorld(1, bind);
  const tables = layout?.in ?? [];
  expect(tables.map(({ lengths }) => [...lengths])).toEqual([[4], [8], [4]]);
  expect(tables.map(({ offsets }) => [...offsets])).toEqual([[0], [0], [0]]);
  expect(new Set(tables.map(({ offsets }) => offsets)).size).toBe(1);
});
