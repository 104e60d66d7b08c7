/** Options of a kind that none of their type is, as they come from JavaScript: refused by name, before anything happens. */
import fc from "fast-check";
import { type Communicator, connect, createWorld, InvalidArgumentError } from "twinccl";
import { type BenchOptions, bench } from "twinccl/bench";
import { nccl } from "twinccl/nccl";
import { DataParallel, lion, ParameterSet, Sampler, sgd } from "twinccl/parallel";
import { failAt, sim } from "twinccl/sim";
import { checkProperty, programs, runProgram } from "twinccl/testing";
import { webgpu } from "twinccl/webgpu";
import { describe, expect, test } from "vitest";

const wrong = <T>(value: unknown): T => value as T;

const backend = sim();
const sizes = { min: 8, max: 8 };
const measured = (options: object): Promise<unknown> =>
  bench(wrong<BenchOptions>({ backend, collective: "allReduce", ranks: 2, sizes, ...options }));
const program = fc.sample(programs(), 1)[0] as never;

/** Options that enumeration leaves out. */
class Getters {
  get strict() {
    return "yes" as never;
  }
}

const entries: [string, string, () => unknown][] = [
  ["sim", "strict", () => sim(new Getters())],
  ["sim", "schedule", () => sim(Object.defineProperty({}, "schedule", { value: "unknown" }))],
  ["sim", "algorithms", () => sim({ algorithms: wrong(null) })],
  ["sim", "algorithms", () => sim({ algorithms: wrong("ring") })],
  ["sim", "plan", () => sim({ like: "nccl-2.28", plan: wrong("Ring") })],
  ["sim", "link", () => sim({ link: wrong("fast") })],
  ["sim", "faults", () => sim({ faults: wrong(failAt(0, 0)) })],
  ["sim", "cal", () => sim({ faults: [wrong({ rank: 0, cal: 0 })] })],
  ["sim", "call", () => sim({ faults: [failAt(1, 1), wrong({ rank: 0, call: "0" })] })],
  ["sim", "strict", () => sim({ strict: wrong("yes") })],
  ["sim", "phantom", () => sim({ phantom: wrong(1) })],
  ["sim", "trace", () => sim({ trace: wrong(true) })],
  ["sim", "executor", () => sim({ executor: wrong("wasm") })],
  ["sim", "executor", () => sim({ executor: wrong(null) })],
  ["sim", "topology", () => sim({ like: "nccl-2.28", topology: wrong({ xm: "" }) })],
  ["sim", "topology", () => sim({ like: "nccl-2.28", topology: wrong(null) })],
  ["sim", "like", () => sim({ like: wrong(null) })],
  ["sim", "like", () => sim({ like: wrong(["nccl-2.28"]) })],
  ["sim", "plan.rings", () => sim({ like: "nccl-2.28", plan: { rings: wrong(null) } })],
  ["nccl", "nvls", () => nccl({ nvls: wrong("on") })],
  ["nccl", "readPlan", () => nccl({ readPlan: wrong(1) })],
  ["nccl", "ncclLibrary", () => nccl({ ncclLibrary: wrong(3) })],
  ["nccl", "plan", () => nccl({ plan: wrong("Ring") })],
  ["nccl", "devices", () => nccl({ devices: wrong(0) })],
  ["webgpu", "device", () => webgpu({ device: wrong({}) })],
  ["webgpu", "device", () => webgpu({ device: wrong("0") })],
  ["webgpu", "dawn", () => webgpu({ dawn: wrong("backend=vulkan") })],
  ["webgpu", "dawn[1]", () => webgpu({ dawn: ["backend=vulkan", wrong(7)] })],
  ["webgpu", "dawn[0]", () => webgpu({ dawn: new Array(1) })],
  ["webgpu", "powerPreference", () => webgpu({ powerPreference: wrong("most") })],
  ["webgpu", "keepDevice", () => webgpu({ keepDevice: wrong("yes") })],
  ["webgpu", "limits", () => webgpu({ limits: wrong(null) })],
  ["webgpu", "limits.windows", () => webgpu({ limits: { windows: 0 } })],
  ["webgpu", "limits.windowBytes", () => webgpu({ limits: { windowBytes: 300 } })],
  ["webgpu", "limits.bufferBytes", () => webgpu({ limits: { bufferBytes: 100 } })],
  ["createWorld", "name", () => createWorld({ backend, size: 2, name: wrong(7) })],
  ["createWorld", "onStall", () => createWorld({ backend, size: 2, onStall: wrong(7) })],
  ["createWorld", "backend", () => createWorld({ backend: wrong(sim), size: 2 })],
  ["connect", "signal", () => connect({ backend, signal: wrong({ aborted: true }) })],
  ["connect", "name", () => connect({ backend, name: wrong(null) })],
  ["sgd", "nesterov", () => sgd({ learningRate: 1, nesterov: wrong("yes") })],
  ["lion", "betas", () => lion({ learningRate: 1, betas: wrong(0.9) })],
  [
    "Sampler",
    "shuffle",
    () => new Sampler({ samples: 4, batch: 2, rank: 0, size: 1, shuffle: wrong("no") }),
  ],
  ["bench", "sizes", () => measured({ sizes: undefined })],
  ["bench", "sizes", () => measured({ sizes: "8" })],
  ["bench", "sizes.minBytes", () => measured({ sizes: { minBytes: 8, maxBytes: 16 } })],
  ["bench", "dtypes", () => measured({ dtypes: "float32" })],
  ["bench", "dtypes", () => measured({ dtypes: ["float33"] })],
  ["bench", "ops", () => measured({ ops: ["summ"] })],
  ["bench", "mode", () => measured({ mode: "grap" })],
  ["bench", "check", () => measured({ check: "no" })],
  ["bench", "seed", () => measured({ seed: "7" })],
  ["bench", "spread", () => measured({ spread: 2 })],
  ["bench", "onResult", () => measured({ onResult: "table" })],
  [
    "checkProperty",
    "command",
    () => checkProperty(fc.nat(), () => undefined, wrong({ command: 3 })),
  ],
  ["runProgram", "pace", () => runProgram(backend, program, { pace: wrong(3) })],
];

