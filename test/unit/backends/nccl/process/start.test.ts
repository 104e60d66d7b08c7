/** NCCL's start with a pinned plan: variables around the start alone, graph files, and settings that hold for the process. */
import { existsSync, readFileSync, writeFileSync } from "node:fs";
import { dirname } from "node:path";
import { afterEach, describe, expect, onTestFinished, test, vi } from "vitest";
import { graphFile, graphTopology, h200x8 } from "../../../../../src/algorithms/index.ts";
import { resolvePin } from "../../../../../src/algorithms/nccl/pin.ts";
import { sessionSetup } from "../../../../../src/backends/nccl/open.ts";
import {
  graphsWithRing,
  needsVariables,
  pinnedConfig,
  reachingPin,
  startPinned,
  startPinnedJob,
} from "../../../../../src/backends/nccl/process/pinned-start.ts";
import { PlanLogFile, PlanRecord } from "../../../../../src/backends/nccl/process/plan-log.ts";
import { ProcessSettings } from "../../../../../src/backends/nccl/process/process-settings.ts";
import {
  afterStarts,
  startWithVariables,
  withVariables,
} from "../../../../../src/backends/nccl/process/start-variables.ts";
import { fakeGpus } from "../../../../support/fake-gpus/index.ts";

const names = ["NCCL_ALGO", "NCCL_PROTO", "NCCL_GRAPH_FILE", "NCCL_GRAPH_DUMP_FILE"];
const now = () => Object.fromEntries(names.map((name) => [name, process.env[name]]));

/** A promise, and what resolves it. */
function held(): [Promise<void>, () => void] {
  let end = (): void => undefined;
  const promise = new Promise<void>((resolve) => {
    end = resolve;
  });
  // Starts of later tests wait for it.
  onTestFinished(() => end());
  return [promise, () => end()];
}

afterEach(() => {
  for (const name of names) delete process.env[name];
});

describe("variables", () => {
  test("are set during a start, and restored", () => {
    process.env["NCCL_PROTO"] = "Simple";
    const before = now();
    const seen = withVariables({ NCCL_ALGO: "Ring", NCCL_PROTO: "LL" }, now);
    expect(seen).toMatchObject({ NCCL_ALGO: "Ring", NCCL_PROTO: "LL" });
    expect(now()).toEqual(before);
    expect(process.env).not.toHaveProperty("NCCL_ALGO");
  });

  test("of a start on another thread are not visible to starts without variables", async () => {
    const own = (): string | undefined => process.env["NCCL_ALGO"];
    expect(afterStarts(false, own)).toBeUndefined();
    let end = (): void => undefined;
    const ending = new Promise<void>((resolve) => {
      end = resolve;
    });
    const pinned = startWithVariables({ NCCL_ALGO: "Ring" }, async () => {
      await ending;
      return own();
    });
    await new Promise((resolve) => setImmediate(resolve));
    expect(own()).toBe("Ring");
    const others = Promise.all([
      afterStarts(false, own),
      startWithVariables({}, async () => own()),
    ]);
    end();
    expect(await pinned).toBe("Ring");
    expect(await others).toEqual([undefined, undefined]);
  });

  test("wait for running starts without variables, which do not wait for each other", async () => {
    let end = (): void => undefined;
    const ending = new Promise<void>((resolve) => {
      end = resolve;
    });
    const long = startWithVariables({}, () => ending);
    expect(await startWithVariables({}, async () => "beside it")).toBe("beside it");
    const order: string[] = [];
    const pinned = startWithVariables({ NCCL_ALGO: "Ring" }, async () => void order.push("pinned"));
    await new Promise((resolve) => setImmediate(resolve));
    order.push("long");
    end();
    await Promise.all([long, pinned]);
    expect(order).toEqual(["long", "pinned"]);
  });

  test("that other code sets meanwhile keep that value", async () => {
    process.env["NCCL_PROTO"] = "Simple";
    await startWithVariables({ NCCL_ALGO: "Ring", NCCL_PROTO: "LL" }, async () => {
      process.env["NCCL_ALGO"] = "Tree";
    });
    expect(now()).toMatchObject({ NCCL_ALGO: "Tree", NCCL_PROTO: "Simple" });
  });

  test("of another start delay starts without variables, and any start delays one with variables", async () => {
    const [[long, endLong], [pinned, endPinned]] = [held(), held()];
    void startWithVariables({}, () => long);
    expect(afterStarts(false, () => "at once")).toBe("at once");
    let mayBegin = false;
    const withOwn = afterStarts(true, () => {
      mayBegin = true;
    });
    await new Promise((resolve) => setImmediate(resolve));
    expect(mayBegin).toBe(false);
    endLong();
    await withOwn;
    void startWithVariables({ NCCL_ALGO: "Ring" }, () => pinned);
    const without = afterStarts(false, () => process.env["NCCL_ALGO"]);
    await new Promise((resolve) => setImmediate(resolve));
    expect(process.env["NCCL_ALGO"]).toBe("Ring");
    endPinned();
    expect(await without).toBeUndefined();
  });

  test("held too long by others are reported, and block no start for ever", async () => {
    const [long, end] = held();
    void startWithVariables({ NCCL_ALGO: "Ring" }, () => long);
    await new Promise((resolve) => setImmediate(resolve));
    for (const hasOwn of [false, true]) {
      const begun = vi.fn();
      await expect(afterStarts(hasOwn, begun, 20)).rejects.toMatchObject({
        code: "ERR_COMM_TIMEOUT",
        message: expect.stringContaining("were still starting after 20 ms"),
      });
      expect(begun).not.toHaveBeenCalled();
    }
    end();
    await afterStarts(true, () => undefined);
  });

  test("are restored when the start fails", async () => {
    const before = now();
    const fail = (): never => {
      throw new Error("no");
    };
    expect(() => withVariables({ NCCL_ALGO: "Ring" }, fail)).toThrow("no");
    expect(now()).toEqual(before);
    await expect(startWithVariables({ NCCL_ALGO: "Ring" }, async () => fail())).rejects.toThrow();
    expect(now()).toEqual(before);
  });

  test("of one start are not seen by the next, which waits", async () => {
    const seen: unknown[] = [];
    const start = (algorithm?: string) =>
      startWithVariables(algorithm === undefined ? {} : { NCCL_ALGO: algorithm }, async () => {
        await new Promise((resolve) => setTimeout(resolve, 5));
        seen.push(process.env["NCCL_ALGO"]);
      });
    await Promise.all([start("Ring"), start(), start("allreduce:tree")]);
    expect(seen).toEqual(["Ring", undefined, "allreduce:tree"]);
  });
});

