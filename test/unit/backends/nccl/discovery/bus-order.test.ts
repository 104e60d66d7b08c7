/** Explanations claim NCCL's bits only for ranks with GPUs in the order of the bus. */
import { type Communicator, createWorld, type Explanation } from "twinccl";
import { expect, test } from "vitest";
import { inBusOrder } from "../../../../../src/backends/nccl/discovery/bus-order.ts";
import { cudaError } from "../../../../support/fake-gpus/index.ts";
import { cleanGpus, inWorld } from "../gpus.ts";

const question = { collective: "allReduce", dtype: "float32", op: "sum", count: 1 << 20 } as const;
const unordered = /the ranks are not in the order of their devices/;

const claimIn = (comm: Communicator): string => (comm.explain(question) as Explanation).claim;

test("ranks on GPUs out of order claim nothing, and splits of them have their own claims", async () => {
  const gpus = cleanGpus();
  const claims = await inWorld(
    gpus,
    3,
    (world) =>
      world.run(async (comm) => {
        const split = await comm.split({ color: comm.rank === 0 ? 0 : 1, key: -comm.rank });
        return [claimIn(comm), claimIn(split)];
      }),
    [0, 5, 2],
  );
  for (const [whole] of claims) expect(whole).toMatch(unordered);
  // Ranks 2 and 1, on GPUs 2 and 5.
  expect(claims[1]?.[1]).not.toMatch(unordered);
  expect(claims[2]?.[1]).not.toMatch(unordered);
});

test("bus ids order the GPUs, not CUDA's numbers", async () => {
  const gpus = cleanGpus();
  const cuda = gpus.setup.libraries.cuda as { pciBusId: (device: number) => string };
  const buses = ["0000:9D:00.0", "0000:1B:00.0", "0000:43:00.0"];
  cuda.pciBusId = (device) => buses[device] as string;
  const claim = (devices: readonly number[]) =>
    inWorld(gpus, 3, async (world) => (await world.run(claimIn))[0], devices);
  expect(await claim([0, 1, 2])).toMatch(unordered);
  expect(await claim([1, 2, 0])).not.toMatch(unordered);
});

test("where the bus cannot be read the world opens, and claims nothing", async () => {
  const gpus = cleanGpus();
  const unknown = cudaError("cudaDeviceGetPCIBusId", 1, "cudaErrorInvalidValue");
  gpus.machine.failNext("pciBusId", unknown);
  const world = await createWorld({ backend: gpus.backend(), size: 2 });
  expect((await world.run(claimIn))[0]).toMatch(unordered);
  await world.close();
});

test("several hosts have no order", () => {
  const comm = { id: 0, name: "world", ranks: [0, 1], local: [0] };
  expect(inBusOrder(comm, ["a 0000:1B:00.0", "a 0000:43:00.0"]).ranks).toEqual([0, 1]);
  const [first, second] = inBusOrder(comm, ["a 0000:1B:00.0", "b 0000:43:00.0"]).ranks;
  expect(first).toBeGreaterThan(second as number);
});
