/** Calls that are made again run by a list that was kept: the bits of the reference executor, for new contents each time. */
import {
  type Communicator,
  createWorld,
  type DeviceBuffer,
  dtypeInfo,
  dtypes,
  type ReduceOp,
} from "twinccl";
import { cpu, type Executor, type SimOptions, sim, wasm } from "twinccl/sim";
import { afterEach, describe, expect, test, vi } from "vitest";
import { Runner } from "../../../../src/backends/sim/executors/wasm/runner.ts";
import { WasmExecutor } from "../../../../src/backends/sim/executors/wasm/wasm.ts";
import { payloadBytes } from "../../../../src/testing/payload.ts";
import { seedFor } from "../../../support/seed.ts";

const size = 3;
const rounds = 4;

type Call = (send: DeviceBuffer, recv: DeviceBuffer) => () => PromiseLike<unknown>;

/** Results of all rounds on the last rank: the same call each time, with other contents. */
async function results(
  executor: Executor,
  options: SimOptions,
  dtype: (typeof dtypes)[number],
  callOf: (comm: Communicator) => Call | Promise<Call>,
  inPlace: boolean,
): Promise<Uint8Array[]> {
  const world = await createWorld({ backend: sim({ ...options, executor }), size });
  const found = await world.run(async (comm) => {
    const length = 1001;
    const send = comm.alloc(dtype, length);
    const recv = inPlace ? send : comm.alloc(dtype, length);
    const call = (await callOf(comm))(send, recv);
    const seen: Uint8Array[] = [];
    for (let round = 0; round < rounds; round++) {
      const seed = seedFor(100 * dtypes.indexOf(dtype) + round);
      const bytes = payloadBytes({ dtype, payload: "bits", size, seed }, comm.rank, length);
      send.copyFrom(dtypeInfo[dtype].view(bytes.buffer, 0, length) as never);
      await call();
      seen.push(new Uint8Array((await recv.toHost()).buffer));
    }
    return seen;
  });
  await world.close();
  return found[size - 1] as Uint8Array[];
}

const again =
  (op: ReduceOp) =>
  (comm: Communicator): Call =>
  (send, recv) =>
  () =>
    comm.allReduce({ send, recv, op });

afterEach(() => vi.restoreAllMocks());

describe.each(dtypes)("%s", (dtype) => {
  const scalar = dtypeInfo[dtype].kind === "float" ? 1 / 3 : 7;
  const operators: ReduceOp[] = ["sum", "prod", "min", "max", "avg", { preMul: scalar }];
  test.each(operators)("%o", async (op) => {
    const plans: SimOptions[] = [
      { algorithms: { allReduce: "linear" } },
      { algorithms: { allReduce: "ring" } },
      // Products are fused or not by position.
      { like: "nccl-2.28", plan: { protocol: "LL128" } },
    ];
    for (const plan of plans) {
      for (const inPlace of [true, false]) {
        const needed = await results(cpu(), plan, dtype, again(op), inPlace);
        const found = await results(wasm({ threads: 1 }), plan, dtype, again(op), inPlace);
        for (let round = 0; round < rounds; round++) {
          const same = Buffer.compare(found[round] as Uint8Array, needed[round] as Uint8Array);
          expect(same, `round ${round}${inPlace ? ", in place" : ""}`).toBe(0);
        }
      }
    }
  });
});

test("the list that is written the second time is run from then on", async () => {
  const executor = new WasmExecutor({ threads: 1 });
  const run = vi.spyOn(Runner.prototype, "run");
  const runKept = vi.spyOn(Runner.prototype, "runKept");
  await results(executor, {}, "float32", again("sum"), false);
  expect(run).toHaveBeenCalledTimes(1);
  expect(runKept.mock.results.map(({ value }) => value)).toEqual([false, false, true, true, true]);
});

test("a call that is made once keeps no list", async () => {
  const executor = new WasmExecutor({ threads: 1 });
  const world = await createWorld({ backend: sim({ executor }), size });
  await world.run(async (comm) => {
    const warm = comm.alloc("int32", 64);
    await comm.allReduce({ send: warm, op: "sum" });
    await comm.barrier();
    const before = executor.runner.arena.live;
    await comm.barrier();
    for (let i = 0; i < 5; i++) await comm.allReduce({ send: warm.subarray(0, 32), op: "sum" });
    await comm.barrier();
    expect(executor.runner.arena.live).toBe(before);
  });
  await world.close();
});
