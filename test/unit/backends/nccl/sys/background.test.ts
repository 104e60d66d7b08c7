/** Calls on threads of their own: their arguments, their results, and no wait for them at the end. */
import { spawn } from "node:child_process";
import { readFileSync } from "node:fs";
import { setTimeout as sleep } from "node:timers/promises";
import { afterEach, beforeAll, describe, expect, test } from "vitest";
import { type CudaCalls, cudaCalls } from "../../../../../src/backends/nccl/result/cuda.ts";
import { CudaError, NcclError } from "../../../../../src/backends/nccl/result/errors.ts";
import { type NcclCalls, ncclCalls } from "../../../../../src/backends/nccl/result/nccl.ts";
import { onThread } from "../../../../../src/backends/nccl/sys/background.ts";
import { cudaTable } from "../../../../../src/backends/nccl/sys/cuda.ts";
import { stackBytes } from "../../../../../src/backends/nccl/sys/koffi.ts";
import { ncclTable } from "../../../../../src/backends/nccl/sys/nccl.ts";
import { bind, type NativeFunction } from "../../../../../src/backends/nccl/sys/prototype.ts";
import { builtHelper, reason } from "./built-helper.ts";
import { deviceOf } from "./device-of.ts";
import { type Echo, echoLibrary } from "./echo.ts";

/** Bytes of the address space of this process. */
const mappedBytes = (): number =>
  1024 * Number(/^VmSize:\s+(\d+)/m.exec(readFileSync("/proc/self/status", "utf8"))?.[1]);

const id = Uint8Array.from({ length: 128 }, (_, at) => 255 - at);
const idText = Buffer.from(id).toString("hex");

