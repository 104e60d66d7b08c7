/**
 * The CUDA runtime as functions that return their result or throw `CudaError`, and one fact of the driver's own library.
 */

import type { ThreadDevice } from "../sys/background.ts";
import { CallList, type CallSequence } from "../sys/call-list.ts";
import { type cudaDriverTable, cudaTable } from "../sys/cuda.ts";
import type { BoundCall, Helper } from "../sys/helper.ts";
import { hostView } from "../sys/koffi.ts";
import { type Bound, need } from "../sys/prototype.ts";
import { CudaError } from "./errors.ts";
import { type NativeLibrary, nativeLibrary } from "./library.ts";

/** The CUDA calls that this backend makes; a fake can stand in for tests of what lies above. */
export interface CudaCalls extends CudaDeviceCalls, CudaMemoryCalls, CudaStreamCalls {}

/** Wraps a bound libcudart. With the helper, recordings that are launched often are lists of launches. */
export function cudaCalls(bound: BoundCuda, helper?: Helper): CudaCalls {
  const library = cudaLibrary(bound);
  return {
    ...deviceCalls(library),
    ...memoryCalls(library),
    ...streamCalls(library, helper),
  };
}

const success = 0;

/** A bound libcudart. */
type BoundCuda = Bound<typeof cudaTable>;

type CudaLibrary = NativeLibrary<typeof cudaTable>;

/** Wraps a bound libcudart for its callers. */
export function cudaLibrary(bound: BoundCuda): CudaLibrary {
  const get = <K extends keyof typeof cudaTable>(name: K) => need(cudaTable, bound, name);
  const [nameOf, textOf, clear] = [get("getErrorName"), get("getErrorString"), get("getLastError")];
  return nativeLibrary(cudaTable, bound, (status, cCall) => {
    // Else the next call of `cudaGetLastError` would return this error.
    clear();
    throw new CudaError({ cCall, status, statusName: nameOf(status), detail: textOf(status) });
  });
}

const busIdLength = 32;

/** Attributes of a device, by `cudaDeviceAttr`. */
const attribute = { computeMajor: 75, computeMinor: 76 } as const;

/** Devices of this process. */
export interface CudaDeviceCalls {
  /** Version codes such as 13000 of the runtime, and of the newest one that the driver supports. */
  versions(): { readonly runtime: number; readonly driver: number };
  deviceCount(): number;
  /** Compute capability, such as 9.0. */
  computeCapability(device: number): string;
  pciBusId(device: number): string;
  canAccessPeer(device: number, peer: number): boolean;
  /** Makes a device this thread's current one. */
  setDevice(device: number): void;
  /** A device as other threads take it. */
  threadDevice(device: number): Omit<ThreadDevice, "setHere">;
  memoryInfo(): { readonly freeBytes: number; readonly totalBytes: number };
}

/** Wraps these calls. */
export function deviceCalls({ get, check, call, int }: CudaLibrary): CudaDeviceCalls {
  const setDevice = get("setDevice");
  const attributeOf = (id: number, device: number): number => int("deviceGetAttribute", id, device);
  return {
    versions: () => ({
      runtime: int("runtimeGetVersion"),
      driver: int("driverGetVersion"),
    }),
    deviceCount: () => int("getDeviceCount"),
    computeCapability: (device) =>
      `${attributeOf(attribute.computeMajor, device)}.${attributeOf(attribute.computeMinor, device)}`,
    pciBusId(device) {
      const text = new Uint8Array(busIdLength);
      call("deviceGetPCIBusId", [text, text.length, device]);
      return new TextDecoder().decode(text.subarray(0, text.indexOf(0)));
    },
    canAccessPeer: (device, peer) => int("deviceCanAccessPeer", device, peer) !== 0,
    setDevice: (device) => check(setDevice(device), "setDevice"),
    threadDevice: (index) => ({
      index,
      setter: setDevice,
      check: (status) => check(status, "setDevice"),
    }),
    memoryInfo() {
      const [free, total] = [new BigUint64Array(1), new BigUint64Array(1)];
      call("memGetInfo", [free, total]);
      return { freeBytes: Number(free[0]), totalBytes: Number(total[0]) };
    },
  };
}

const portableHostMemory = 1;
const copyKindByAddress = 4;

/** The structure of `cudaPointerGetAttributes`: 24 bytes, and 88 since CUDA 13. */
const pointerAttributesBytes = 128;

/** `cudaMemoryType`, by value. */
const memoryKinds = ["unregistered", "host", "device", "managed"] as const;

/** CUDA's facts about an address. */
export interface PointerInfo {
  readonly kind: (typeof memoryKinds)[number];
  /** The owner of the memory, for memory of devices. */
  readonly device: number;
}

/** Memory of devices and page-locked memory of the host. */
interface CudaMemoryCalls {
  malloc(bytes: number): bigint;
  free(ptr: bigint): void;
  hostAlloc(bytes: number): bigint;
  hostFree(ptr: bigint): void;
  /** Page-locked memory as an array, without a copy; valid until it is given back. */
  hostView(ptr: bigint, bytes: number): Uint8Array;
  pointerInfo(ptr: bigint): PointerInfo;
  /** Copies between any two memories, in stream order. */
  copy(
    target: bigint | Uint8Array,
    source: bigint | Uint8Array,
    bytes: number,
    stream: bigint,
  ): void;
  /** Sets bytes, in stream order. */
  set(ptr: bigint, value: number, bytes: number, stream: bigint): void;
}

