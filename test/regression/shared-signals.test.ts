/** One `AbortSignal` for many calls: one listener, whatever their number. */
import type { Communicator, DeviceBuffer } from "twinccl";
import { afterEach, describe, expect, test, vi } from "vitest";
import type { CommInfo } from "../../src/api/backend-entry.ts";
import type { CommError } from "../../src/api/index.ts";
import { CrossCheck, type StoreWaits } from "../../src/job/before-calls.ts";
import { inWorld } from "../support/in-world.ts";

/** More than the listeners that Node.js takes for a leak. */
const many = 40;

afterEach(() => {
  vi.useRealTimers();
});

/** A controller that counts its signal's listeners, and their most at a time. */
function counted() {
  const controller = new AbortController();
  const { signal } = controller;
  const listeners = new Set<unknown>();
  let most = 0;
  const { addEventListener, removeEventListener } = signal;
  vi.spyOn(signal, "addEventListener").mockImplementation((...args: unknown[]) => {
    listeners.add(args[1]);
    most = Math.max(most, listeners.size);
    Reflect.apply(addEventListener, signal, args);
  });
  vi.spyOn(signal, "removeEventListener").mockImplementation((...args: unknown[]) => {
    listeners.delete(args[1]);
    Reflect.apply(removeEventListener, signal, args);
  });
  return { controller, listeners, most: () => most };
}

describe("many calls with one signal", () => {
  test("add one listener, removed when the last call ends", async () => {
    const { controller, listeners, most } = counted();
    const { signal } = controller;
    await inWorld(2, async (comm) => {
      const send = comm.alloc("float32", 1).fill(1);
      for (let round = 0; round < 2; round++) {
        const ops = Array.from({ length: many }, () => comm.allReduce({ send, op: "max", signal }));
        await Promise.all(ops);
      }
    });
    expect(most()).toBe(1);
    expect(listeners.size).toBe(0);
  });

  test("of several worlds and of messages too", async () => {
    const { controller, most } = counted();
    const { signal } = controller;
    const exchange = async (comm: Communicator): Promise<void> => {
      const memory = comm.alloc("float32", 2 * many);
      const part = (at: number): DeviceBuffer => memory.subarray(at, at + 1);
      const peer = 1 - comm.rank;
      const ops = Array.from({ length: many }, (_, at) =>
        comm.sendRecv({ send: part(2 * at), to: peer, recv: part(2 * at + 1), from: peer, signal }),
      );
      await Promise.all(ops);
    };
    await Promise.all([inWorld(2, exchange), inWorld(2, exchange)]);
    expect(most()).toBe(1);
  });

  test("fail in the order in which they were made", async () => {
    const { controller, listeners } = counted();
    const { signal } = controller;
    const failed: number[] = [];
    const codes: unknown[] = [];
    await inWorld(2, async (comm) => {
      if (comm.rank > 0) return;
      const send = comm.alloc("float32", 1);
      comm.hooks.after(({ call }) => void failed.push(call));
      const ops = Array.from({ length: many }, () => comm.allReduce({ send, op: "sum", signal }));
      const settled = Promise.allSettled(ops);
      controller.abort(new Error("enough"));
      for (const each of await settled) {
        codes.push(each.status === "rejected" && (each.reason as CommError).code);
      }
    });
    expect(codes).toEqual(Array.from({ length: many }, () => "ERR_COMM_ABORTED"));
    expect(failed).toEqual(Array.from({ length: many }, (_, at) => at));
    expect(listeners.size).toBe(0);
  });

  test("may settle each other during cancellation", async () => {
    const { controller } = counted();
    const { signal } = controller;
    const outcomes: unknown[] = [];
    await inWorld(2, async (comm) => {
      if (comm.rank > 0) return;
      const cancelled = (at: number) =>
        comm.recv({ recv: comm.alloc("float32", 1), peer: 1, signal }).catch((error) => {
          outcomes.push([at, (error as CommError).message.split("\n")[0]]);
        });
      const first = cancelled(0);
      // The end of the first call makes another one, with a signal that has fired.
      const again = first.then(() => cancelled(2));
      const second = cancelled(1);
      controller.abort();
      await Promise.all([first, second, again]);
    });
    const text = "recv: cancelled by its signal before it was submitted";
    expect(outcomes).toEqual([
      [0, text],
      [1, text],
      [2, text],
    ]);
  });
});

test("long waits of ranks in several processes add one listener at a time", async () => {
  vi.useFakeTimers({ toFake: ["setTimeout", "clearTimeout"] });
  const { controller, listeners, most } = counted();
  let questions = 0;
  const comparisons = new CrossCheck(
    { rank: 0, size: 2, lost: [], exchange: () => new Promise(() => undefined) },
    "once",
    {
      keyOf: () => "world",
      onCompare: () => undefined,
      remoteEnd: () => undefined,
      missingRanks: {
        notSubmitted: async () => [1],
        onSubmitted: () => {
          questions++;
          return new Promise(() => undefined);
        },
      },
      waits: {
        run: (_: CommInfo, ask: (bounds: object) => Promise<unknown>) =>
          ask({ signal: controller.signal }),
      } as unknown as StoreWaits,
    },
  );
  const comm: CommInfo = { id: 0, name: "world", ranks: [0, 1], local: [0] };
  const words = { kind: "a", details: () => "[]" };
  void comparisons.compare(
    comm,
    0,
    () => words,
    () => undefined,
  );
  for (let at = 0; at < many; at++) await vi.advanceTimersByTimeAsync(600_000);
  expect(questions).toBe(1);
  expect(most()).toBe(1);
  controller.abort();
  expect(listeners.size).toBe(0);
});
