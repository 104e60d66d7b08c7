/** Work for each of many messages: objects that one message needs are made once, and what all share is made once for all. */
import type { Communicator } from "twinccl";
import { cpu, sim, wasm } from "twinccl/sim";
import { expect, onTestFinished, test, vi } from "vitest";
import type { Transfer } from "../../../../src/api/backend.ts";
import { bindTransfers } from "../../../../src/backends/sim/bind.ts";
import type { BoundCall } from "../../../../src/backends/sim/executor.ts";
import { FaultPlan } from "../../../../src/backends/sim/faults.ts";
import { StrictLending } from "../../../../src/backends/sim/strict.ts";
import { inWorld } from "../../../support/in-world.ts";

test("a message is one call from its posting to its end", async () => {
  const posting = vi.spyOn(FaultPlan.prototype, "strike");
  const posted = vi.spyOn(StrictLending.prototype, "acquire");
  const settled = vi.spyOn(StrictLending.prototype, "release");
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
  const made = new Set(posting.mock.calls.map(([, , call]) => call));
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

test("transfers of parts that follow each other on both sides are one copy", async () => {
  const bind = (comm: Communicator) => {
    const [from, to] = [comm.alloc("int8", 16), comm.alloc("int8", 16)];
    const message = (begin: number, end: number, at: number): Transfer => {
      const send = { send: from.subarray(begin, end) };
      const recv = { recv: to.subarray(at, at + end - begin) };
      return { send, recv } as unknown as Transfer;
    };
    const transfers = [
      message(0, 4, 0),
      message(4, 8, 4),
      message(8, 10, 12),
      message(12, 14, 14),
      message(14, 14, 8),
      message(14, 16, 8),
    ];
    return bindTransfers(transfers);
  };
  const [bound] = await inWorld(1, bind);
  const ranges = (buffers: BoundCall["inputs"] = []) =>
    buffers.map((buffer) => [buffer?.byteOffset, buffer?.byteLength]);
  expect(ranges(bound?.inputs)).toEqual([
    [0, 8],
    [8, 2],
    [12, 2],
    [14, 2],
  ]);
  expect(ranges(bound?.outputs)).toEqual([
    [0, 8],
    [12, 2],
    [14, 2],
    [8, 2],
  ]);
  expect(bound?.layout.in.map((table) => table?.lengths[0])).toEqual([8, 2, 2, 2]);
});

test.each([cpu(), wasm()])(
  "$name moves parts in and out of order to their places",
  async (executor) => {
    const length = 24;
    const order = [
      0, 1, 2, 3, 8, 9, 5, 4, 20, 21, 22, 23, 6, 7, 10, 11, 19, 18, 17, 16, 15, 14, 13, 12,
    ];
    const results = await inWorld(
      2,
      async (comm) => {
        const first = 100 * comm.rank;
        const from = comm.alloc("int32", length);
        from.copyFrom(Int32Array.from({ length }, (_, i) => first + i));
        const to = comm.alloc("int32", length);
        const peer = 1 - comm.rank;
        await comm.group(() => {
          for (const i of order) {
            comm.send({ send: from.subarray(i, i + 1), peer });
            comm.recv({ recv: to.subarray(i, i + 1), peer });
          }
        });
        return to.toHost();
      },
      sim({ executor }),
    );
    const expected = (rank: number) => Array.from({ length }, (_, i) => 100 * rank + i);
    expect(results.map((host) => [...host])).toEqual([expected(1), expected(0)]);
  },
);