test("limits go into the configuration, words into variables, Tree for all-reduces alone", () => {
  expect(pinnedConfig({ minChannels: 2, maxChannels: 4 })).toEqual({ minCTAs: 2, maxCTAs: 4 });
  expect(pinnedConfig({})).toEqual({});
  expect(reachingPin({ algorithm: "Ring", protocol: "LL128" }).variables).toEqual({
    NCCL_ALGO: "Ring",
    NCCL_PROTO: "LL128",
  });
  expect(reachingPin({ algorithm: "Tree" }).variables).toEqual({ NCCL_ALGO: "allreduce:tree" });
  expect(reachingPin({ variables: { NCCL_PROTO: "^LL", NCCL_MAX_CTAS: "3" } })).toEqual({
    maxChannels: 3,
    variables: { NCCL_PROTO: "^LL" },
  });
  expect(reachingPin(undefined)).toEqual({});
  for (const name of ["NCCL_DEBUG", "NCCL_NVLS_ENABLE"]) {
    const pin = { variables: { [name]: "0" } };
    expect(() => reachingPin(pin)).toThrow(`found ${name}, which NCCL reads once per process`);
  }
});

/** A start that does with graph files what NCCL does, and notes what it saw. */
function fakeStarts(found: string) {
  const seen: Record<string, string | undefined>[] = [];
  let aborted = 0;
  return {
    seen,
    aborted: () => aborted,
    start: () => {
      const { NCCL_GRAPH_DUMP_FILE: dump, NCCL_GRAPH_FILE: graph } = now();
      seen.push({ ...now(), xml: graph && readFileSync(graph, "utf8") });
      if (dump !== undefined) writeFileSync(dump, found);
      return { abort: async () => void aborted++ };
    },
  };
}

test("the variables that change settings are known", () => {
  const choices = [{ algorithm: "Ring" }, { protocol: "LL" }, { rings: [1, 0] }] as const;
  expect(choices.map((pin) => needsVariables(resolvePin(pin)))).toEqual([true, true, true]);
  expect([{}, { minChannels: 2 }, { buffSize: 4096 }].map(needsVariables)).not.toContain(true);
});

