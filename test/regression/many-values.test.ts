/** Lists that grow with ranks, counts or events: as arguments of one function call, some 100,000 of them overflow the stack. */
import { sim } from "twinccl/sim";
import { expect, test } from "vitest";
import { allocateHost } from "../../src/algorithms/host-memory.ts";
import type { CommInfo, RankCall } from "../../src/api/backend-entry.ts";
import { largest } from "../../src/api/largest.ts";
import type { BoundCall } from "../../src/backends/sim/executor.ts";
import { Runner } from "../../src/backends/sim/executors/wasm/runner.ts";
import { runStaged } from "../../src/backends/sim/executors/wasm/staging.ts";
import { timelineSvg } from "../../src/backends/sim/trace/timeline.ts";

const many = 130_000;

test("a call of many groups over memory outside of the arena runs in blocks", () => {
  const byteLength = 2 ** 19;
  const memory = allocateHost("sim:0", 0n, byteLength);
  memory.write(0, Uint8Array.of(7));
  const buffer = { memory, byteOffset: 0, byteLength };
  const copy = (chunk: number): BoundCall["plan"]["groups"][number] => [
    {
      operands: [{ kind: "contribution", place: { rank: 0, chunk } }],
      targets: [{ rank: 0, chunk: 1 }],
      final: true,
      reduces: false,
    },
  ];
  // Only the first group has bytes.
  const table = { offsets: Float64Array.of(0, 1), lengths: Float64Array.of(1, 0) };
  const call: BoundCall = {
    dtype: "uint8",
    plan: {
      groups: Array.from({ length: many }, (_, at) => copy(at === 0 ? 0 : 1)),
      inPlaceSafe: true,
      independent: true,
    },
    layout: { in: [table], out: [table] },
    inputs: [buffer],
    outputs: [buffer],
    folds: [],
    separate: undefined,
    inPlace: false,
  };
  runStaged(new Runner({ threads: 1 }), call);
  const read = new Uint8Array(2);
  memory.read(0, read);
  expect([...read]).toEqual([7, 7]);
});

test("a timeline has many events", () => {
  const events = Array.from(
    { length: many },
    (_, ts) => ({ name: "call", ph: "X", pid: ts % 8, tid: 0, ts, dur: 1 }) as const,
  );
  const svg = timelineSvg(events, "many");
  expect(svg.split("<title>call").length - 1).toBe(many);
});

test("a call that moves nothing ends on many ranks at once", async () => {
  const size = 131_072;
  const session = await sim({ phantom: true }).open({ size } as never);
  const ranks = Array.from({ length: size }, (_, rank) => rank);
  const comm: CommInfo = { id: 0, name: "world", ranks, local: ranks };
  const calls = ranks.map((rank) => ({ rank, finishedAtPs: rank }) as RankCall);
  session.scheduler.clock?.join({ comm, number: 0, collective: "split", calls });
  expect(calls.every(({ finishedAtPs }) => finishedAtPs === size - 1)).toBe(true);
});

test("the largest of many numbers", () => {
  const numbers = Float64Array.from({ length: many }, (_, at) => -at);
  expect(largest(numbers)).toBe(-0);
  expect(largest(numbers, 3)).toBe(3);
  expect(largest([])).toBe(Number.NEGATIVE_INFINITY);
  expect(largest([1, Number.NaN, 2])).toBeNaN();
});
