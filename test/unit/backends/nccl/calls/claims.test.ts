/**
 * NCCL's plans are trusted, and its bits claimed, where they are known alone: elsewhere `explain` says that nothing is
 * claimed, and symmetric calls at addresses that its kernels load wrongly are refused whichever kernel would run.
 */

import { type Communicator, createWorld, type Explanation } from "twinccl";
import type { Session } from "twinccl/backend";
import type { nccl as ncclBackend } from "twinccl/nccl";
import { describe, expect, test, vi } from "vitest";
import { DryRun } from "../../../../../src/backends/nccl/dry-run.ts";
import { openLocal } from "../../../../../src/backends/nccl/open.ts";
import { PlanRecord } from "../../../../../src/backends/nccl/process/plan-log.ts";
import { ProcessSettings } from "../../../../../src/backends/nccl/process/process-settings.ts";
import { withVariables } from "../../../../../src/backends/nccl/process/start-variables.ts";
import type { FakeGpus } from "../../../../support/fake-gpus/index.ts";
import { cleanGpus, inWorld } from "../gpus.ts";

const sum = { collective: "allReduce", dtype: "float16", op: "sum", count: 1 << 20 } as const;

/** The claim of a world about a sum, and the fate of a large one in symmetric memory at an odd element. */
async function said(gpus: FakeGpus, size: number, unusual?: string) {
  const setup = { ...gpus.setup, unusual };
  const devices = Array.from({ length: size }, (_, device) => ({ device }));
  const world = await createWorld({
    backend: {
      name: "nccl",
      probe: () => ({ ok: true, reason: "fake GPUs" }),
      open: async ({ name }): Promise<Session> => openLocal(setup, devices, name),
    },
    size,
  });
  try {
    const [first] = await world.run(async (comm: Communicator) => {
      const send = comm.alloc("float16", large + 1, { symmetric: true }).fill(1);
      const recv = comm.alloc("float16", large + 1, { symmetric: true });
      const call = (at: number) =>
        comm
          .allReduce({
            send: send.subarray(at, at + large),
            recv: recv.subarray(at, at + large),
            op: "sum",
          })
          .then(
            () => "made",
            (error: unknown) => (error as Error).message,
          );
      const aligned = await call(0);
      const claimOf = (symmetric?: boolean) =>
        (comm.explain({ ...sum, symmetric }) as Explanation).claim;
      return {
        ...{ aligned, misaligned: await call(1) },
        claims: [claimOf(), claimOf(true)],
        copies: (comm.explain({ ...sum, collective: "broadcast", op: undefined }) as Explanation)
          .claim,
      };
    });
    return first as NonNullable<typeof first>;
  } finally {
    await world.close();
  }
}

/** Elements of a sum for which NCCL 2.28 takes the direct kernel on 8 H200, which loads rightly everywhere. */
const large = 1 << 20;

const same = /^the same bits as NCCL 2\.28\.9 on h200x8/;
const refused =
  /symmetric float16 at an address that is no multiple of 4: this NCCL may give wrong/;

test("a known plan is claimed, and misaligned symmetric calls are made", async () => {
  const { claims, aligned, misaligned } = await said(cleanGpus(), 8);
  for (const claim of claims) expect(claim).toMatch(same);
  expect([aligned, misaligned]).toEqual(["made", "made"]);
});

