/** Every row of both prototype tables, called with a value of its own for every parameter and compared on the C side. */
import { beforeAll, describe, expect, test } from "vitest";
import { cudaDriverTable, cudaTable } from "../../../../../src/backends/nccl/sys/cuda.ts";
import { ncclConfig, ncclSimInfo } from "../../../../../src/backends/nccl/sys/layouts.ts";
import { ncclTable } from "../../../../../src/backends/nccl/sys/nccl.ts";
import { nvmlTable } from "../../../../../src/backends/nccl/sys/nvml.ts";
import {
  addressOf,
  bind,
  type NativeFunction,
  type PrototypeTable,
} from "../../../../../src/backends/nccl/sys/prototype.ts";
import { compiler } from "../../../../support/c-library.ts";
import { type Answer, type Echo, echoLibrary } from "./echo.ts";

/** A call of one row: what it is given, what must arrive, and what must come back. */
interface Trial extends Answer {
  readonly args: () => readonly unknown[];
  /** The arguments as C sees them; the row's name is not repeated. */
  readonly arrives?: string;
  /** The out-parameter by its position, and its contents afterwards. */
  readonly back?: readonly (readonly [at: number, contents: unknown])[];
  /** The returned value, where that is no status. */
  readonly returns?: unknown;
}

/** Above 2^32, and distinct in every byte, so that no half of it can get lost unnoticed. */
const [a, b, c, d] = [
  0x1122_3344_5566_7788n,
  0x2233_4455_6677_8899n,
  0x7fff_1234_5678_9abcn,
  0x5566_7788_99aa_bbccn,
];
const big = 2 ** 32 + 7;
const largest = Number.MAX_SAFE_INTEGER;
const ints = () => new Int32Array(1);
const handles = () => new BigUint64Array(1);
const id = Uint8Array.from({ length: 128 }, (_, i) => (i * 37 + 11) & 0xff);
const idText = Buffer.from(id).toString("hex");
const undef = -(2 ** 31);
const configText = (blocking: number, splitShare: number): string =>
  `{size 80 magic cafebeef version 22809 blocking ${blocking} cgaClusterSize ${undef} minCTAs ${undef} maxCTAs ${undef} ` +
  `netName 0 splitShare ${splitShare} trafficClass ${undef} commName 0 collnetEnable ${undef} CTAPolicy ${undef} ` +
  `shrinkShare ${undef} nvlsCTAs ${undef} nChannelsPerNetPeer ${undef} nvlinkCentricSched ${undef}}`;