describe("a pinned ring", () => {
  // GPUs 2, 3 and 6 of a larger machine.
  const found = graphFile(h200x8(3), [2, 3, 6]);
  const places = ["0000:1B:00.0", "0000:43:00.0", "0000:52:00.0"];
  const pin = resolvePin({ algorithm: "Ring", rings: [0, 2, 1] });

  test("is given by a file like NCCL's own with another order", async () => {
    const fake = fakeStarts(found);
    await startPinned(pin, places, fake.start);
    const [first, pinned] = fake.seen;
    expect(first).toMatchObject({ NCCL_ALGO: undefined, NCCL_GRAPH_FILE: undefined });
    expect(pinned).toMatchObject({ NCCL_ALGO: "Ring", NCCL_GRAPH_DUMP_FILE: undefined });
    expect(fake.aborted()).toBe(1);
    const { channels } = graphTopology(pinned?.["xml"] as string)(3);
    expect(channels.every(({ ring }) => ring.join() === "0,2,1")).toBe(true);
    expect(channels.map(({ tree }) => tree)).toEqual(h200x8(3).channels.map(({ tree }) => tree));
    expect(existsSync(dirname(pinned?.["NCCL_GRAPH_FILE"] as string))).toBe(false);
    expect(now()).toEqual(Object.fromEntries(names.map((name) => [name, undefined])));
  });

  test("names the GPUs of the ranks, also when they are not in the order of the bus", () => {
    const four = graphFile(h200x8(4), [2, 3, 6, 7]);
    const bus = ["0000:43:00.0", "0000:1B:00.0", "0000:52:00.0", "0000:9D:00.0"];
    const xml = graphsWithRing(four, [0, 1, 2, 3], bus);
    // Rank 0 is GPU 3, rank 1 GPU 2: the ring 3, 2, 6, 7 turned to begin at the first GPU.
    const ring = /<channel>\s+((?:<gpu dev="\w+"\/>\s+)+)/.exec(xml)?.[1]?.match(/0x\d/g);
    expect(ring).toEqual(["0x2", "0x6", "0x7", "0x3"]);
    // NCCL 2.30 names the ranks too.
    const rankOf = new Map([2, 3, 6, 7].map((device, place) => [device, [1, 0, 2, 3][place]]));
    const ranked = four.replaceAll(
      /dev="(0x\d)"/g,
      (dev, text) => `${dev} rank="${rankOf.get(Number(text))}"`,
    );
    expect(graphsWithRing(ranked, [0, 1, 2, 3], bus)).toBe(xml);
  });

  test("leaves no variable, file or communicator when the start fails", async () => {
    const fake = fakeStarts("<graphs");
    const starting = startPinned(pin, places, fake.start);
    await expect(starting).rejects.toThrow(/topology xml: line 1/);
    expect(fake.aborted()).toBe(1);
    expect(existsSync(dirname(fake.seen[0]?.["NCCL_GRAPH_DUMP_FILE"] as string))).toBe(false);
    expect(process.env).not.toHaveProperty("NCCL_GRAPH_DUMP_FILE");
  });

  test("of a job is that of the graphs that rank 0 found", async () => {
    const fake = fakeStarts("what another process found is not looked at");
    const shared = new TextEncoder().encode(found);
    const which: string[] = [];
    const abortedBefore: number[] = [];
    await startPinnedJob(pin, places, {
      agreeOnId: async (each) => {
        which.push(each);
        return new Uint8Array(1);
      },
      begin: async () => {
        abortedBefore.push(fake.aborted());
        return fake.start();
      },
      share: async () => shared,
    });
    expect(which).toEqual(["first", "pinned"]);
    // Another rank may be in its first start when this one is done with it.
    expect(abortedBefore).toEqual([0, 0]);
    expect(fake.aborted()).toBe(1);
    expect(graphTopology(fake.seen[1]?.["xml"] as string)(3).channels[0]?.ring).toEqual([0, 2, 1]);
  });

  test("of a job leaves no communicator when its graphs are missing", async () => {
    const fake = fakeStarts(found);
    const starting = startPinnedJob(pin, places, {
      agreeOnId: async () => new Uint8Array(1),
      begin: async () => fake.start(),
      share: () => Promise.reject(new Error("rank 0 is lost")),
    });
    await expect(starting).rejects.toThrow("rank 0 is lost");
    expect([fake.seen.length, fake.aborted()]).toEqual([1, 1]);
    expect(existsSync(dirname(fake.seen[0]?.["NCCL_GRAPH_DUMP_FILE"] as string))).toBe(false);
  });

  test("of a job delays no other start while its ranks meet, and sets no variable", async () => {
    const fake = fakeStarts(found);
    let met: (id: Uint8Array) => void = () => undefined;
    const waiting = startPinnedJob(resolvePin({ algorithm: "Tree" }), places, {
      agreeOnId: () => {
        return new Promise<Uint8Array>((resolve) => {
          met = resolve;
        });
      },
      begin: async () => fake.start(),
      share: async () => new Uint8Array(0),
    });
    await new Promise((resolve) => setImmediate(resolve));
    expect(now()).toMatchObject({ NCCL_ALGO: undefined });
    await startWithVariables({}, async () => fake.start());
    met(new Uint8Array(1));
    await waiting;
    expect(fake.seen.map(({ NCCL_ALGO }) => NCCL_ALGO)).toEqual([undefined, "allreduce:tree"]);
  });

  test("in a file is used unchanged, in one start", async () => {
    const fake = fakeStarts(found);
    await startPinned({ rings: { xml: "anything" } }, places, fake.start);
    expect(fake.seen.map(({ xml }) => xml)).toEqual(["anything"]);
  });
});

