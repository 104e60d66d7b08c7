/** Lists of NCCL calls: what they make is what the calls make by themselves, also when one of them fails. */
import { readFileSync } from "node:fs";
import { setFlagsFromString } from "node:v8";
import { runInNewContext } from "node:vm";
import fc from "fast-check";
import { beforeAll, describe, expect, test } from "vitest";
import { cudaCalls } from "../../../../../src/backends/nccl/result/cuda.ts";
import { CudaError, NcclError } from "../../../../../src/backends/nccl/result/errors.ts";
import {
  makeGroups,
  type NcclCalls,
  type NcclList,
  ncclCalls,
  type RecordedCall,
} from "../../../../../src/backends/nccl/result/nccl.ts";
import {
  CallList,
  type ListRunner,
  listCode,
  listRunner,
} from "../../../../../src/backends/nccl/sys/call-list.ts";
import { pageBytes } from "../../../../../src/backends/nccl/sys/code-memory.ts";
import { cudaTable } from "../../../../../src/backends/nccl/sys/cuda.ts";
import { ncclTable } from "../../../../../src/backends/nccl/sys/nccl.ts";
import { bind } from "../../../../../src/backends/nccl/sys/prototype.ts";
import { compiler } from "../../../../support/c-library.ts";
import { holds } from "../../../../support/seed.ts";
import { assembled, missing } from "./assembled.ts";
import { type Echo, echoLibrary } from "./echo.ts";

const elsewhere =
  process.platform === "linux" && process.arch === "x64" ? undefined : "needs Linux on x64";
const why = "missing" in compiler ? compiler.missing : elsewhere;
const reason = why === undefined ? "" : ` (skipped: ${why})`;

const pointer = fc.bigInt({ min: 0n, max: 2n ** 64n - 1n });
const count = fc.maxSafeNat();
const number = fc.integer({ min: 0, max: 2 ** 31 - 1 });
const ends = [pointer, pointer] as const;
const data = [pointer, pointer, count, number] as const;

/** Every call that can stand in a list, with any arguments. */
const anyCall: fc.Arbitrary<RecordedCall> = fc.oneof(
  fc.tuple(...data, number, ...ends).map((args): RecordedCall => ({ name: "allReduce", args })),
  fc
    .tuple(...data, number, number, ...ends)
    .map((args): RecordedCall => ({ name: "reduce", args })),
  fc.tuple(...data, number, ...ends).map((args): RecordedCall => ({ name: "reduceScatter", args })),
  fc.tuple(...data, ...ends).map((args): RecordedCall => ({ name: "allGather", args })),
  fc.tuple(...data, number, ...ends).map((args): RecordedCall => ({ name: "broadcast", args })),
  fc.tuple(...data, ...ends).map((args): RecordedCall => ({ name: "alltoAll", args })),
  fc
    .tuple(pointer, count, number, number, ...ends)
    .map((args): RecordedCall => ({ name: "send", args })),
  fc
    .tuple(pointer, count, number, number, ...ends)
    .map((args): RecordedCall => ({ name: "recv", args })),
);
const anyGroups = fc.array(fc.array(anyCall, { minLength: 1, maxLength: 9 }), { maxLength: 4 });

const reduce = (from: bigint): RecordedCall => ({
  name: "allReduce",
  args: [from, 2n, 3, 4, 5, 600n + from, 7n],
});

/** The names of a test's calls on arrival. */
const names = (echo: Echo): string[] =>
  echo.lines().map((line) => line.split(" ").slice(0, 3).join(" "));