const ncclTrials: { readonly [K in keyof typeof ncclTable]: Trial } = {
  getVersion: { args: () => [ints()], out: [22903n], arrives: "", back: [[0, 22903]] },
  getUniqueId: {
    args: () => [new Uint8Array(128)],
    arrives: "",
    back: [[0, Array.from({ length: 128 }, (_, i) => 255 - i)]],
  },
  commInitRankConfig: {
    args: () => [handles(), 70001, { internal: id }, 60002, ncclConfig({ blocking: 5 })],
    out: [a],
    arrives: `nranks 70001 id ${idText} rank 60002 config ${configText(5, undef)}`,
    back: [[0, a]],
  },
  commSplit: {
    args: () => [a, -1, -77, handles(), ncclConfig({ splitShare: 9 })],
    out: [b],
    arrives: `comm ${a} color -1 key -77 config ${configText(undef, 9)}`,
    back: [[3, b]],
  },
  commAbort: { args: () => [c], arrives: `comm ${c}` },
  commGetAsyncError: { args: () => [d, ints()], out: [6n], arrives: `comm ${d}`, back: [[1, 6]] },
  getErrorString: { args: () => [5], returns: "the text of 5" },
  getLastError: { args: () => [a], returns: `the other end hung up (comm ${a})` },
  groupStart: { args: () => [], arrives: "" },
  groupEnd: { args: () => [], arrives: "" },
  groupSimulateEnd: {
    args: () => [ncclSimInfo()],
    arrives: "size 24 magic 74685283 version 22809 estimatedTime -1",
  },
  allReduce: {
    args: () => [a, b, largest, 7, 3, c, d],
    arrives: `send ${a} recv ${b} count ${largest} type 7 op 3 comm ${c} stream ${d}`,
  },
  reduce: {
    args: () => [a, b, big, 6, 2, 71, c, d],
    arrives: `send ${a} recv ${b} count ${big} type 6 op 2 root 71 comm ${c} stream ${d}`,
  },
  reduceScatter: {
    args: () => [a, b, big, 5, 4, c, d],
    arrives: `send ${a} recv ${b} count ${big} type 5 op 4 comm ${c} stream ${d}`,
  },
  allGather: {
    args: () => [a, b, big, 9, c, d],
    arrives: `send ${a} recv ${b} count ${big} type 9 comm ${c} stream ${d}`,
  },
  broadcast: {
    args: () => [a, b, big, 8, 72, c, d],
    arrives: `send ${a} recv ${b} count ${big} type 8 root 72 comm ${c} stream ${d}`,
  },
  alltoAll: {
    args: () => [a, b, big, 9, c, d],
    arrives: `send ${a} recv ${b} count ${big} type 9 comm ${c} stream ${d}`,
  },
  send: {
    args: () => [a, big, 10, 73, b, c],
    arrives: `buffer ${a} count ${big} type 10 peer 73 comm ${b} stream ${c}`,
  },
  recv: {
    args: () => [b, largest, 11, 74, c, d],
    arrives: `buffer ${b} count ${largest} type 11 peer 74 comm ${c} stream ${d}`,
  },
  redOpCreatePreMulSum: {
    args: () => [ints(), Uint8Array.of(1, 2, 3, 4, 250, 251, 252, 253), 8, 1, a],
    out: [4242n],
    arrives: `scalar 01020304fafbfcfd type 8 residence 1 comm ${a}`,
    back: [[0, 4242]],
  },
  redOpDestroy: { args: () => [4243, b], arrives: `op 4243 comm ${b}` },
  memAlloc: {
    args: () => [handles(), largest],
    out: [c],
    arrives: `size ${largest}`,
    back: [[0, c]],
  },
  memFree: { args: () => [d], arrives: `ptr ${d}` },
  commWindowRegister: {
    args: () => [a, b, big, handles(), 3],
    out: [c],
    arrives: `comm ${a} buffer ${b} size ${big} flags 3`,
    back: [[3, c]],
  },
  commWindowDeregister: { args: () => [c, d], arrives: `comm ${c} window ${d}` },
};