describe.each<[string, Parameters<typeof cleanGpus>[0], number, string | undefined, string]>([
  ["older GPUs", { capability: "8.0" }, 8, undefined, "compute capability 9.0, not for 8.0"],
  ["newer GPUs", { capability: "12.0" }, 8, undefined, "compute capability 9.0, not for 12.0"],
  ["between them", { capability: "10.3" }, 4, undefined, "compute capability 9.0, not for 10.3"],
  ["more GPUs", { devices: 9 }, 9, undefined, "plans are known for 8 GPUs, not for 9"],
  ["NVLS", {}, 8, "in-switch reduction is on", "in-switch reduction is on"],
])("on %s", (_, machine, size, unusual, why) => {
  test("nothing is claimed, and every misaligned symmetric call is refused", async () => {
    const { claims, copies, aligned, misaligned } = await said(cleanGpus(machine), size, unusual);
    for (const claim of claims) {
      expect(claim).toMatch(/^a generic plan, no claim is made about NCCL's bits: /);
      expect(claim).toContain(why);
    }
    expect(copies).toMatch(/^copies bytes/);
    expect(aligned).toBe("made");
    expect(misaligned).toMatch(refused);
  });
});

test("symmetric blocks that NCCL 2.28.3 misplaces are refused, also on other GPUs", async () => {
  const refusalOn = async (ncclVersion: number, capability = "9.0"): Promise<string> => {
    const gpus = cleanGpus({ ncclVersion, capability });
    const [text = ""] = await inWorld(gpus, 2, (world) =>
      world.run((comm) => {
        const send = comm.alloc("float32", 2 * 8193, { symmetric: true });
        const recv = comm.alloc("float32", 8193, { symmetric: true });
        return comm.reduceScatter({ send, recv, op: "sum" }).then(
          () => "made",
          (error: unknown) => (error as Error).message,
        );
      }),
    );
    return text;
  };
  expect(await refusalOn(22_809)).toBe("made");
  expect(await refusalOn(22_803)).toMatch(/no multiple of 8: NCCL 2\.28\.3 moves them/);
  expect(await refusalOn(22_803, "8.0")).toMatch(/no multiple of 8: NCCL 2\.28\.3 may move/);
});

test("a single other GPU among known ones is enough", () => {
  const { libraries } = cleanGpus().setup;
  const places = ["0000:10:00.0", "0000:11:00.0"];
  const info = { id: 0, name: "world", ranks: [0, 1], local: [0, 1] };
  const claimOf = (capabilities: readonly number[]) =>
    new DryRun({ libraries, capabilities, places }, 2).explain(sum, info, 0).claim;
  expect(claimOf([9, 9])).toMatch(same);
  expect(claimOf([9, 12])).toMatch(/not for 12\.0/);
});

describe("settings of a process that change plans", () => {
  const unusualWith = (env: NodeJS.ProcessEnv, nvls = false): string | undefined => {
    const settings = new ProcessSettings(env);
    settings.settleNvls(nvls);
    settings.settle({}, false);
    return settings.unusual();
  };

  test("are empty by default, and for variables that change no plan", () => {
    expect(unusualWith({})).toBeUndefined();
    const env = {
      ...{ NCCL_DEBUG: "INFO", NCCL_BUFFSIZE: "65536", NCCL_SOCKET_IFNAME: "lo", PATH: "/bin" },
      ...{ NCCL_NVLS_ENABLE: "1", NCCL_MAX_P2P_NCHANNELS: "4", NCCL_SYM_CTAS: "" },
    };
    expect(unusualWith(env)).toBeUndefined();
  });

  test.each([
    ...["NCCL_HOSTID", "NCCL_SHM_DISABLE", "NCCL_COLLNET_ENABLE", "NCCL_PAT_ENABLE"],
    ...["NCCL_SYM_KERNEL", "NCCL_SYM_CTAS", "NCCL_WIN_ENABLE", "NCCL_CTA_POLICY"],
    ...["NCCL_MIN_CTAS", "NCCL_MAX_CTAS", "NCCL_MIN_NCHANNELS", "NCCL_MAX_NCHANNELS"],
    ...["NCCL_MAX_NRINGS", "NCCL_NTHREADS", "NCCL_ALGO", "NCCL_PROTO", "NCCL_TUNER_PLUGIN"],
  ])("contain %s", (name) => {
    expect(unusualWith({ [name]: "1" })).toBe(`${name} is set`);
  });

  test("contain requested in-switch reduction", () => {
    expect(unusualWith({}, true)).toBe("in-switch reduction is on");
  });

  test("persist after unsetting, because NCCL caches them; several are named", () => {
    const env: NodeJS.ProcessEnv = { NCCL_MAX_CTAS: "4" };
    const settings = new ProcessSettings(env);
    settings.settle({}, false);
    delete env["NCCL_MAX_CTAS"];
    env["NCCL_ALGO"] = "Tree";
    settings.settle({}, false);
    expect(settings.unusual()).toBe("NCCL_MAX_CTAS, NCCL_ALGO are set");
  });

  test("exclude variables that the library sets during a communicator's start", () => {
    const settings = new ProcessSettings();
    withVariables({ NCCL_ALGO: "Ring" }, () => settings.settle({}, false));
    expect(settings.unusual()).toBeUndefined();
  });
});

describe("options and environment change the claims", () => {
  /** The reason in the setup of a process of its own. */
  async function setupWith(options: Parameters<typeof ncclBackend>[0], env: NodeJS.ProcessEnv) {
    vi.resetModules();
    const stubbed = { NCCL_NVLS_ENABLE: undefined, ...env };
    for (const [name, value] of Object.entries(stubbed)) vi.stubEnv(name, value);
    try {
      const { sessionSetup } = await import("../../../../../src/backends/nccl/open.ts");
      const { libraries } = cleanGpus().setup;
      const opening = { pin: {}, size: 2, plans: new PlanRecord(), libraries };
      return sessionSetup({ ...options }, opening).unusual;
    } finally {
      vi.unstubAllEnvs();
    }
  }

  test("in-switch reduction", async () => {
    expect(await setupWith({}, { NCCL_NVLS_ENABLE: "1" })).toBeUndefined();
    expect(await setupWith({ nvls: true }, {})).toBe("in-switch reduction is on");
  });

  test("a variable", async () => {
    expect(await setupWith({}, { NCCL_SYM_CTAS: "8" })).toBe("NCCL_SYM_CTAS is set");
  });
});