describe.skipIf(reason !== "")(`lists of NCCL calls${reason}`, () => {
  let echo: Echo;
  let nccl: NcclCalls;
  let runner: ListRunner;
  beforeAll(async () => {
    runner = (await listRunner({})) as ListRunner;
    echo = await echoLibrary();
    nccl = ncclCalls(await bind(echo.path, ncclTable), runner);
  });

  const listOf = (...groups: (readonly RecordedCall[])[]) => nccl.listed(groups) as NcclList;

  test("make the same calls as single ones, any number of times", async () => {
    await holds(
      anyGroups,
      (groups) => {
        echo.begin();
        makeGroups(nccl, groups);
        const alone = echo.lines();
        const list = listOf(...groups);
        for (let time = 0; time < 2; time++) {
          echo.begin();
          list.run();
          expect(echo.lines()).toEqual(alone);
        }
      },
      300,
    );
  });

  test("stop at a call that fails, name it, and close its group", () => {
    const list = listOf([reduce(1n)], [reduce(2n), reduce(3n), reduce(4n)], [reduce(5n)]);
    echo.lastError(true);
    echo.begin({ status: 6, failing: 4 });
    expect(thrownBy(() => list.run())).toMatchObject({
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
    list.run();
    expect(echo.calls(), "and can be made again").toBe(7);
  });

  test.each([
    [1, "ncclGroupStart", 1],
    [4, "ncclGroupEnd", 4],
    [5, "ncclAllReduce", 5],
  ])("name call %i, %s, and open or close no group for it", (failing, cCall, calls) => {
    const list = listOf([reduce(1n), reduce(2n)], [reduce(3n)]);
    echo.begin({ status: 3, failing });
    const error = thrownBy(() => list.run());
    expect(error).toBeInstanceOf(NcclError);
    expect(error).toMatchObject({ cCall, status: 3, statusName: "ncclInternalError" });
    expect(echo.calls()).toBe(calls);
  });

  test("report the call that failed, not its group's end that fails as well", () => {
    const list = listOf([reduce(1n), reduce(2n)]);
    echo.begin({ status: 5, failing: -3 });
    expect(thrownBy(() => list.run())).toMatchObject({ cCall: "ncclAllReduce", status: 5 });
    expect(names(echo).at(-1)).toBe("ncclGroupEnd");
    expect(echo.calls()).toBe(4);
  });

  test.each([113, 114, 300])("of %i calls are made, and short ones after them", (length) => {
    const many = Array.from({ length }, (_, at) => reduce(BigInt(at)));
    const [long, short] = [listOf(many), listOf([reduce(7n)])];
    for (let time = 0; time < 2; time++) {
      echo.begin();
      long.run();
      short.run();
      expect(echo.calls()).toBe(1 + length + 1 + 1);
      expect(names(echo).at(-1)).toBe("ncclAllReduce send 7");
    }
  });

  test("without calls do nothing", () => {
    echo.begin({ status: 1 });
    listOf().run();
    expect(echo.calls()).toBe(0);
  });

  test("give calls the stack that NCCL needs", () => {
    echo.begin({ deepBytes: 4 << 20 });
    listOf([reduce(1n), reduce(2n)]).run();
    expect(echo.calls()).toBe(4);
  });

  test("stay at the addresses of native code, through garbage collection", () => {
    setFlagsFromString("--expose-gc");
    const collect = runInNewContext("gc") as () => void;
    const lists = Array.from({ length: 500 }, (_, at) => listOf([reduce(BigInt(at))]));
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
    const args = Array.from({ length: 9 }, () => 0n);
    expect(() => new CallList(runner, [{ address: 1n, args }])).toThrow("9 arguments in a list");
  });

  test("share one piece of code, which nothing can write", async () => {
    expect(await listRunner({})).toBe(runner);
    const regions = readFileSync("/proc/self/maps", "utf8").split("\n");
    const ofOnePage = regions.filter((line) => {
      const [from = 0, to = 0] = (line.split(" ")[0] ?? "").split("-").map((at) => `0x${at}`);
      return Number(to) - Number(from) === pageBytes;
    });
    const may = (rights: string) =>
      ofOnePage.filter((line) => line.includes(` ${rights} 00000000 00:00 0`));
    expect(may("r-xp").length).toBeGreaterThan(0);
    expect(may("rwxp")).toEqual([]);
  });

  test("are not written where they are off, with the reason", async () => {
    expect(await listRunner({ TWINCCL_CALL_LISTS: "0" })).toBe("TWINCCL_CALL_LISTS=0");
    expect(ncclCalls(await bind(echo.path, ncclTable)).listed([[reduce(1n)]])).toBeUndefined();
  });

  test.skipIf(missing !== undefined)(
    `run code that is what an assembler makes of its text (${missing ?? "objcopy"})`,
    () => {
      const own = listCode.map(([, bytes]) => bytes.replaceAll(" ", "")).join("");
      expect(assembled(listCode).slice(0, own.length)).toBe(own);
      expect(own.length).toBeLessThan(2 * pageBytes);
    },
  );
});

function thrownBy(call: () => void): unknown {
  try {
    call();
  } catch (error) {
    return error;
  }
  throw new Error("nothing was thrown");
}

describe.skipIf(reason !== "")(`lists of launches${reason}`, () => {
  const launches = [1n, 2n ** 63n, 3n].map((graph) => ({ graph, stream: 10n * graph }));

  test("launch in their order, any number of times, and stop at one that fails", async () => {
    const echo = await echoLibrary();
    const runner = (await listRunner({})) as ListRunner;
    const list = cudaCalls(await bind(echo.path, cudaTable), runner).listedLaunches(launches);
    const arrives = launches.map(
      ({ graph, stream }) => `cudaGraphLaunch exec ${graph} stream ${BigInt.asUintN(64, stream)}`,
    );
    for (let time = 0; time < 2; time++) {
      echo.begin();
      list?.run();
      expect(echo.lines()).toEqual(arrives);
    }
    echo.begin({ status: 719, failing: 2 });
    const error = thrownBy(() => list?.run());
    expect(error).toBeInstanceOf(CudaError);
    expect(error).toMatchObject({ cCall: "cudaGraphLaunch", status: 719 });
    expect(echo.lines().filter((line) => line.startsWith("cudaGraphLaunch"))).toHaveLength(2);
  });

  test("are not written where call lists are unavailable", async () => {
    const echo = await echoLibrary();
    expect(cudaCalls(await bind(echo.path, cudaTable)).listedLaunches(launches)).toBeUndefined();
  });
});
