/** Every executor gives the bits of the reference executor, with any number of threads, in any memory. */
import { cpu, type Executor, wasm } from "twinccl/sim";
import { afterAll, describe, expect, test } from "vitest";
import { WasmExecutor } from "../../src/backends/sim/executors/wasm/wasm.ts";
import { foldingCases, Subject } from "../support/executor-calls.ts";
import { holds } from "../support/seed.ts";

/** Threads are called for the smallest call, and lists are cut finely. */
const threaded = (threads: number): Executor => new WasmExecutor({ threads, crossover: 0 });

const reference = new Subject("cpu", cpu());
const subjects = [
  new Subject("wasm, 1 thread", wasm({ threads: 1 })),
  new Subject("wasm, 2 threads", threaded(2)),
  new Subject("wasm, 3 threads", threaded(3)),
  new Subject("wasm, 7 threads", threaded(7)),
  new Subject("wasm, memory of one thread", new WasmExecutor({ threads: 4, shared: false })),
  new Subject("wasm, no room", new WasmExecutor({ threads: 1, maxBytes: 2 ** 21 })),
];

afterAll(async () => {
  for (const subject of [reference, ...subjects]) await subject.close();
});

describe("the same bits as the reference executor", () => {
  test.each(subjects)("$name", async (subject) => {
    await holds(
      foldingCases(700),
      async (drawn) => {
        expect(await subject.run(drawn)).toEqual(await reference.run(drawn));
      },
      80,
    );
  });
});
