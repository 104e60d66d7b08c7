/** Sequences of C calls: with the helper and without it they make the same calls, also when one of them fails. */
import { setFlagsFromString } from "node:v8";
import { runInNewContext } from "node:vm";
import fc from "fast-check";
import { beforeAll, describe, expect, test } from "vitest";
import { cudaCalls } from "../../../../../src/backends/nccl/result/cuda.ts";
import { CudaError, NcclError } from "../../../../../src/backends/nccl/result/errors.ts";
import { type DataCall, ncclCalls } from "../../../../../src/backends/nccl/result/nccl.ts";
import {
  CallList,
  type CallSequence,
  runsBeforeList,
} from "../../../../../src/backends/nccl/sys/call-list.ts";
import { cudaTable } from "../../../../../src/backends/nccl/sys/cuda.ts";
import type { BoundCall, Helper } from "../../../../../src/backends/nccl/sys/helper.ts";
import { ncclTable } from "../../../../../src/backends/nccl/sys/nccl.ts";
import { bind } from "../../../../../src/backends/nccl/sys/prototype.ts";
import { holds } from "../../../../support/seed.ts";
import { builtHelper, reason } from "./built-helper.ts";
import { type Echo, echoLibrary } from "./echo.ts";

const pointer = fc.bigInt({ min: 0n, max: 2n ** 64n - 1n });
const count = fc.maxSafeNat();
const number = fc.integer({ min: 0, max: 2 ** 31 - 1 });
const ends = [pointer, pointer] as const;
const data = [pointer, pointer, count, number] as const;

/** Every call that moves or reduces data, with any arguments. */
const anyCall: fc.Arbitrary<DataCall> = fc.oneof(
  fc.tuple(...data, number, ...ends).map((args): DataCall => ({ name: "allReduce", args })),
  fc.tuple(...data, number, number, ...ends).map((args): DataCall => ({ name: "reduce", args })),
  fc.tuple(...data, number, ...ends).map((args): DataCall => ({ name: "reduceScatter", args })),
  fc.tuple(...data, ...ends).map((args): DataCall => ({ name: "allGather", args })),
  fc.tuple(...data, number, ...ends).map((args): DataCall => ({ name: "broadcast", args })),
  fc.tuple(...data, ...ends).map((args): DataCall => ({ name: "alltoAll", args })),
  fc
    .tuple(pointer, count, number, number, ...ends)
    .map((args): DataCall => ({ name: "send", args })),
  fc
    .tuple(pointer, count, number, number, ...ends)
    .map((args): DataCall => ({ name: "recv", args })),
);
const anyGroups = fc.array(fc.array(anyCall, { minLength: 1, maxLength: 9 }), { maxLength: 4 });

const reduce = (from: bigint): DataCall => ({
  name: "allReduce",
  args: [from, 2n, 3, 4, 5, 600n + from, 7n],
});

/** The names of a test's calls on arrival. */
const names = (echo: Echo): string[] =>
  echo.lines().map((line) => line.split(" ").slice(0, 3).join(" "));

/** Runs until the helper makes the calls, if there is one. */
function often(echo: Echo, sequence: CallSequence): CallSequence {
  for (let run = 0; run < runsBeforeList; run++) {
    echo.begin();
    sequence.run();
  }
  return sequence;
}

function thrownBy(call: () => void): unknown {
  try {
    call();
  } catch (error) {
    return error;
  }
  throw new Error("nothing was thrown");
}