test("a cancelled start has its variables restored, and the next one begins", async () => {
  const giving = new AbortController();
  const hangs = () => new Promise<never>(() => undefined);
  const stuck = startWithVariables({ NCCL_ALGO: "Ring" }, hangs, giving.signal);
  const next = startWithVariables({}, async () => process.env["NCCL_ALGO"]);
  const late = startWithVariables({}, async () => "begun", giving.signal);
  await new Promise((resolve) => setImmediate(resolve));
  giving.abort(new Error("too late"));
  await expect(stuck).rejects.toThrow("too late");
  expect(await next).toBeUndefined();
  await expect(late).rejects.toThrow("too late");
});

describe("two jobs of two processes, of which one is pinned", () => {
  /** A process with starts on other threads that end once both processes have begun them. */
  async function processes() {
    const begun: string[] = [];
    const meetings = new Map<string, () => void>();
    const meet = (job: string): Promise<void> => {
      const other = meetings.get(job);
      other?.();
      return other === undefined
        ? new Promise((resolve) => meetings.set(job, resolve))
        : Promise.resolve();
    };
    const process_ = async (name: string) => {
      // Each process has its own library, and so its own order of starts.
      vi.resetModules();
      const own = await import("../../../../../src/backends/nccl/process/start-variables.ts");
      return (job: "pinned" | "free", cancelled?: AbortSignal) =>
        own.startWithVariables(
          job === "pinned" ? { NCCL_ALGO: "Ring" } : {},
          () => {
            begun.push(`${name}: ${job}`);
            return meet(job);
          },
          cancelled,
        );
    };
    return { begun, first: await process_("first"), second: await process_("second") };
  }
  const turn = () => new Promise((resolve) => setImmediate(resolve));

  test("start one after the other where both processes begin them in one order", async () => {
    const { begun, first, second } = await processes();
    const starts = [first("pinned"), first("free"), second("pinned"), second("free")];
    await Promise.all(starts);
    expect(begun.slice(0, 2).sort()).toEqual(["first: pinned", "second: pinned"]);
  });

  test("wait for each other in opposite orders, until the deadline of one", async () => {
    const { begun, first, second } = await processes();
    const deadline = new AbortController();
    const pinned = [first("pinned", deadline.signal)];
    const free = [first("free"), second("free")];
    pinned.push(second("pinned", deadline.signal));
    await turn();
    expect(begun).toEqual(["first: pinned", "second: free"]);
    deadline.abort(new Error("too late"));
    for (const start of pinned) await expect(start).rejects.toThrow("too late");
    await Promise.all(free);
    expect(begun).toEqual(["first: pinned", "second: free", "first: free"]);
  });
});