describe.skipIf(reason !== "")(`calls on threads of their own${reason}`, () => {
  let echo: Echo;
  let nccl: NcclCalls;
  let cuda: CudaCalls;
  beforeAll(async () => {
    echo = await echoLibrary();
    nccl = ncclCalls(await bind(echo.path, ncclTable));
    cuda = cudaCalls(await bind(echo.path, cudaTable));
    expect(await builtHelper()).toBeTypeOf("object");
  });
  afterEach(() => echo.hold(false));

  test("are made on the named device, with structures by value and memory", async () => {
    for (const [index, handle] of [5n, 2n ** 64n - 2n, 7n].entries()) {
      echo.begin({ out: [handle] });
      const config = { minCTAs: index + 1, blocking: 1 };
      const given = nccl.initRankInBackground(deviceOf(cuda, index + 3), 9, id, index, config);
      expect(BigInt.asUintN(64, await given)).toBe(handle);
      const [set, init] = echo.lines();
      expect(set).toBe(`cudaSetDevice device ${index + 3} on another thread`);
      expect(init).toContain(`nranks 9 id ${idText} rank ${index} config {size 80 magic cafebeef`);
      expect(init).toContain(`blocking 1 `);
      expect(init).toContain(`minCTAs ${index + 1} `);
      expect(init).toMatch(/ on another thread$/);
      expect(echo.calls()).toBe(2);
    }
  });

  test("are not made where the device cannot be set, with CUDA's error", async () => {
    echo.begin({ status: 101, failing: 1 });
    const given = nccl.initRankInBackground(deviceOf(cuda, 3), 9, id, 4, {});
    const error = await given.catch((thrown: unknown) => thrown);
    expect(error).toBeInstanceOf(CudaError);
    expect(error).toMatchObject({ cCall: "cudaSetDevice", status: 101 });
    expect(echo.calls()).toBe(1);
    echo.begin({ status: 101, failing: 2 });
    const other = nccl.initRankInBackground(deviceOf(cuda, 3), 9, id, 4, {});
    expect(await other.catch((thrown: unknown) => thrown)).toBeInstanceOf(NcclError);
  });

  test("do not wait for each other, in any number", async () => {
    echo.begin();
    echo.hold(true);
    const ends = Array.from({ length: 24 }, (_, at) => nccl.abortInBackground(BigInt(at + 1)));
    let ended = 0;
    for (const end of ends) end.then(() => (ended += 1));
    while (echo.waiting() < ends.length) await sleep(1);
    expect(ended).toBe(0);
    echo.hold(false);
    await Promise.all(ends);
    expect(ended).toBe(24);
  });

  test("are made in order, up to one that fails, with memory that comes back", async () => {
    const helper = await builtHelper();
    const bound = await bind(echo.path, ncclTable);
    const version = new Int32Array(3).subarray(1, 2);
    const handle = new BigUint64Array(1);
    echo.begin({ out: [2n ** 64n - 3n, 6n] });
    const calls = [
      { call: bound.getVersion as NativeFunction, args: [version] },
      { call: bound.memAlloc as NativeFunction, args: [handle, 2 ** 40] },
      { call: bound.memFree as NativeFunction, args: [9n] },
    ];
    expect(await onThread(helper, calls)).toEqual({ status: 0, endedAt: 3 });
    expect(version[0]).toBe(-3);
    expect(handle[0]).toBe(2n ** 64n - 3n);
    echo.begin({ status: 4, failing: 2 });
    expect(await onThread(helper, calls)).toEqual({ status: 4, endedAt: 1 });
    expect(echo.calls()).toBe(2);
  });

  test("leave no stacks behind", async () => {
    const helper = await builtHelper();
    const call = (await bind(echo.path, ncclTable)).memFree as NativeFunction;
    echo.begin();
    const before = mappedBytes();
    for (let time = 0; time < 60; time++) await onThread(helper, [{ call, args: [1n] }]);
    // The C library keeps a few stacks of ended threads.
    expect(mappedBytes() - before).toBeLessThan(20 * stackBytes);
  });

  test("free their memory when they have ended, and where no thread starts", async () => {
    const helper = await builtHelper();
    const counts = { allocated: 0, freed: 0 };
    const counted = {
      ...helper,
      allocate: (bytes: number) => {
        counts.allocated += 1;
        return helper.allocate(bytes);
      },
      free: (address: bigint) => {
        counts.freed += 1;
        helper.free(address);
      },
    };
    const call = (await bind(echo.path, ncclTable)).memFree as NativeFunction;
    echo.begin();
    await onThread(counted, [{ call, args: [1n] }]);
    expect(counts).toEqual({ allocated: 1, freed: 1 });
    expect(onThread({ ...counted, start: () => false }, [{ call, args: [1n] }])).toBeUndefined();
    expect(counts).toEqual({ allocated: 2, freed: 2 });
    const args = Array.from({ length: 9 }, () => 1n);
    expect(() => onThread(counted, [{ call, args }])).toThrow("9 arguments");
    expect(counts).toEqual({ allocated: 3, freed: 3 });
    expect(onThread({ ...counted, allocate: () => undefined }, [])).toBeUndefined();
  });

  test.each([
    ["comes to its end", ""],
    ["is ended", "process.exit(0);"],
  ])("keep no process that %s", async (_, last) => {
    const held = await endOf(`nccl.abortInBackground(1n).catch(() => undefined);`, last);
    expect(held).toEqual({ code: 0, signal: null });
  });

  test("are waited for until a deadline", async () => {
    const held = await endOf(
      `setTimeout(() => held.hold(0), 300);
       const deadline = setTimeout(() => process.exit(3), 20_000);
       await nccl.abortInBackground(1n);
       clearTimeout(deadline);
       process.exitCode = 7;`,
      "",
    );
    expect(held).toEqual({ code: 7, signal: null });
  });

  /** Runs a program in a process of its own with held calls on other threads; resolves when it has ended. */
  async function endOf(body: string, last: string): Promise<object> {
    const built = new URL("../../../../../dist/backends/nccl/", import.meta.url);
    const program = `
      import { ncclCalls } from "${new URL("result/nccl.js", built)}";
      import { ncclTable } from "${new URL("sys/nccl.js", built)}";
      import { bind, prototype } from "${new URL("sys/prototype.js", built)}";
      const path = ${JSON.stringify(echo.path)};
      const row = (c) => prototype(c, "1");
      const held = await bind(path, {
        begin: row("void echo_begin(int status, uint64_t a, uint64_t b, double real, size_t deep)"),
        hold: row("void echo_hold(int hold)"),
        waiting: row("int echo_waiting(void)"),
      });
      const nccl = ncclCalls(await bind(path, ncclTable));
      held.begin(0, 0n, 0n, 0, 0);
      held.hold(1);
      const waits = (async () => {
        while (held.waiting() === 0) await new Promise((resolve) => setTimeout(resolve, 1));
      })();
      ${body}
      await waits;
      ${last}`;
    const child = spawn(process.execPath, ["--input-type=module", "--eval", program], {
      stdio: ["ignore", "inherit", "inherit"],
      timeout: 20_000,
      killSignal: "SIGKILL",
    });
    return new Promise((resolve) => {
      child.once("exit", (code, signal) => resolve({ code, signal }));
    });
  }
});
