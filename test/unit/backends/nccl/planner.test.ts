/** The planner of NCCL's plans is built for calls with symmetric memory and for `explain`, not for other calls. */
import type { Communicator } from "twinccl";
import { beforeEach, expect, test, vi } from "vitest";
import { cleanGpus, inWorld } from "./gpus.ts";

const built = vi.hoisted(() => {
  // Files before this one may have loaded the modules without the count.
  vi.resetModules();
  return { count: 0 };
});

vi.mock("../../../../src/algorithms/index.ts", async (original) => {
  const actual = await original<typeof import("../../../../src/algorithms/index.ts")>();
  const plannersOf: typeof actual.plannersOf = (options) => {
    built.count += 1;
    return actual.plannersOf(options);
  };
  return { ...actual, plannersOf };
});

beforeEach(() => {
  built.count = 0;
});

const sum = { collective: "allReduce", dtype: "float16", op: "sum", count: 8 } as const;

/** The number of planners that a world of two ranks builds. */
async function builtBy(program: (comm: Communicator) => Promise<unknown>): Promise<number> {
  const gpus = cleanGpus();
  expect(gpus.machine.ncclVersion, "a version with known plans").toBe(22809);
  await inWorld(gpus, 2, (world) => world.run(program));
  return built.count;
}

test("calls without symmetric memory build none", async () => {
  const count = await builtBy(async (comm) => {
    const send = comm.alloc("float16", 8);
    const recv = comm.alloc("float16", 16);
    const peer = 1 - comm.rank;
    await comm.allReduce({ send, op: "sum" });
    await comm.allReduce({ send: comm.alloc("float8e4m3", 8), op: "avg" });
    await comm.allGather({ send, recv });
    await comm.sendRecv({ send, recv: recv.subarray(0, 8), to: peer, from: peer });
    await comm.barrier();
    expect(comm.supports(sum)).toBe(true);
  });
  expect(count).toBe(0);
});

test("calls with symmetric memory and explanations build one for their world", async () => {
  const symmetric = await builtBy(async (comm) => {
    const send = comm.alloc("float16", 8, { symmetric: true });
    await comm.allReduce({ send, op: "sum" });
    expect(built.count).toBe(1);
    comm.explain(sum);
  });
  expect(symmetric).toBe(1);
  built.count = 0;
  expect(await builtBy(async (comm) => comm.explain(sum))).toBe(1);
});

test("explanations follow the installed version", async () => {
  const call = { collective: "allReduce", dtype: "float32", op: "sum", count: 2 ** 20 } as const;
  const explained = async (ncclVersion: number): Promise<string> => {
    const gpus = cleanGpus({ ncclVersion });
    let text = "";
    await inWorld(gpus, 2, async (world) => {
      const { channels, claim } = world.explain(call);
      text = `${channels} ${claim}`;
    });
    return text;
  };
  expect(await explained(22809)).toMatch(
    / as NCCL 2\.28\.9 on h200x8 without in-switch reduction$/,
  );
  expect(await explained(22903)).toMatch(
    / as NCCL 2\.29\.3 on h200x8 .*: from the source, not measured$/,
  );
  await expect(explained(23100)).rejects.toThrow(/the plans of NCCL 2\.31\.0 are not known/);
  await expect(explained(32809)).rejects.toThrow(/the plans of NCCL 3\.28\.9 are not known/);
});