describe("an option of another kind is refused by name", () => {
  test.each(entries)("by %s: %s, case %#", async (_, field, work) => {
    const error = await Promise.resolve()
      .then(work)
      .then(() => undefined)
      .catch((thrown: unknown) => thrown);
    expect(error).toBeInstanceOf(InvalidArgumentError);
    expect(error).toMatchObject({ code: "ERR_COMM_ARG", field });
    expect((error as Error).message).toMatch(/needs .+/);
  });

  test("on a rank, before anything happens", async () => {
    const onRank: ((comm: Communicator) => unknown)[] = [
      (comm) => comm.alloc("int8", 1, { symmetric: wrong("yes") }),
      (comm) =>
        DataParallel.create(comm, new ParameterSet([{ name: "w", dtype: "float32", shape: [2] }]), {
          now: wrong(7),
        }),
    ];
    const world = await createWorld({ backend, size: 1 });
    const codes = await world.run(async (comm) => {
      const outcomes: unknown[] = [];
      for (const work of onRank) {
        try {
          outcomes.push(await work(comm));
        } catch (error) {
          outcomes.push(error);
        }
      }
      return outcomes;
    });
    await world.close();
    expect(codes[0]).toMatchObject([
      { code: "ERR_COMM_ARG", field: "symmetric", rank: 0 },
      { code: "ERR_COMM_ARG", field: "now" },
    ]);
  });
});

test("an option that is undefined counts as left out", async () => {
  const none = undefined;
  const options = { trace: none, executor: none, strict: none, faults: none, algorithms: none };
  const world = await createWorld({ backend: sim(wrong(options)), size: 2 });
  await world.close();
  nccl(wrong({ nvls: none, plan: none, devices: none }));
  webgpu(wrong({ limits: none, dawn: none, device: none }));
});

test("a backend that was not called gets the hint to call it", async () => {
  const error = await createWorld({ backend: wrong(sim), size: 2 }).catch((thrown) => thrown);
  expect(error.message).toContain("found the function sim, needs a backend value");
  expect(error.message).toContain("call it: sim()");
});
