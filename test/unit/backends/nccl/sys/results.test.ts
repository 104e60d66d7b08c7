/** The calls above the prototypes: what they pass on, what they give back, and how a status becomes an error. */
import { beforeAll, describe, expect, test } from "vitest";
import { type CudaCalls, cudaCalls } from "../../../../../src/backends/nccl/result/cuda.ts";
import { CudaError, NcclError } from "../../../../../src/backends/nccl/result/errors.ts";
import {
  type DataCall,
  type NcclCalls,
  ncclCalls,
} from "../../../../../src/backends/nccl/result/nccl.ts";
import type { ThreadDevice } from "../../../../../src/backends/nccl/sys/background.ts";
import { cudaTable } from "../../../../../src/backends/nccl/sys/cuda.ts";
import { ncclTable } from "../../../../../src/backends/nccl/sys/nccl.ts";
import { bind } from "../../../../../src/backends/nccl/sys/prototype.ts";
import { compiler } from "../../../../support/c-library.ts";
import { deviceOf } from "./device-of.ts";
import { type Answer, type Echo, echoLibrary } from "./echo.ts";

/** One method: how it is called, the C call that comes last, and what it returns. */
interface Trial<C> extends Answer {
  readonly call: (calls: C) => unknown;
  readonly arrives: string;
  readonly gives?: unknown;
}

const [a, b, c, d] = [0x1122_3344_5566_7788n, 0x2233_4455_6677_8899n, 0x33n, 0x44n];
const big = 2 ** 40 + 3;
const id = Uint8Array.from({ length: 128 }, (_, i) => 128 + i);
const idText = Buffer.from(id).toString("hex");
const out = () => new BigUint64Array(1);
/** A device for other threads; there when the library is. */
let device: ThreadDevice;

const ncclTrials: {
  readonly [K in Exclude<
    keyof NcclCalls,
    "hasWindows" | "hasAllToAll" | "sequence"
  >]: Trial<NcclCalls>;
} = {
  version: { call: (x) => x.version(), arrives: "ncclGetVersion", out: [22304n], gives: 22304 },
  uniqueId: {
    call: (x) => x.uniqueId(),
    arrives: "ncclGetUniqueId",
    gives: Uint8Array.from({ length: 128 }, (_, i) => 255 - i),
  },
  group: { call: (x) => x.group(() => undefined), arrives: "ncclGroupEnd" },
  estimateUs: {
    call: (x) => x.estimateUs(() => undefined),
    arrives: "ncclGroupSimulateEnd size 24 magic 74685283 version 22809 estimatedTime -1",
    real: 12.5,
    gives: 12.5,
  },
  initRank: {
    call: (x) => x.initRank(out(), 8, id, 3, { blocking: 1 }),
    arrives: `ncclCommInitRankConfig nranks 8 id ${idText} rank 3 config {size 80 magic cafebeef version 22809 blocking 1 `,
  },
  initRankInBackground: {
    call: (x) => x.initRankInBackground(device, 9, id, 4, { maxCTAs: 2 }),
    // The first sets the device.
    failing: 2,
    arrives: `ncclCommInitRankConfig nranks 9 id ${idText} rank 4 config {size 80`,
    out: [b],
    gives: b,
  },
  split: {
    call: (x) => x.split(a, undefined, 5, out(), { splitShare: 1 }),
    arrives: `ncclCommSplit comm ${a} color -1 key 5 config {size 80`,
  },
  splitInBackground: {
    call: (x) => x.splitInBackground(device, a, 3, 5, { splitShare: 1 }),
    arrives: `ncclCommSplit comm ${a} color 3 key 5 config {size 80`,
    failing: 2,
    out: [b],
    gives: b,
  },
  connectInBackground: {
    call: (x) =>
      x.connectInBackground(device, { comm: a, stream: b, from: c, into: d }, [
        { direction: "send", peer: 3 },
        { direction: "recv", peer: 5 },
      ]),
    arrives: "ncclGroupEnd on another thread",
    failing: 5,
  },
  abortInBackground: {
    call: (x) => x.abortInBackground(b),
    arrives: `ncclCommAbort comm ${b} on another thread`,
  },
  checkAsync: { call: (x) => x.checkAsync(a), arrives: `ncclCommGetAsyncError comm ${a}` },
  preMulSum: {
    call: (x) => x.preMulSum(Uint8Array.of(9, 8, 7, 6, 5, 4, 3, 2), 8, c),
    arrives: `ncclRedOpCreatePreMulSum scalar 0908070605040302 type 8 residence 1 comm ${c}`,
    out: [77n],
    gives: 77,
  },
  destroyOp: { call: (x) => x.destroyOp(77, c), arrives: `ncclRedOpDestroy op 77 comm ${c}` },
  memAlloc: {
    call: (x) => x.memAlloc(big),
    arrives: `ncclMemAlloc size ${big}`,
    out: [a],
    gives: a,
  },
  memFree: { call: (x) => x.memFree(a), arrives: `ncclMemFree ptr ${a}` },
  registerWindow: {
    call: (x) => x.registerWindow(c, a, big, out()),
    arrives: `ncclCommWindowRegister comm ${c} buffer ${a} size ${big} flags 1`,
  },
  registerWindowInBackground: {
    call: (x) => x.registerWindowInBackground(device, c, a, big),
    arrives: `ncclCommWindowRegister comm ${c} buffer ${a} size ${big} flags 1 on another thread`,
    failing: 2,
    out: [d],
    gives: d,
  },
  deregisterWindow: {
    call: (x) => x.deregisterWindow(c, a),
    arrives: `ncclCommWindowDeregister comm ${c} window ${a}`,
  },
};

