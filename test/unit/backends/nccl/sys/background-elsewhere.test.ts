/** Calls in the background without the native helper. */
import { afterAll, beforeAll, describe, expect, test, vi } from "vitest";
import { type CudaCalls, cudaCalls } from "../../../../../src/backends/nccl/result/cuda.ts";
import { CudaError } from "../../../../../src/backends/nccl/result/errors.ts";
import { type NcclCalls, ncclCalls } from "../../../../../src/backends/nccl/result/nccl.ts";
import { cudaTable } from "../../../../../src/backends/nccl/sys/cuda.ts";
import { ncclTable } from "../../../../../src/backends/nccl/sys/nccl.ts";
import { bind } from "../../../../../src/backends/nccl/sys/prototype.ts";
import { compiler } from "../../../../support/c-library.ts";
import { deviceOf } from "./device-of.ts";
import { type Echo, echoLibrary } from "./echo.ts";

const reason = "missing" in compiler ? ` (skipped: ${compiler.missing})` : "";
const id = new Uint8Array(128).fill(7);

describe.skipIf(reason !== "")(`calls in the background without the helper${reason}`, () => {
  let echo: Echo;
  let nccl: NcclCalls;
  let cuda: CudaCalls;
  beforeAll(async () => {
    vi.stubEnv("TWINCCL_NATIVE_HELPER", "0");
    echo = await echoLibrary();
    nccl = ncclCalls(await bind(echo.path, ncclTable));
    cuda = cudaCalls(await bind(echo.path, cudaTable));
  });

  afterAll(() => vi.unstubAllEnvs());

  const start = (device: number): Promise<bigint> =>
    nccl.initRankInBackground(deviceOf(cuda, device), 9, id, 4, {});

  test("are made on threads of Node.js, which are on device 0 and have large stacks", async () => {
    echo.begin({ out: [8n], deepBytes: 4 << 20 });
    expect(await start(0)).toBe(8n);
    expect(echo.lines()).toEqual([
      expect.stringMatching(/^ncclCommInitRankConfig nranks 9 .* on another thread$/),
    ]);
  });

  test("are made on this thread for another device", async () => {
    echo.begin({ out: [9n] });
    expect(await start(2)).toBe(9n);
    expect(echo.lines()).toEqual([
      "cudaSetDevice device 2",
      expect.stringMatching(/^ncclCommInitRankConfig nranks 9 .*\}$/),
    ]);
  });

  test("are not made where the device cannot be set", async () => {
    echo.begin({ status: 101, failing: 1 });
    await expect(start(2)).rejects.toBeInstanceOf(CudaError);
    expect(echo.calls()).toBe(1);
  });

  test("close the group of messages of which one fails", async () => {
    echo.begin({ status: 4, failing: 3 });
    const room = { comm: 1n, stream: 2n, from: 3n, into: 4n };
    const ends = [1, 2].map((peer) => ({ direction: "send", peer }) as const);
    const connecting = nccl.connectInBackground(deviceOf(cuda, 0), room, ends);
    await expect(connecting).rejects.toMatchObject({ cCall: "ncclSend", status: 4 });
    const names = echo.lines().map((line) => line.split(" ")[0]);
    expect(names).toEqual(["cudaSetDevice", "ncclGroupStart", "ncclSend", "ncclGroupEnd"]);
  });
});
