/** Launchers' variables: one family only, every number by name. */
import { connect } from "twinccl";
import { sim } from "twinccl/sim";
import { afterEach, describe, expect, test, vi } from "vitest";
import { type LauncherEnvironment, launcherEnvironment } from "../../../src/api/world/launchers.ts";
import {
  openmpi,
  slurm,
  torchrun,
  twinccl,
  type Variables,
} from "../../support/launcher-variables.ts";
import { errorOf } from "../job/stores.ts";

const read = (env: Variables): LauncherEnvironment => {
  const found = launcherEnvironment(env);
  if (found === undefined) throw new Error("no launcher was found");
  return found;
};
const faultOf = async (env: Variables) => errorOf((async () => launcherEnvironment(env))());

describe("a family", () => {
  test("of our own launcher", () => {
    expect(read(twinccl)).toEqual({
      ...{
        family: "twinccl launch",
        rank: 2,
        size: 4,
        localRank: 2,
        localSize: 4,
        jobId: "launch-1",
      },
      ...{ address: "127.0.0.1", port: 4711, secret: "0123456789abcdef", storeHost: "launcher" },
      ...{ file: undefined, isNetworkChosen: true },
    });
  });

  test("has an address of IPv6 with or without the brackets of URLs", () => {
    expect(read({ ...twinccl, TWINCCL_ADDRESS: "[::1]" }).address).toBe("::1");
    expect(read({ ...torchrun, MASTER_ADDR: "[fe80::1%eth0]" }).address).toBe("fe80::1%eth0");
    expect(read({ ...torchrun, MASTER_ADDR: "[node]" }).address).toBe("[node]");
  });

  test("of torchrun: our port differs from its agent's", () => {
    expect(read(torchrun)).toEqual({
      ...{ family: "torchrun", rank: 5, size: 8, localRank: 1, localSize: 4 },
      ...{ jobId: "torchrun-run-gpu1:29500-restart-1", address: "gpu1", port: 29501 },
      ...{ secret: undefined, storeHost: "rank 0", file: undefined, isNetworkChosen: false },
    });
  });

  test("of Open MPI", () => {
    const facts = { family: "Open MPI", rank: 3, size: 4, localRank: 3, localSize: 4 };
    expect(read(openmpi)).toMatchObject({ ...facts, jobId: "openmpi-ns.1", port: undefined });
    expect(read({ ...openmpi, PMIX_NAMESPACE: "" }).jobId).toBe("openmpi-job");
  });

  test("of a Slurm step", () => {
    const facts = { family: "Slurm", rank: 9, size: 11, localRank: 1, localSize: 3 };
    const found = read(slurm);
    expect(found).toMatchObject({ ...facts, jobId: "slurm-77.3", address: "gpu03" });
    expect(found.port).toBeGreaterThanOrEqual(20_000);
    expect(found.port).toBeLessThan(30_000);
    expect(read({ ...slurm, SLURM_STEP_ID: "4" }).port).not.toBe(found.port);
  });

  test.each([
    ["4", "0", 4],
    ["4(x2),3", "1", 4],
    ["4(x2),3", "3", undefined],
    ["1,2,3", "2", 3],
    ["nonsense", "0", undefined],
    [undefined, "0", undefined],
    ["4", undefined, undefined],
  ])("Slurm's tasks %s on node %s", (tasks, node, localSize) => {
    const env = { ...slurm, SLURM_STEP_TASKS_PER_NODE: tasks, SLURM_NODEID: node };
    expect(read(env).localSize).toBe(localSize);
  });

  test.each([
    ["gpu03", "gpu03"],
    ["gpu03,gpu04", "gpu03"],
    ["gpu[3,5-9]", "gpu3"],
    ["rack1-[007-008]-ib,x", "rack1-007-ib"],
    ["rack[1-2]n[3-4,7],x", "rack1n3"],
    [undefined, undefined],
  ])("Slurm's nodes %s begin with %s", (nodes, host) => {
    expect(read({ ...slurm, SLURM_STEP_NODELIST: nodes }).address).toBe(host);
  });

  test("is absent without variables, and in a Slurm allocation outside of a step", () => {
    expect(launcherEnvironment({ PATH: "/bin", RANK: "" })).toBeUndefined();
    for (const step of [undefined, "4294967291", "4294967290", "batch"]) {
      expect(launcherEnvironment({ ...slurm, SLURM_STEP_ID: step })).toBeUndefined();
    }
  });

  test("takes address, port, secret and file from our own variables", () => {
    const own = { TWINCCL_ADDRESS: "h", TWINCCL_PORT: "5", TWINCCL_SECRET: "s" };
    expect(read({ ...torchrun, ...own, TWINCCL_RENDEZVOUS_FILE: "/f" })).toMatchObject({
      ...{ family: "torchrun", address: "h", port: 5, secret: "s", file: "/f" },
      isNetworkChosen: true,
    });
  });
});