/** The same for calls that move or reduce data, by name. */
const dataTrials: { readonly [C in DataCall as C["name"]]: Trial<NcclCalls> } = {
  allReduce: {
    call: (x) => x.sequence([[{ name: "allReduce", args: [a, b, big, 1, 2, c, d] }]]).run(),
    arrives: `ncclAllReduce send ${a} recv ${b} count ${big} type 1 op 2 comm ${c} stream ${d}`,
  },
  reduce: {
    call: (x) => x.sequence([[{ name: "reduce", args: [a, b, big, 1, 2, 6, c, d] }]]).run(),
    arrives: `ncclReduce send ${a} recv ${b} count ${big} type 1 op 2 root 6 comm ${c} stream ${d}`,
  },
  reduceScatter: {
    call: (x) => x.sequence([[{ name: "reduceScatter", args: [a, b, big, 1, 2, c, d] }]]).run(),
    arrives: `ncclReduceScatter send ${a} recv ${b} count ${big} type 1 op 2 comm ${c} stream ${d}`,
  },
  allGather: {
    call: (x) => x.sequence([[{ name: "allGather", args: [a, b, big, 1, c, d] }]]).run(),
    arrives: `ncclAllGather send ${a} recv ${b} count ${big} type 1 comm ${c} stream ${d}`,
  },
  broadcast: {
    call: (x) => x.sequence([[{ name: "broadcast", args: [a, b, big, 1, 6, c, d] }]]).run(),
    arrives: `ncclBroadcast send ${a} recv ${b} count ${big} type 1 root 6 comm ${c} stream ${d}`,
  },
  alltoAll: {
    call: (x) => x.sequence([[{ name: "alltoAll", args: [a, b, big, 1, c, d] }]]).run(),
    arrives: `ncclAlltoAll send ${a} recv ${b} count ${big} type 1 comm ${c} stream ${d}`,
  },
  send: {
    call: (x) => x.sequence([[{ name: "send", args: [a, big, 1, 6, c, d] }]]).run(),
    arrives: `ncclSend buffer ${a} count ${big} type 1 peer 6 comm ${c} stream ${d}`,
  },
  recv: {
    call: (x) => x.sequence([[{ name: "recv", args: [a, big, 1, 6, c, d] }]]).run(),
    arrives: `ncclRecv buffer ${a} count ${big} type 1 peer 6 comm ${c} stream ${d}`,
  },
};