const cudaTrials: { readonly [K in keyof typeof cudaTable]: Trial } = {
  runtimeGetVersion: { args: () => [ints()], out: [13000n], arrives: "", back: [[0, 13000]] },
  driverGetVersion: { args: () => [ints()], out: [13010n], arrives: "", back: [[0, 13010]] },
  getDeviceCount: { args: () => [ints()], out: [16n], arrives: "", back: [[0, 16]] },
  setDevice: { args: () => [11], arrives: "device 11" },
  deviceGetAttribute: {
    args: () => [ints(), 75, 12],
    out: [9n],
    arrives: "attribute 75 device 12",
    back: [[0, 9]],
  },
  deviceGetPCIBusId: {
    args: () => [new Uint8Array(14), 14, 13],
    out: [0xabn],
    arrives: "length 14 device 13",
    back: [[0, [...Buffer.from("0000:AB:00.0\0\0")]]],
  },
  deviceCanAccessPeer: {
    args: () => [ints(), 14, 15],
    out: [1n],
    arrives: "device 14 peer 15",
    back: [[0, 1]],
  },
  getErrorName: { args: () => [700], returns: "cudaErrorNumber700" },
  getErrorString: { args: () => [701], returns: "what CUDA says of 701" },
  getLastError: { args: () => [], status: 46, returns: 46 },
  malloc: {
    args: () => [handles(), largest],
    out: [a],
    arrives: `size ${largest}`,
    back: [[0, a]],
  },
  free: { args: () => [a], arrives: `ptr ${a}` },
  memGetInfo: {
    args: () => [handles(), handles()],
    out: [BigInt(big), BigInt(largest)],
    arrives: "",
    back: [
      [0, BigInt(big)],
      [1, BigInt(largest)],
    ],
  },
  hostAlloc: {
    args: () => [handles(), big, 5],
    out: [b],
    arrives: `size ${big} flags 5`,
    back: [[0, b]],
  },
  freeHost: { args: () => [b], arrives: `ptr ${b}` },
  pointerGetAttributes: {
    args: () => [new Int32Array(24), a],
    out: [2n, 5n],
    arrives: `ptr ${a}`,
    back: [[0, [2, 5, ...new Array(20).fill(0x5a5a5a5a), 0, 0]]],
  },
  memcpyAsync: {
    args: () => [a, b, big, 4, c],
    arrives: `target ${a} source ${b} count ${big} kind 4 stream ${c}`,
  },
  memsetAsync: {
    args: () => [a, 255, largest, b],
    arrives: `ptr ${a} value 255 count ${largest} stream ${b}`,
  },
  streamCreateWithFlags: {
    args: () => [handles(), 1],
    out: [c],
    arrives: "flags 1",
    back: [[0, c]],
  },
  streamDestroy: { args: () => [c], arrives: `stream ${c}` },
  streamSynchronize: { args: () => [d], arrives: `stream ${d}` },
  streamQuery: { args: () => [b], arrives: `stream ${b}` },
  streamWaitEvent: {
    args: () => [b, c, 3],
    arrives: `stream ${b} event ${c} flags 3`,
  },
  eventCreateWithFlags: {
    args: () => [handles(), 2],
    out: [d],
    arrives: "flags 2",
    back: [[0, d]],
  },
  eventDestroy: { args: () => [a], arrives: `event ${a}` },
  eventRecord: { args: () => [a, b], arrives: `event ${a} stream ${b}` },
  eventQuery: { args: () => [c], arrives: `event ${c}` },
  streamIsCapturing: {
    args: () => [a, ints()],
    out: [1n],
    arrives: `stream ${a}`,
    back: [[1, 1]],
  },
  streamBeginCapture: { args: () => [a, 1], arrives: `stream ${a} mode 1` },
  streamEndCapture: {
    args: () => [a, handles()],
    out: [b],
    arrives: `stream ${a}`,
    back: [[1, b]],
  },
  graphInstantiateWithFlags: {
    args: () => [handles(), a, largest],
    out: [d],
    arrives: `graph ${a} flags ${largest}`,
    back: [[0, d]],
  },
  graphLaunch: { args: () => [a, b], arrives: `exec ${a} stream ${b}` },
  graphExecDestroy: { args: () => [c], arrives: `exec ${c}` },
  graphDestroy: { args: () => [d], arrives: `graph ${d}` },
};

/** The text of an `nvmlPciInfo_t`, which lies at its end, as words. */
const busId = new Uint32Array(
  Uint8Array.from(Buffer.from("00000001:C4:1F.0".padEnd(17, "\0").padEnd(32, "Z"))).buffer,
);

const nvmlTrials: { readonly [K in keyof typeof nvmlTable]: Trial } = {
  init: { args: () => [], arrives: "" },
  shutdown: { args: () => [], arrives: "" },
  systemGetDriverVersion: {
    args: () => [new Uint8Array(10), 10],
    arrives: "length 10",
    back: [[0, [...Buffer.from("999.88.0\0\0")]]],
  },
  deviceGetHandleByPciBusId: {
    args: () => ["0000:1B:00.0", handles()],
    out: [a],
    arrives: "busId 0000:1B:00.0",
    back: [[1, a]],
  },
  deviceGetName: {
    args: () => [b, new Uint8Array(13), 13],
    arrives: `device ${b} length 13`,
    back: [[1, [...Buffer.from("NVIDIA Echo\0\0")]]],
  },
  deviceGetMemoryInfo: {
    args: () => [c, new BigUint64Array(3)],
    arrives: `device ${c}`,
    back: [[1, [80n << 30n, 79n << 30n, 1n << 30n]]],
  },
  deviceGetNvLinkState: {
    args: () => [d, 16, ints()],
    arrives: `device ${d} link 16`,
    back: [[2, 1]],
  },
  deviceGetNvLinkRemoteDeviceType: {
    args: () => [a, 17, ints()],
    out: [255n],
    arrives: `device ${a} link 17`,
    back: [[2, 255]],
  },
  deviceGetNvLinkRemotePciInfo: {
    args: () => [b, 18, new Uint32Array(18)],
    out: [0x1_0000_00c4n, 0x1fn],
    arrives: `device ${b} link 18`,
    back: [
      [2, [...Array(4).fill(0x5a5a5a5a), 1, 0xc4, 0x1f, ...Array(2).fill(0x5a5a5a5a), ...busId, 0]],
    ],
  },
  deviceGetTopologyCommonAncestor: {
    args: () => [c, d, ints()],
    out: [40n],
    arrives: `device1 ${c} device2 ${d}`,
    back: [[2, 40]],
  },
};