describe.skipIf(reason !== "").each([
  ["by the helper", true],
  ["one by one", false],
])(`sequences of calls, %s${reason}`, (_, isListed) => {
  let echo: Echo;
  /** Runs of lists by the helper. */
  let listed = 0;
  let helper: Helper | undefined;
  let sequenceOf: (...groups: (readonly DataCall[])[]) => CallSequence;
  beforeAll(async () => {
    echo = await echoLibrary();
    const built = await builtHelper();
    const run = () => {
      listed += 1;
      return built.run();
    };
    helper = isListed ? { ...built, run } : undefined;
    const nccl = ncclCalls(await bind(echo.path, ncclTable), helper);
    sequenceOf = (...groups) => nccl.sequence(groups);
  });

  test("make the same calls at every run", async () => {
    await holds(
      anyGroups,
      (groups) => {
        const sequence = sequenceOf(...groups);
        echo.begin();
        sequence.run();
        const first = echo.lines();
        expect(first.length).toBe(
          groups.reduce((sum, { length }) => sum + length + (length > 1 ? 2 : 0), 0),
        );
        often(echo, sequence);
        const before = listed;
        for (let time = 0; time < 2; time++) {
          echo.begin();
          sequence.run();
          expect(echo.lines()).toEqual(first);
        }
        expect(listed - before).toBe(isListed ? 2 : 0);
      },
      100,
    );
  });

  test("stop at a call that fails, name it, and close its group", () => {
    const groups = [[reduce(1n)], [reduce(2n), reduce(3n), reduce(4n)], [reduce(5n)]];
    const sequence = often(echo, sequenceOf(...groups));
    echo.lastError(true);
    echo.begin({ status: 6, failing: 4 });
    expect(thrownBy(() => sequence.run())).toMatchObject({
      cCall: "ncclAllReduce",
      statusName: "ncclRemoteError",
      detail: "the other end hung up (comm 603)",
    });
    echo.lastError(false);
    expect(names(echo)).toEqual([
      "ncclAllReduce send 1",
      "ncclGroupStart",
      "ncclAllReduce send 2",
      "ncclAllReduce send 3",
      "ncclGroupEnd",
    ]);
    echo.begin();
    sequence.run();
    expect(echo.calls(), "and can be made again").toBe(7);
  });

  test.each([
    [1, "ncclGroupStart", 1],
    [4, "ncclGroupEnd", 4],
    [5, "ncclAllReduce", 5],
  ])("name call %i, %s, and open or close no group for it", (failing, cCall, calls) => {
    const sequence = often(echo, sequenceOf([reduce(1n), reduce(2n)], [reduce(3n)]));
    echo.begin({ status: 3, failing });
    const error = thrownBy(() => sequence.run());
    expect(error).toBeInstanceOf(NcclError);
    expect(error).toMatchObject({ cCall, status: 3, statusName: "ncclInternalError" });
    expect(echo.calls()).toBe(calls);
  });

  test("report the call that failed, not its group's end that fails as well", () => {
    const sequence = often(echo, sequenceOf([reduce(1n), reduce(2n)]));
    echo.begin({ status: 5, failing: -3 });
    expect(thrownBy(() => sequence.run())).toMatchObject({ cCall: "ncclAllReduce", status: 5 });
    expect(names(echo).at(-1)).toBe("ncclGroupEnd");
    expect(echo.calls()).toBe(4);
  });

  test("make no call for no groups, nor for empty ones", () => {
    for (const sequence of [sequenceOf(), sequenceOf([], [])]) {
      often(echo, sequence);
      echo.begin({ status: 1 });
      sequence.run();
      expect(echo.calls()).toBe(0);
    }
  });

  test("give calls the stack that NCCL needs", () => {
    const sequence = often(echo, sequenceOf([reduce(1n), reduce(2n)]));
    echo.begin({ deepBytes: 4 << 20 });
    sequence.run();
    expect(echo.calls()).toBe(4);
  });

  test("launch recordings in their order, and stop at one that fails", async () => {
    const launches = [1n, 2n ** 63n, 3n].map((graph) => ({ graph, stream: 10n * graph }));
    let inPart = 0;
    const cuda = cudaCalls(await bind(echo.path, cudaTable), helper);
    const sequence = cuda.launches(launches, () => void inPart++);
    often(echo, sequence);
    echo.begin();
    sequence.run();
    expect(echo.lines()).toEqual(
      launches.map(
        ({ graph, stream }) => `cudaGraphLaunch exec ${graph} stream ${BigInt.asUintN(64, stream)}`,
      ),
    );
    echo.begin({ status: 719, failing: 2 });
    const error = thrownBy(() => sequence.run());
    expect(error).toBeInstanceOf(CudaError);
    expect(error).toMatchObject({ cCall: "cudaGraphLaunch", status: 719 });
    expect(echo.lines().filter((line) => line.startsWith("cudaGraphLaunch"))).toHaveLength(2);
    expect(inPart).toBe(1);
    echo.begin({ status: 719, failing: 1 });
    expect(thrownBy(() => sequence.run())).toBeInstanceOf(CudaError);
    expect(inPart).toBe(1);
  });
});

describe.skipIf(reason !== "")(`lists in memory${reason}`, () => {
  let echo: Echo;
  let helper: Helper;
  beforeAll(async () => {
    echo = await echoLibrary();
    helper = await builtHelper();
  });

  test("stay at the addresses of native code, through garbage collection", async () => {
    setFlagsFromString("--expose-gc");
    const collect = runInNewContext("gc") as () => void;
    const nccl = ncclCalls(await bind(echo.path, ncclTable), helper);
    const lists = Array.from({ length: 500 }, (_, at) =>
      often(echo, nccl.sequence([[reduce(BigInt(at))]])),
    );
    for (let time = 0; time < 3; time++) {
      collect();
      for (const [at, list] of lists.entries()) {
        echo.begin();
        list.run();
        expect(echo.text()).toContain(`send ${at} `);
      }
    }
  });

  test("have room for eight arguments", () => {
    const call = () => 0;
    const args = Array.from({ length: 9 }, () => 0n);
    const sequence = new CallList<BoundCall>([{ call, args }], helper, () => undefined);
    expect(() => often(echo, sequence)).toThrow("9 arguments in a list");
  });
});
