/** `--executor`, and an executor in a backend's name. */
import type { Backend } from "twinccl";
import { sim } from "twinccl/sim";
import { describe, expect, test } from "vitest";
import type { BackendSettings } from "../../../src/cli/context.ts";
import { cli } from "./harness.ts";

/** Runs a command line on simulations, and returns the executor name that each of them got. */
async function openedExecutors(
  line: string,
): Promise<{ status: number; executors: (string | undefined)[] }> {
  const executors: (string | undefined)[] = [];
  const make = ({ executor }: BackendSettings): Backend => {
    executors.push(executor);
    return sim();
  };
  const { status } = await cli(line, { backends: { sim: make } });
  return { status, executors };
}

describe("an executor", () => {
  test.each([
    ["bench all-reduce -b 64 -e 64 -g 2 -n 1 -w 0 --executor cpu", ["cpu"]],
    ["bench all-reduce -b 64 -e 64 -g 2 -n 1 -w 0 --backend sim:executor=cpu", ["cpu"]],
    ["bench all-reduce -b 64 -e 64 -g 2 -n 1 -w 0", [undefined]],
    [
      "verify --against sim:executor=wasm --executor cpu --collective barrier -n 2",
      ["cpu", "wasm"],
    ],
  ])("%s", async (line, executors) => {
    expect(await openedExecutors(line)).toEqual({ status: 0, executors });
  });

  test.each(["cpu", "wasm"])("%s moves the data", async (name) => {
    const line = `bench all-reduce -b 1K -e 1K -g 3 -n 2 -w 0 -d all --executor ${name}`;
    const { status, out } = await cli(line);
    expect(out).toContain("bfloat16");
    expect(status).toBe(0);
  });

  test("of an unknown name is wrong usage", async () => {
    const { status, err } = await cli("bench all-reduce --executor gpu");
    expect(err).toContain('executor: found "gpu", needs one of cpu, wasm');
    expect(status).toBe(2);
  });

  test("is an option of the simulation only", async () => {
    const { status, err } = await cli("bench all-reduce -g 2 --backend nccl --executor cpu");
    expect(err).toContain("backend nccl: executor cannot be set from here");
    expect(status).toBe(2);
  });
});