describe("two families", () => {
  test("the inner launcher counts, silently, before the Slurm step around it", () => {
    expect(read({ ...slurm, ...torchrun }).family).toBe("torchrun");
    expect(read({ ...slurm, ...openmpi }).family).toBe("Open MPI");
    expect(read({ ...slurm, ...torchrun, ...openmpi, ...twinccl }).family).toBe("twinccl launch");
  });

  test("torchrun and Open MPI that disagree are both shown", async () => {
    const error = await faultOf({ ...torchrun, ...openmpi });
    expect(error).toMatchObject({ code: "ERR_COMM_ARG", field: "rank" });
    expect(error.message).toContain(
      "torchrun and Open MPI disagree\n  torchrun  rank 5  size 8\n  Open MPI  rank 3  size 4",
    );
    const same = { OMPI_COMM_WORLD_RANK: "5", OMPI_COMM_WORLD_SIZE: "8" };
    expect(read({ ...torchrun, ...openmpi, ...same }).family).toBe("torchrun");
  });

  test("an incomplete one is named, with the set and the missing variables", async () => {
    const error = await faultOf({ RANK: "0", WORLD_SIZE: "2" });
    expect(error).toMatchObject({ code: "ERR_COMM_ARG", field: "LOCAL_RANK" });
    expect(error.message).toContain("torchrun is only half set");
    expect(error.message).toContain(
      "torchrun  set: RANK, WORLD_SIZE  missing: LOCAL_RANK, MASTER_ADDR, MASTER_PORT",
    );
  });

  test("mixed ones are both named, and never combined", async () => {
    const error = await faultOf({ RANK: "0", OMPI_COMM_WORLD_SIZE: "2" });
    expect(error.message).toContain("torchrun and Open MPI are only half set");
    const beside = await faultOf({ ...slurm, RANK: "0" });
    expect(beside.message).toMatch(/torchrun is only half set\n.*\n {2}Slurm +complete/);
  });

  test("an incomplete one of lower priority is ignored", () => {
    expect(read({ ...torchrun, OMPI_COMM_WORLD_RANK: "1" }).family).toBe("torchrun");
  });
});

describe("a wrong number", () => {
  test.each([
    ["RANK", "8"],
    ["RANK", "-1"],
    ["RANK", "1.5"],
    ["RANK", "0x1"],
    ["RANK", "1e0"],
    ["WORLD_SIZE", "0"],
    ["WORLD_SIZE", "many"],
    ["WORLD_SIZE", "65537"],
    ["LOCAL_RANK", "4"],
    ["LOCAL_WORLD_SIZE", "9"],
    ["MASTER_PORT", "65535"],
    ["TWINCCL_PORT", "0"],
  ])("%s=%s is refused by name", async (name, value) => {
    const error = await faultOf({ ...torchrun, [name]: value });
    expect(error).toMatchObject({ code: "ERR_COMM_ARG", field: name });
    expect(error.message).toContain(`launcher variable ${name}: found "${value}", needs a whole`);
  });
});

test.each(["Launcher", "rank 0", "1"])("TWINCCL_STORE=%s is refused by name", async (value) => {
  const error = await faultOf({ ...twinccl, TWINCCL_STORE: value });
  expect(error).toMatchObject({ code: "ERR_COMM_ARG", field: "TWINCCL_STORE" });
  expect(error.message).toContain(
    `launcher variable TWINCCL_STORE: found "${value}", needs launcher`,
  );
});

describe("a simulation, which has all ranks in one process", () => {
  afterEach(() => vi.unstubAllEnvs());

  const stub = (env: Variables): void => {
    for (const [name, value] of Object.entries(env)) vi.stubEnv(name, value);
  };
  const ofOne: Variables = {
    ...torchrun,
    ...{ RANK: "0", WORLD_SIZE: "1", LOCAL_RANK: "0", LOCAL_WORLD_SIZE: "1" },
  };

  test.each([
    ["twinccl launch", twinccl],
    ["torchrun", torchrun],
    ["Open MPI", openmpi],
    ["Slurm", slurm],
    ["torchrun", { ...torchrun, ...slurm }],
    ["twinccl launch", { ...twinccl, ...ofOne }],
  ] as const)("is refused in a job of several that %s started", async (by, env) => {
    stub(env);
    const { size } = read(env);
    const failure = await errorOf(connect({ backend: sim() }));
    expect(failure).toMatchObject({ code: "ERR_COMM_UNSUPPORTED", field: "size", size });
    expect(failure.hint).toMatch(new RegExp(`^${by} started ${size} processes: use createWorld`));
  });

  test.each([
    ["a job of one", ofOne],
    ["a job of one inside a larger one", { ...ofOne, ...slurm }],
    ["a batch script", { ...slurm, SLURM_STEP_ID: "4294967291" }],
  ])("is the whole job in %s", async (_, env) => {
    stub(env);
    const comm = await connect({ backend: sim() });
    expect(comm).toMatchObject({ rank: 0, size: 1 });
    await comm.close();
  });

  test("is refused in a shell with some variables of a launcher", async () => {
    stub({ WORLD_SIZE: "8", RANK: "1" });
    const failure = await errorOf(connect({ backend: sim() }));
    expect(failure).toMatchObject({ code: "ERR_COMM_ARG", field: "LOCAL_RANK" });
  });
});