const cudaTrials: {
  readonly [K in Exclude<keyof CudaCalls, "hostView" | "threadDevice">]: Trial<CudaCalls>;
} = {
  versions: {
    call: (x) => x.versions(),
    arrives: "cudaDriverGetVersion",
    out: [12080n],
    gives: { runtime: 12080, driver: 12080 },
  },
  deviceCount: { call: (x) => x.deviceCount(), arrives: "cudaGetDeviceCount", out: [7n], gives: 7 },
  computeCapability: {
    call: (x) => x.computeCapability(3),
    arrives: "cudaDeviceGetAttribute attribute 76 device 3",
    out: [9n],
    gives: "9.9",
  },
  pciBusId: {
    call: (x) => x.pciBusId(3),
    arrives: "cudaDeviceGetPCIBusId length 32 device 3",
    out: [0x1bn],
    gives: "0000:1B:00.0",
  },
  canAccessPeer: {
    call: (x) => x.canAccessPeer(3, 4),
    arrives: "cudaDeviceCanAccessPeer device 3 peer 4",
    out: [1n],
    gives: true,
  },
  setDevice: { call: (x) => x.setDevice(6), arrives: "cudaSetDevice device 6" },
  memoryInfo: {
    call: (x) => x.memoryInfo(),
    arrives: "cudaMemGetInfo",
    out: [5n, BigInt(big)],
    gives: { freeBytes: 5, totalBytes: big },
  },
  malloc: { call: (x) => x.malloc(big), arrives: `cudaMalloc size ${big}`, out: [a], gives: a },
  free: { call: (x) => x.free(a), arrives: `cudaFree ptr ${a}` },
  hostAlloc: {
    call: (x) => x.hostAlloc(big),
    arrives: `cudaHostAlloc size ${big} flags 1`,
    out: [b],
    gives: b,
  },
  hostFree: { call: (x) => x.hostFree(b), arrives: `cudaFreeHost ptr ${b}` },
  pointerInfo: {
    call: (x) => x.pointerInfo(a),
    arrives: `cudaPointerGetAttributes ptr ${a}`,
    out: [2n, 5n],
    gives: { kind: "device", device: 5 },
  },
  copy: {
    call: (x) => x.copy(a, b, big, c),
    arrives: `cudaMemcpyAsync target ${a} source ${b} count ${big} kind 4 stream ${c}`,
  },
  set: {
    call: (x) => x.set(a, 9, big, c),
    arrives: `cudaMemsetAsync ptr ${a} value 9 count ${big} stream ${c}`,
  },
  streamCreate: {
    call: (x) => x.streamCreate(),
    arrives: "cudaStreamCreateWithFlags flags 1",
    out: [c],
    gives: c,
  },
  streamDestroy: { call: (x) => x.streamDestroy(c), arrives: `cudaStreamDestroy stream ${c}` },
  streamSynchronize: {
    call: (x) => x.streamSynchronize(c),
    arrives: `cudaStreamSynchronize stream ${c}`,
  },
  streamDone: { call: (x) => x.streamDone(c), arrives: `cudaStreamQuery stream ${c}`, gives: true },
  streamWaitEvent: {
    call: (x) => x.streamWaitEvent(c, d),
    arrives: `cudaStreamWaitEvent stream ${c} event ${d} flags 0`,
  },
  eventCreate: {
    call: (x) => x.eventCreate(),
    arrives: "cudaEventCreateWithFlags flags 2",
    out: [d],
    gives: d,
  },
  eventDestroy: { call: (x) => x.eventDestroy(d), arrives: `cudaEventDestroy event ${d}` },
  eventRecord: {
    call: (x) => x.eventRecord(d, c),
    arrives: `cudaEventRecord event ${d} stream ${c}`,
  },
  eventDone: { call: (x) => x.eventDone(d), arrives: `cudaEventQuery event ${d}`, gives: true },
  isCapturing: {
    call: (x) => x.isCapturing(d),
    arrives: `cudaStreamIsCapturing stream ${d}`,
    out: [2n],
    gives: true,
  },
  beginCapture: {
    call: (x) => x.beginCapture(c),
    arrives: `cudaStreamBeginCapture stream ${c} mode 1`,
  },
  endCapture: {
    call: (x) => x.endCapture(c),
    arrives: `cudaStreamEndCapture stream ${c}`,
    out: [98n],
    gives: 98n,
  },
  instantiate: {
    call: (x) => x.instantiate(97n),
    arrives: "cudaGraphDestroy graph 97",
    out: [99n],
    gives: 99n,
  },
  launches: {
    call: (x) => x.launches([{ graph: a, stream: c }], () => undefined).run(),
    arrives: `cudaGraphLaunch exec ${a} stream ${c}`,
  },
  graphDestroy: { call: (x) => x.graphDestroy(a), arrives: `cudaGraphExecDestroy exec ${a}` },
};

