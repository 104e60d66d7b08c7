/** The runner notices what no call may do, and life cycles notice a wrong answer. */
import fc from "fast-check";
import { type Backend, DeviceBuffer } from "twinccl";
import type { RankCall, Session, Work } from "twinccl/backend";
import { type Executor, sim } from "twinccl/sim";
import {
  expectSame,
  lifeCycleCommands,
  type Program,
  programs,
  runLifeCycle,
  runOn,
  runProgram,
} from "twinccl/testing";
import { describe, expect, test } from "vitest";
import { memoryOf } from "../../../src/api/buffer.ts";
import { judgeRun } from "../../../src/testing/oracle/judge.ts";

const placement = { form: "oneBlock", lead: 1, tail: 1, host: false } as const;
const program: Program = {
  size: 2,
  issue: "each",
  splits: [],
  steps: [
    {
      kind: "call",
      comm: 0,
      call: { kind: "allGather", dtype: "uint8", payload: "bits", seed: 4, placement, count: 3 },
    },
  ],
};

/** A backend with sessions that depart from the request. */
function changed(change: (session: Session) => Partial<Session>): Backend {
  const backend = sim();
  return {
    ...backend,
    open: async (request) => {
      const session = await backend.open(request);
      const changes = change(session);
      return new Proxy(session, {
        get: (target, key) => {
          const value = Reflect.get(key in changes ? changes : target, key) as unknown;
          return typeof value === "function" ? value.bind(target) : value;
        },
      });
    },
  };
}

const callsOf = (work: Work): readonly RankCall[] => ("calls" in work ? work.calls : []);

/** Spoils one byte of rank 1's memory after every call, `distance` from the end of its `recv`. */
function spoiling(distance: number): Backend {
  return changed((session) => ({
    execute: (work) => {
      const done = session.execute(work);
      const { recv } = callsOf(work)[1] ?? {};
      if (recv instanceof DeviceBuffer) {
        const at = recv.byteOffset + recv.byteLength + distance;
        memoryOf(recv).write(at, Uint8Array.of(0x3c));
      }
      return done;
    },
  }));
}

describe("runProgram", () => {
  test("gives the sent and the held values, by world rank", async () => {
    const { backend, outcomes } = await runProgram(sim(), program);
    expect(backend).toBe("sim");
    const [a, b] = outcomes[0]?.ranks ?? [];
    expect(a?.sent).toHaveLength(3);
    expect(a?.sent).not.toEqual(b?.sent);
    expect(a?.bytes).toEqual(b?.bytes);
    expect([...(a?.bytes ?? [])]).toEqual([...(a?.sent ?? []), ...(b?.sent ?? [])]);
  });

  test("runs on several backends under their labels", async () => {
    const runs = await runOn({ one: sim(), two: sim({ seed: 9 }) }, program);
    expect(runs.map(({ backend }) => backend)).toEqual(["one", "two"]);
  });

  test("detects a changed byte behind recv, and one of send", async () => {
    await expect(runProgram(spoiling(0), program)).rejects.toThrow("which is no part of recv");
    await expect(runProgram(spoiling(-8), program)).rejects.toThrow("which is no part of recv");
  });

  test("leaves a wrong element to the oracle and to expectSame, which both find it", async () => {
    const run = await runProgram(spoiling(-1), program, { label: "spoiled" });
    expect(() => judgeRun(program, run)).toThrow(/call 0 \(allGather uint8\), rank 1: element 5/);
    const healthy = await runProgram(sim(), program);
    expect(() => expectSame(healthy, run)).toThrow("sim and spoiled differ: call 0");
    expect(() => judgeRun(program, healthy)).not.toThrow();
    const [first] = healthy.outcomes;
    const more = { ...first!, ranks: [...first!.ranks, first!.ranks[0]] };
    const extra = { ...healthy, outcomes: [more, ...healthy.outcomes.slice(1)] };
    expect(() => judgeRun(program, extra)).toThrow(/world rank \d+ took part wrongly/);
  });
});

describe("life cycles", () => {
  test("reach every command often", async () => {
    const ran = new Map<string, number>();
    let short = 0;
    for (const commands of fc.sample(lifeCycleCommands(), { seed: 1, numRuns: 100 })) {
      await runLifeCycle(sim(), commands);
      const names = (String(commands).split(" /*")[0] ?? "").split(",");
      if (names.length < 2) short += 1;
      expect(names[0]).toMatch(/^open\([1-5]\)$/);
      for (const name of names) {
        const kind = name.startsWith("rebuild") ? name : name.replace(/\(.*/, "");
        ran.set(kind, (ran.get(kind) ?? 0) + 1);
      }
    }
    const needed =
      "open run dispose keep passKept split closeComm abort abortInside rebuild rebuild(lost) close";
    expect([...ran.keys()].sort()).toEqual(needed.split(" ").sort());
    expect(Math.min(...ran.values())).toBeGreaterThanOrEqual(5);
    expect(short).toBeLessThan(15);
  });

  test("notice a world that computes a wrong sum", async () => {
    const cycles = fc.sample(lifeCycleCommands(), { seed: 1, numRuns: 40 });
    let failures = 0;
    for (const commands of cycles) {
      await runLifeCycle(spoilingSum(), commands).catch(() => {
        failures += 1;
      });
    }
    expect(failures).toBeGreaterThan(5);
  });
});

function spoilingSum(): Backend {
  return changed((session) => ({
    execute: (work) => {
      const done = session.execute(work);
      for (const { recv } of callsOf(work))
        if (recv !== undefined) memoryOf(recv).write(0, Uint8Array.of(99, 9, 9, 9, 9));
      return done;
    },
  }));
}

test("programs run on any executor", async () => {
  const { cpu } = await import("twinccl/sim");
  const executor: Executor = cpu();
  for (const each of fc.sample(programs(), { seed: 2, numRuns: 20 })) {
    judgeRun(each, await runProgram(sim({ executor }), each));
  }
});

test("the oracle knows communicators of any colors", async () => {
  const colors = [70_000, 12, null, 70_000];
  const splits = [{ parent: 0, colors, reversed: false }];
  const [step] = program.steps;
  const steps = [1, 2].map((comm) => ({ ...step!, comm }));
  const split: Program = { ...program, size: 4, splits, steps };
  judgeRun(split, await runProgram(sim(), split));
});