describe("settings of a process", () => {
  test("in-switch reduction is off unless the first world asks for it", () => {
    const env: NodeJS.ProcessEnv = { NCCL_NVLS_ENABLE: "1" };
    const settings = new ProcessSettings(env);
    settings.settleNvls(false);
    expect(env).toEqual({ NCCL_NVLS_ENABLE: "0" });
    settings.settleNvls(false);
    expect(() => settings.settleNvls(true)).toThrow(
      /nvls: found true, but NCCL runs in this process with false/,
    );
  });

  test.each([
    {},
    { NCCL_NVLS_ENABLE: "" },
    { NCCL_NVLS_ENABLE: "1" },
    { NCCL_NVLS_ENABLE: "2" },
    { NCCL_NVLS_ENABLE: "0x2" },
  ])("requested in-switch reduction is NCCL's own choice where it has %j", (given) => {
    const env: NodeJS.ProcessEnv = { ...given };
    const settings = new ProcessSettings(env);
    settings.settleNvls(true);
    settings.settleNvls(true);
    expect(env).toEqual(given);
    expect(() => settings.settleNvls(false)).toThrow(/found false, but .* with true/);
  });

  test.each(["0", " 00", "0x0", "off"])(
    "requested in-switch reduction is refused where the variable is %j",
    (given) => {
      const env: NodeJS.ProcessEnv = { NCCL_NVLS_ENABLE: given };
      const settings = new ProcessSettings(env);
      expect(() => settings.settleNvls(true)).toThrow(
        expect.objectContaining({
          ...{ code: "ERR_COMM_ARG", field: "nvls" },
          message: expect.stringContaining(`was started with NCCL_NVLS_ENABLE=${given}`),
        }),
      );
      // A backend without the option runs without NVLS then.
      settings.settleNvls(false);
      expect(env).toEqual({ NCCL_NVLS_ENABLE: "0" });
    },
  );

  test("another buffer size than the first is refused by name", () => {
    const env: NodeJS.ProcessEnv = {};
    const settings = new ProcessSettings(env);
    expect(settings.settle({ buffSize: 65_536 }, false)).toBeUndefined();
    expect(env).toEqual({ NCCL_BUFFSIZE: "65536" });
    expect(settings.readOnce()).toEqual({ buffSize: 65_536 });
    settings.settle({ buffSize: 65_536 }, false);
    expect(() => settings.settle({ buffSize: 4096 }, false)).toThrow(
      /plan.buffSize: found 4096, but NCCL runs in this process with 65536/,
    );
    expect(() => settings.settle({}, false)).toThrow(/plan.buffSize: found NCCL's default/);
    expect(() => settings.settle({ buffSize: 65_536, llBuffSize: 1 }, false)).toThrow(
      /plan.llBuffSize: found 1, but NCCL runs in this process with NCCL's default/,
    );
  });

  test("a variable that was already set counts as the first world's", () => {
    const settings = new ProcessSettings({ NCCL_LL_BUFFSIZE: "32768" });
    settings.settle({ llBuffSize: 32_768 }, false);
    expect(settings.readOnce()).toEqual({ llBuffSize: 32_768 });
  });

  test.each([
    ["0x10000", 65_536],
    ["0100000", 32_768],
    [" +65536", 65_536],
    ["-2", -2],
    ["4M", 4],
    ["1e6", 1],
    ["0b1", 0],
    ["08", 0],
    ["large", 0],
  ])("a variable is the number that C reads: %s", (value, found) => {
    const settings = new ProcessSettings({ NCCL_BUFFSIZE: value });
    settings.settle({}, false);
    expect(settings.readOnce()).toEqual({ buffSize: found });
  });

  test("a variable that was already set holds for every world that pins nothing", () => {
    const env: NodeJS.ProcessEnv = { NCCL_BUFFSIZE: "8388608" };
    const settings = new ProcessSettings(env);
    settings.settle({}, false);
    settings.settle({}, false);
    settings.settle({ buffSize: 8_388_608 }, false);
    expect(settings.readOnce()).toEqual({ buffSize: 8_388_608 });
    expect(() => settings.settle({ buffSize: 4096 }, false)).toThrow(/found 4096.* with 8388608/);
    const pinned = new ProcessSettings({ NCCL_BUFFSIZE: "8388608" });
    pinned.settle({ buffSize: 4096 }, false);
    expect(() => pinned.settle({}, false)).toThrow(/plan.buffSize: found 8388608.* with 4096/);
  });

  test("a log is requested before NCCL's first use, or refused", () => {
    const env: NodeJS.ProcessEnv = {};
    const log = new PlanLogFile();
    try {
      const settings = new ProcessSettings(env, () => log);
      expect(settings.settle({}, true)).toBe(log);
      expect(env).toEqual(log.variables);
      expect(settings.settle({}, false)).toBeUndefined();
      expect(settings.settle({}, true)).toBe(log);
    } finally {
      log.close();
    }
    const without = new ProcessSettings({});
    without.settle({}, false);
    expect(() => without.settle({}, true)).toThrow(
      /readPlan: NCCL was used in this process without/,
    );
  });
});

test("a ring of another size than the world's is refused before any setting is fixed for the process", () => {
  const { libraries } = fakeGpus().setup;
  const opening = {
    pin: { rings: [1, 0], buffSize: 4096 },
    size: 3,
    plans: new PlanRecord(),
    libraries,
  };
  const before = process.env["NCCL_BUFFSIZE"];
  vi.stubEnv("NCCL_NVLS_ENABLE", "0");
  onTestFinished(() => void vi.unstubAllEnvs());
  expect(() => sessionSetup({}, opening)).toThrow(/rings: found 2 ranks, needs all 3 of the world/);
  expect(process.env["NCCL_BUFFSIZE"]).toBe(before);
  const nothing = { ...opening, pin: {}, size: 2 };
  expect(() => sessionSetup({}, nothing)).not.toThrow();
});
