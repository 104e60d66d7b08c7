/** A failing check prints one line, and that line finds the same case again. */
import fc from "fast-check";
import { sim } from "twinccl/sim";
import {
  checkProperty,
  environmentReplay,
  type LifeCycleCommand,
  lifeCycleCommands,
  programs,
  replayLine,
  runLifeCycle,
} from "twinccl/testing";
import { afterEach, describe, expect, test, vi } from "vitest";

const small = (value: number): void => {
  if (value > 20) throw new Error(`${value} is too large`);
};

async function messageOf(running: Promise<void>): Promise<string> {
  return running.then(
    () => "passed",
    (error: Error) => error.message,
  );
}

afterEach(() => vi.unstubAllEnvs());

describe("checkProperty", () => {
  test("passes, runs the requested number of cases, and always the same ones", async () => {
    const seen: number[][] = [[], []];
    for (const list of seen) {
      await checkProperty(fc.nat(), (value) => void list.push(value), { runs: 30 });
    }
    expect(seen[0]).toHaveLength(30);
    expect(seen[1]).toEqual(seen[0]);
  });

  test("ends with one line that replays the shrunk case", async () => {
    const message = await messageOf(checkProperty(fc.nat(), small, { command: "npm test" }));
    expect(message).toContain("21 is too large");
    expect(message).toMatch(/after \d+ shrinks: 21\n/);
    const line = message.split("\n").at(-1) ?? "";
    const [, seed, path] =
      /^replay: TWINCCL_SEED=(\d+) TWINCCL_PATH=([\d:]+) npm test$/.exec(line) ?? [];
    vi.stubEnv("TWINCCL_SEED", seed);
    vi.stubEnv("TWINCCL_PATH", path);
    const tried: number[] = [];
    const again = checkProperty(
      fc.nat(),
      (value) => {
        tried.push(value);
        small(value);
      },
      environmentReplay(),
    );
    expect(await messageOf(again)).toContain("21 is too large");
    expect(tried[0]).toBe(21);
  });

  test("prints what a sequence of commands needs as well, and replays it", async () => {
    const backend = { ...sim(), open: () => Promise.reject(new Error("planted")) };
    const check = (more: object): Promise<string> =>
      messageOf(
        checkProperty(lifeCycleCommands(), (commands) => runLifeCycle(backend, commands), {
          command: "again",
          ...more,
        }),
      );
    const message = await check({});
    const line = /replay: TWINCCL_SEED=(\S+) TWINCCL_PATH=(\S+) TWINCCL_COMMANDS=(\S+) again$/;
    const [, seed = "", path, commands] = line.exec(message) ?? [];
    expect(commands, message).toBeDefined();
    vi.stubEnv("TWINCCL_COMMANDS", commands);
    expect(await check({ seed: Number(seed), path })).toContain("planted");
  });

  test("shrinks a life cycle to its size and commands, and replays it from its line", async () => {
    const tried: string[] = [];
    const law = async (commands: Iterable<LifeCycleCommand>): Promise<void> => {
      await runLifeCycle(sim(), commands);
      const text = String(commands);
      tried.push(text);
      if (/^open\([3-5]\).*keep.*rebuild\(lost\)/.test(text)) throw new Error("planted");
    };
    const message = await messageOf(checkProperty(lifeCycleCommands(), law, { command: "again" }));
    const [, shrunk = ""] = /shrinks: (.*) \/\*replayPath=".*"\*\/\n/.exec(message) ?? [];
    expect(shrunk, message).toMatch(/^open\(3\),keep,rebuild\(lost\)/);
    const line = /TWINCCL_SEED=(\S+) TWINCCL_PATH=(\S+) TWINCCL_COMMANDS=(\S+) again$/;
    const [, seed, path, commands] = line.exec(message) ?? [];
    vi.stubEnv("TWINCCL_SEED", seed);
    vi.stubEnv("TWINCCL_PATH", path);
    vi.stubEnv("TWINCCL_COMMANDS", commands);
    tried.length = 0;
    const again = checkProperty(lifeCycleCommands(), law, environmentReplay());
    expect(await messageOf(again)).toContain("planted");
    expect(tried[0]?.split(" /*")[0]).toBe(shrunk);
  });

  test("reads only whole numbers as seeds", () => {
    expect(replayLine({ seed: 3 }, "x")).toBe("TWINCCL_SEED=3 x");
    vi.stubEnv("TWINCCL_SEED", "many");
    expect(() => environmentReplay()).toThrow("TWINCCL_SEED=many is no integer");
  });

  test("treats an empty variable as unset", () => {
    for (const name of ["TWINCCL_SEED", "TWINCCL_PATH", "TWINCCL_COMMANDS"]) vi.stubEnv(name, "");
    expect(environmentReplay(7)).toEqual({ seed: 7, path: undefined, commands: undefined });
  });

  test.each([
    ["runs", Number.NaN],
    ["runs", 0],
    ["runs", -1],
    ["runs", 2.5],
    ["runs", "5"],
    ["seed", 1.5],
    ["seed", "a"],
  ])("refuses %s %j, which would check no cases or unknown ones", async (field, value) => {
    const checking = checkProperty(fc.nat(), () => undefined, { [field]: value });
    await expect(checking).rejects.toMatchObject({ code: "ERR_COMM_ARG", field });
  });

  test("reports that preconditions left no cases", async () => {
    const message = await messageOf(checkProperty(fc.nat(), () => fc.pre(false), { runs: 5 }));
    expect(message).toMatch(
      /^\d+ cases were skipped by preconditions, and only 0 of 5 were checked$/m,
    );
  });

  test("reports that a path belongs to another property", async () => {
    const checking = checkProperty(fc.constant(1), small, { seed: 3, path: "3:1:1:1" });
    const message = await messageOf(checking);
    expect(message).toContain("no case at TWINCCL_PATH=3:1:1:1 of TWINCCL_SEED=3");
    expect(message).toContain("belongs to another property");
    expect(message).toContain("-t");
  });

  test("prints whole programs in a form to paste", async () => {
    const message = await messageOf(
      checkProperty(programs(), () => Promise.reject(new Error("always"))),
    );
    const printed = /shrinks: (.*)\nreplay/.exec(message)?.[1] ?? "";
    expect(JSON.parse(printed)).toMatchObject({ size: 1, splits: [] });
  });
});
