/** Names that every object inherits, such as toString, were found in tables that lack them. */
import {
  asDType,
  bytesOf,
  createWorld,
  type DType,
  InvalidArgumentError,
  type WorldError,
} from "twinccl";
import { Optimizer, ParameterSet, sgd } from "twinccl/parallel";
import { sim } from "twinccl/sim";
import { describe, expect, test } from "vitest";
import { planOfLine } from "../../src/backends/nccl/process/plan-log.ts";
import { readBack, resultDifference } from "../../src/cli/verify/file-results.ts";
import { cli } from "../unit/cli/harness.ts";

const inherited = ["toString", "constructor", "__proto__", "hasOwnProperty", "valueOf"];

describe.each(inherited)("%s", (name) => {
  test.each([
    ["bench all-reduce -d", 2],
    ["explain all-reduce -d", 2],
    ["predict all-reduce -d", 2],
    ["trace all-reduce -d", 2],
    ["verify --against sim --dtype", 2],
  ])("is not accepted as a dtype of %s", async (line, status) => {
    const outcome = await cli(`${line} ${name}`);
    expect(outcome).toMatchObject({ status, out: "" });
    expect(outcome.err).toContain(`--dtype: found "${name}", needs one of int8, `);
  });

  test("is not accepted as a dtype of an array", async () => {
    const world = await createWorld({ backend: sim(), size: 2 });
    const send = asDType(new Float32Array(4), name as DType);
    const run = world.run((comm) => comm.allReduce({ send, op: "sum" }));
    const { cause } = (await run.catch((error: unknown) => error)) as WorldError;
    expect(cause).toBeInstanceOf(InvalidArgumentError);
    expect((cause as Error).message).toContain("is no dtype");
    await world.close();
  });

  test("has no width as a dtype", () => {
    const refusal = expect.objectContaining({ code: "ERR_COMM_ARG", field: "dtype" });
    expect(() => bytesOf(name as DType)).toThrow(refusal);
  });

  test("does not name an array's class: the built-in base class counts", async () => {
    class Named extends Float32Array {
      override get [Symbol.toStringTag](): "Float32Array" {
        return name as "Float32Array";
      }
    }
    const world = await createWorld({ backend: sim(), size: 2 });
    const sums = await world.run((comm) =>
      comm.allReduce({ send: new Named(4).fill(1), recv: new Float32Array(4), op: "sum" }),
    );
    for (const sum of sums) expect([...(sum as Float32Array)]).toEqual([2, 2, 2, 2]);
    await world.close();
  });

  test("does not count as a parameter's count in a state that lacks it", () => {
    const parameters = new ParameterSet([{ name, shape: [2] }]);
    const optimizer = new Optimizer(parameters, sgd({ learningRate: 1 }));
    const state = optimizer.state();
    optimizer.restore(state);
    const values = { ...state.values, rules: {} };
    expect(() => optimizer.restore({ ...state, values })).toThrow("state of the rule undefined");
  });

  test("is compared where a program returns it", async () => {
    const result = (value: number): object =>
      Object.defineProperty({}, name, { value, enumerable: true });
    const [one, two] = [await readBack(result(1)), await readBack(result(2))];
    expect(resultDifference(one, await readBack(result(1)), ["a", "b"])).toBeUndefined();
    expect(resultDifference(one, two, ["a", "b"])).toBe(`its result.${name}: 1 on a, 2 on b`);
    expect(resultDifference(one, {}, ["a", "b"])).toBe(
      `its result.${name}: 1 on a, undefined on b`,
    );
  });

  test("is not read as a collective in NCCL's log", () => {
    const line = (what: string): string =>
      `NCCL INFO ${what}: 64 Bytes -> Algo ${name} proto ${name} channel{Lo..Hi}={0..1}`;
    expect(planOfLine(line(name))).toBeUndefined();
    expect(planOfLine(line("AllReduce"))).toMatchObject({ algorithm: name, protocol: name });
  });
});