/** Wraps these calls. */
function memoryCalls({ get, check, call, handle }: CudaLibrary): CudaMemoryCalls {
  const memcpyAsync = get("memcpyAsync");
  return {
    malloc: (bytes) => handle("malloc", bytes),
    free: (ptr) => call("free", [ptr]),
    hostAlloc: (bytes) => handle("hostAlloc", bytes, portableHostMemory),
    hostFree: (ptr) => call("freeHost", [ptr]),
    hostView,
    pointerInfo(ptr) {
      const fields = new Int32Array(pointerAttributesBytes / 4);
      call("pointerGetAttributes", [fields, ptr]);
      const [kind = 0, device = -1] = fields;
      return { kind: memoryKinds[kind] ?? "unregistered", device };
    },
    copy: (target, source, bytes, stream) =>
      check(memcpyAsync(target, source, bytes, copyKindByAddress, stream), "memcpyAsync"),
    set: (ptr, value, bytes, stream) => call("memsetAsync", [ptr, value, bytes, stream]),
  };
}

const notReady = 600;
const nonBlockingStream = 1;
const eventWithoutTiming = 2;
const captureThreadLocal = 1;

/** A launchable recording, and its stream. */
interface Launch {
  readonly graph: bigint;
  readonly stream: bigint;
}

/** Streams, events and graphs. */
interface CudaStreamCalls {
  streamCreate(): bigint;
  streamDestroy(stream: bigint): void;
  streamSynchronize(stream: bigint): void;
  /** True when everything that was put on the stream is done. */
  streamDone(stream: bigint): boolean;
  /** Later work of the stream waits for what is before the event now. */
  streamWaitEvent(stream: bigint, event: bigint): void;
  /** An event without a time. */
  eventCreate(): bigint;
  eventDestroy(event: bigint): void;
  eventRecord(event: bigint, stream: bigint): void;
  /** True when everything before the event is done. */
  eventDone(event: bigint): boolean;
  /** True when the stream is being captured. */
  isCapturing(stream: bigint): boolean;
  beginCapture(stream: bigint): void;
  /** Ends a capture; the recording is to be instantiated. */
  endCapture(stream: bigint): bigint;
  /** Makes a recording launchable, and gives the recording back. No stream may be capturing. */
  instantiate(recording: bigint): bigint;
  /**
   * Launches of recordings in this order, which are valid as long as the recordings. `inPart` is called where one fails behind
   * others.
   */
  launches(each: readonly Launch[], inPart: () => void): CallSequence;
  graphDestroy(graph: bigint): void;
}

/** Wraps these calls. */
function streamCalls(
  { get, check, call, handle }: CudaLibrary,
  helper: Helper | undefined,
): CudaStreamCalls {
  const [eventRecord, eventQuery] = [get("eventRecord"), get("eventQuery")];
  const streamQuery = get("streamQuery");
  const graphLaunch = get("graphLaunch");
  const isReady = (status: number, name: "streamQuery" | "eventQuery"): boolean => {
    if (status !== 0 && status !== notReady) check(status, name);
    return status === 0;
  };
  return {
    streamCreate: () => handle("streamCreateWithFlags", nonBlockingStream),
    streamDestroy: (stream) => call("streamDestroy", [stream]),
    streamSynchronize: (stream) => call("streamSynchronize", [stream]),
    streamDone: (stream) => isReady(streamQuery(stream), "streamQuery"),
    streamWaitEvent: (stream, event) => call("streamWaitEvent", [stream, event, 0]),
    eventCreate: () => handle("eventCreateWithFlags", eventWithoutTiming),
    eventDestroy: (event) => call("eventDestroy", [event]),
    eventRecord: (event, stream) => check(eventRecord(event, stream), "eventRecord"),
    eventDone: (event) => isReady(eventQuery(event), "eventQuery"),
    isCapturing: (stream) => {
      const status = new Int32Array(1);
      call("streamIsCapturing", [stream, status]);
      return status[0] !== 0;
    },
    beginCapture: (stream) => call("streamBeginCapture", [stream, captureThreadLocal]),
    endCapture(stream) {
      const graph = new BigUint64Array(1);
      call("streamEndCapture", [stream, graph]);
      return graph[0] as bigint;
    },
    instantiate(graph) {
      const destroy = get("graphDestroy");
      let launchable: bigint;
      try {
        launchable = handle("graphInstantiateWithFlags", graph, 0);
      } catch (error) {
        // Its own status would hide why the recording cannot be launched.
        destroy(graph);
        throw error;
      }
      check(destroy(graph), "graphDestroy");
      return launchable;
    },
    launches: (each, inPart) => {
      const calls = each.map(
        ({ graph, stream }): BoundCall => ({ call: graphLaunch, args: [graph, stream] }),
      );
      return new CallList(calls, helper, (status, failed) => {
        if (failed !== calls[0]) inPart();
        check(status, "graphLaunch");
      });
    },
    graphDestroy: (graph) => call("graphExecDestroy", [graph]),
  };
}

/** Attributes of a device, by `CUdevice_attribute`. The runtime keeps this number reserved, without a name. */
const driverAttribute = { multicastSupported: 132 } as const;

/**
 * True when a device can be part of a multicast object, which NVLS needs; `undefined` where the driver has no answer. Makes no such
 * object. The driver must have been started already, as the runtime does when it counts devices.
 */
export function multicastOf(
  bound: Bound<typeof cudaDriverTable>,
  ordinal: number,
): boolean | undefined {
  const [device, value] = [new Int32Array(1), new Int32Array(1)];
  if (bound.deviceGet?.(device, ordinal) !== success) return undefined;
  const result = bound.deviceGetAttribute?.(
    value,
    driverAttribute.multicastSupported,
    device[0] as number,
  );
  return result === success ? value[0] !== 0 : undefined;
}
