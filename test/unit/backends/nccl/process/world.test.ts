/** Worlds with pinned plans on fake GPUs: NCCL's variables over time, and the reports about calls. */
import { type Backend, createWorld } from "twinccl";
import type { NcclPin } from "twinccl/nccl";
import { afterEach, describe, expect, test, vi } from "vitest";
import { resolvePin } from "../../../../../src/algorithms/nccl/pin.ts";
import { openLocal, sessionSetup } from "../../../../../src/backends/nccl/open.ts";
import { pinnedConfig } from "../../../../../src/backends/nccl/process/pinned-start.ts";
import { PlanRecord } from "../../../../../src/backends/nccl/process/plan-log.ts";
import type { NcclCalls } from "../../../../../src/backends/nccl/result/nccl.ts";
import { fakeGpus } from "../../../../support/fake-gpus/index.ts";

/** The variables at a start. */
interface StartVariables {
  readonly start: "init" | "split";
  readonly algorithm: string | undefined;
  readonly protocol: string | undefined;
  readonly config: unknown;
}

function pinned(plan: NcclPin, fails = false) {
  const pin = resolvePin(plan);
  const starts: StartVariables[] = [];
  const read: string[] = [];
  const { setup } = fakeGpus();
  const { nccl } = setup.libraries;
  const note = (start: StartVariables["start"], config: unknown): void => {
    const { NCCL_ALGO: algorithm, NCCL_PROTO: protocol } = process.env;
    starts.push({ start, algorithm, protocol, config });
    if (fails) throw new Error("NCCL does not start");
  };
  const calls: NcclCalls = {
    ...nccl,
    initRank: (...args) => {
      note("init", args[4]);
      nccl.initRank(...args);
    },
    split: (...args) => {
      note("split", args[4]);
      nccl.split(...args);
    },
  };
  const backend: Backend = {
    name: "nccl",
    probe: () => ({ ok: true, reason: "fake GPUs" }),
    open: async ({ size, name }) =>
      openLocal(
        {
          ...setup,
          libraries: { ...setup.libraries, nccl: calls },
          config: pinnedConfig(pin),
          pin,
          readPlans: (comm) => read.push(comm),
        },
        Array.from({ length: size }, (_, device) => ({ device })),
        name,
      ),
  };
  return { backend, starts: starts, read };
}

const pin: NcclPin = { algorithm: "Tree", protocol: "LL", minChannels: 3, maxChannels: 3 };

test("NCCL gets the plan at the start and at a split, and no variable or file remains", async () => {
  const { backend, starts, read } = pinned(pin);
  const world = await createWorld({ backend, size: 2, name: "pinned" });
  expect(process.env).not.toHaveProperty("NCCL_ALGO");
  await world.run(async (comm) => {
    const buffer = comm.alloc("float32", 8);
    await comm.allReduce({ send: buffer, op: "sum" });
    await comm.split({ color: 0, key: comm.rank });
    expect(process.env).not.toHaveProperty("NCCL_PROTO");
  });
  const config = { minCTAs: 3, maxCTAs: 3 };
  const fact = { algorithm: "allreduce:tree", protocol: "LL", config };
  expect(starts).toEqual([
    ...[0, 1].map(() => ({ start: "init", ...fact })),
    ...[0, 1].map(() => ({ start: "split", ...fact })),
  ]);
  // After the start, after the call, after the split: whatever NCCL logged since belongs to that one.
  expect(read.slice(0, 2)).toEqual(["pinned", "pinned"]);
  expect(read).toHaveLength(3);
  const call = { collective: "allReduce", dtype: "float32", op: "sum", count: 1 << 20 } as const;
  const { algorithm, protocol, channels } = world.explain(call);
  expect({ algorithm, protocol, channels }).toEqual({
    ...{ algorithm: "Tree LL", protocol: "LL", channels: 3 },
  });
  await world.close();
});

test("nor after a start that fails", async () => {
  const { backend, starts } = pinned(pin, true);
  await expect(createWorld({ backend, size: 2 })).rejects.toThrow("NCCL does not start");
  expect(starts[0]).toMatchObject({ algorithm: "allreduce:tree" });
  expect(process.env).not.toHaveProperty("NCCL_ALGO");
  expect(process.env).not.toHaveProperty("NCCL_PROTO");
});

describe("splits that share resources of their parent are refused", () => {
  const name = "NCCL_COMM_SPLIT_SHARE_RESOURCES";
  const refusal = (found: string) => ({
    ...{ name: "InvalidArgumentError", field: name },
    message: expect.stringContaining(
      `nccl: ${name}: found ${found}, needs 0: a communicator that ends would end calls of its parent`,
    ),
  });
  afterEach(() => vi.unstubAllEnvs());

  test.each(["1", "2"])("before NCCL is used: %s", (found) => {
    vi.stubEnv(name, found);
    const { libraries } = fakeGpus().setup;
    const request = { pin: {}, size: 2, plans: new PlanRecord(), libraries };
    expect(() => sessionSetup({}, request)).toThrow(expect.objectContaining(refusal(found)));
  });

  test("before a split, where NCCL has read a file that says so", async () => {
    const { backend, starts } = pinned(pin);
    const world = await createWorld({ backend, size: 2 });
    vi.stubEnv(name, "1");
    const split = world.run((comm) => comm.split({ color: 0 }));
    await expect(split).rejects.toMatchObject({ cause: refusal("1") });
    vi.stubEnv(name, "0");
    await world.run((comm) => comm.split({ color: 0 }));
    expect(starts).toHaveLength(4);
    await world.close();
  });
});