const driverTrials: { readonly [K in keyof typeof cudaDriverTable]: Trial } = {
  deviceGet: { args: () => [ints(), 19], out: [119n], arrives: "ordinal 19", back: [[0, 119]] },
  deviceGetAttribute: {
    args: () => [ints(), 132, 120],
    out: [1n],
    arrives: "attribute 132 device 120",
    back: [[0, 1]],
  },
};

const reason = "missing" in compiler ? ` (skipped: ${compiler.missing})` : "";

describe.skipIf(reason !== "")(`calls arrive in C with their arguments${reason}`, () => {
  let echo: Echo;
  beforeAll(async () => {
    echo = await echoLibrary();
    echo.lastError(true);
  });

  describe("libnccl", () => each(ncclTable, ncclTrials));
  describe("libcudart", () => each(cudaTable, cudaTrials));
  describe("libnvidia-ml", () => each(nvmlTable, nvmlTrials));
  describe("libcuda", () => each(cudaDriverTable, driverTrials));

  function each(table: PrototypeTable, trials: Readonly<Record<string, Trial>>): void {
    test.each(Object.keys(table))("%s", async (name) => {
      const trial = trials[name];
      if (trial === undefined) throw new Error(`no test calls ${name}`);
      const bound = await bind(echo.path, table);
      const call = bound[name] as NativeFunction | undefined;
      if (call === undefined) throw new Error(`the echo has no ${name}`);
      const symbol = /(\w+)\s*\(/.exec(table[name]?.c ?? "")?.[1] as string;
      echo.begin(trial);
      const args = trial.args();
      const returned = call(...args);
      expect(returned).toEqual("returns" in trial ? trial.returns : 0);
      if (trial.arrives !== undefined) {
        expect(echo.text()).toBe(`${symbol} ${trial.arrives}`.trim());
      }
      for (const [at, contents] of trial.back ?? []) {
        const found = Array.from(args[at] as Uint8Array);
        expect(found, `parameter ${at}`).toEqual(Array.isArray(contents) ? contents : [contents]);
      }
    });
  }

  test("a copy takes arrays for addresses", async () => {
    const { memcpyAsync } = await bind(echo.path, cudaTable);
    echo.begin({ real: 1 });
    const [target, source] = [new Uint8Array(5), Uint8Array.of(0, 1, 2, 3, 4, 5, 6).subarray(2)];
    expect(memcpyAsync?.(target, source, 5, 4, 0n)).toBe(0);
    expect([...target]).toEqual([2, 3, 4, 5, 6]);
  });

  test("each function has its own address, and no other name has one", async () => {
    const { allReduce, reduce, send } = await bind(echo.path, ncclTable);
    const known = [allReduce, reduce, send].map((each) => addressOf(each as NativeFunction));
    expect(new Set(known).size).toBe(3);
    for (const address of known) expect(address).toBeGreaterThan(0n);
    expect(() => addressOf(() => 0)).toThrow("the function is not bound");
  });

  test("every declaration names the function that its row is for", () => {
    for (const [prefix, table] of [
      ["nccl", ncclTable],
      ["cuda", cudaTable],
      ["nvml", nvmlTable],
      ["cu", cudaDriverTable],
    ] as const) {
      for (const [name, { c: text, since }] of Object.entries(table)) {
        const symbol = `${prefix}${name[0]?.toUpperCase()}${name.slice(1)}`;
        expect(text.replace("_v2(", "(")).toContain(` ${symbol}(`);
        expect(since).toMatch(/^\d+\.\d+$/);
      }
    }
  });
});