const reason = "missing" in compiler ? ` (skipped: ${compiler.missing})` : "";

describe.skipIf(reason !== "")(`results and errors of native calls${reason}`, () => {
  let echo: Echo;
  let nccl: NcclCalls;
  let cuda: CudaCalls;
  beforeAll(async () => {
    echo = await echoLibrary();
    nccl = ncclCalls(await bind(echo.path, ncclTable));
    cuda = cudaCalls(await bind(echo.path, cudaTable));
    device = deviceOf(cuda, 3);
  });

  test("every method is tried", () => {
    const known = [...Object.keys(ncclTrials), "hasWindows", "hasAllToAll", "sequence"];
    expect(Object.keys(nccl).sort()).toEqual(known.sort());
    const others = ["hostView", "threadDevice"];
    expect(Object.keys(cuda).sort()).toEqual([...Object.keys(cudaTrials), ...others].sort());
    expect(nccl).toMatchObject({ hasWindows: true, hasAllToAll: true });
  });

  test.each(Object.entries({ ...ncclTrials, ...dataTrials }))("nccl.%s", async (_, trial) => {
    echo.begin(trial);
    const given = await trial.call(nccl);
    expect(echo.text()).toMatch(new RegExp(`^${escaped(trial.arrives)}`));
    expect(given).toEqual(trial.gives);
  });

  test.each(Object.entries(cudaTrials))("cuda.%s", (_, trial) => {
    echo.begin(trial);
    const given = trial.call(cuda);
    expect(echo.text()).toBe(trial.arrives);
    expect(given).toEqual(trial.gives);
  });

  test.each(Object.entries({ ...ncclTrials, ...dataTrials }))(
    "nccl.%s fails by name",
    async (_, trial) => {
      echo.lastError(true);
      echo.begin({ ...trial, status: 6 });
      const error = await thrownBy(() => trial.call(nccl));
      const cCall = firstOf(trial.arrives);
      const group = trial.arrives.startsWith("ncclGroup") && trial.failing === undefined;
      expect(error).toBeInstanceOf(NcclError);
      expect(error).toMatchObject({
        code: "ERR_COMM_NCCL",
        cCall: group ? "ncclGroupStart" : cCall,
        status: 6,
        statusName: "ncclRemoteError",
        detail: expect.stringMatching(/^the other end hung up \(comm \d+\)$/),
        hint: expect.stringContaining("rebuild"),
      });
      expect((error as Error).message).toContain(": ncclRemoteError (6): the other end hung up");
      echo.lastError(false);
    },
  );

  test.each(Object.entries(cudaTrials))("cuda.%s fails by name", async (name, trial) => {
    echo.begin({ ...trial, status: 2 });
    const before = echo.clearings();
    const error = await thrownBy(() => trial.call(cuda));
    const first: Record<string, string> = {
      versions: "cudaRuntimeGetVersion",
      instantiate: "cudaGraphInstantiateWithFlags",
    };
    expect(error).toBeInstanceOf(CudaError);
    expect(error).toMatchObject({
      code: "ERR_COMM_CUDA",
      cCall: first[name] ?? firstOf(trial.arrives),
      status: 2,
      statusName: "cudaErrorNumber2",
      detail: "what CUDA says of 2",
    });
    expect(echo.clearings() - before, "the last error is cleared").toBe(1);
  });

  test("a comm's last error comes from that comm; without one the status speaks", async () => {
    echo.lastError(true);
    echo.begin({ status: 5 });
    const failing = nccl.sequence([[{ name: "allReduce", args: [a, b, 1, 0, 0, 1234n, d] }]]);
    const own = await thrownBy(() => failing.run());
    expect(own).toMatchObject({ detail: "the other end hung up (comm 1234)" });
    const withoutComm = await thrownBy(() => nccl.uniqueId());
    expect(withoutComm).toMatchObject({ detail: "the other end hung up (comm 0)" });
    echo.lastError(false);
    const quiet = await thrownBy(() => failing.run());
    expect(quiet).toMatchObject({ statusName: "ncclInvalidUsage", detail: "the text of 5" });
    echo.begin({ status: 41 });
    expect(await thrownBy(() => nccl.uniqueId())).toMatchObject({ statusName: "status 41" });
  });

  test("a status of not ready throws no error for an event or a stream, another status does", async () => {
    echo.begin({ status: 600 });
    expect(cuda.eventDone(d)).toBe(false);
    expect(cuda.streamDone(c)).toBe(false);
    echo.begin({ status: 700 });
    expect(await thrownBy(() => cuda.eventDone(d))).toMatchObject({ cCall: "cudaEventQuery" });
    expect(await thrownBy(() => cuda.streamDone(c))).toMatchObject({ cCall: "cudaStreamQuery" });
  });

  test("an asynchronous state in progress throws no error, another state does", async () => {
    echo.begin({ out: [7n] });
    nccl.checkAsync(a);
    echo.begin({ out: [1n] });
    expect(await thrownBy(() => nccl.checkAsync(a))).toMatchObject({
      cCall: "ncclCommGetAsyncError",
      statusName: "ncclUnhandledCudaError",
    });
  });

  test("handles of out-parameters are those that C wrote", () => {
    const slots = [out(), out(), out()] as const;
    echo.begin({ out: [a] });
    nccl.initRank(slots[0], 2, id, 1, {});
    nccl.split(b, 3, 4, slots[1], {});
    nccl.registerWindow(b, c, 8, slots[2]);
    expect(slots.map(([handle]) => handle)).toEqual([a, a, a]);
  });

  test.each(["group", "estimateUs"] as const)(
    "%s is closed also when a call in it throws",
    async (form) => {
      echo.begin();
      const error = await thrownBy(() =>
        nccl[form](() => {
          throw new Error("mine");
        }),
      );
      expect(error).toMatchObject({ message: "mine" });
      expect(echo.calls()).toBe(2);
      expect(echo.text()).toMatch(form === "group" ? /^ncclGroupEnd/ : /^ncclGroupSimulateEnd/);
    },
  );

  test("calls use deep stacks on this thread and on another", async () => {
    const deepBytes = 4 << 20;
    echo.begin({ deepBytes });
    nccl.checkAsync(a);
    expect(echo.text()).toBe(`ncclCommGetAsyncError comm ${a}`);
    echo.begin({ deepBytes });
    await Promise.all([nccl.abortInBackground(a), nccl.abortInBackground(b)]);
    expect(echo.calls()).toBe(2);
    expect(echo.text()).toMatch(/ on another thread$/);
    echo.begin({ deepBytes, out: [c] });
    expect(await nccl.initRankInBackground(device, 2, id, 1, {})).toBe(c);
    expect(echo.text()).toContain(`id ${idText} rank 1`);
    expect(echo.text()).toMatch(/ on another thread$/);
  });

  test("page-locked memory is read at its own address", async () => {
    const { prepareHostView } = await import("../../../../../src/backends/nccl/sys/koffi.ts");
    await prepareHostView();
    const { koffi } = await import("../../../../../src/backends/nccl/sys/koffi.ts");
    const { alloc, address, encode } = await koffi();
    const memory = alloc("uint8_t", 64);
    const seen = cuda.hostView(BigInt(address(memory)), 64);
    encode(
      memory,
      "uint8_t",
      Array.from({ length: 64 }, (_, i) => i),
      64,
    );
    expect([...seen.subarray(0, 3)]).toEqual([0, 1, 2]);
    expect(seen.length).toBe(64);
  });
});

async function thrownBy(call: () => unknown): Promise<unknown> {
  try {
    await call();
  } catch (error) {
    return error;
  }
  throw new Error("nothing was thrown");
}

function firstOf(text: string): string {
  return text.split(" ")[0] as string;
}

function escaped(text: string): string {
  return text.replace(/[.*+?^${}()|[\]\\]/g, "\\$&");
}
