/** The simulation on a GPU: `sim({ executor: webgpu() })`, in Node through Dawn and in browsers. */
import {
  assertOptions,
  integer,
  invalid,
  type OptionKinds,
  oneOf,
  textOf,
} from "../../../../api/option-kinds.ts";
import type { PowerPreference } from "./adapter.ts";
import { alignment, type DeviceLimits, type RequestedLimits } from "./device.ts";
import { WebgpuExecutor } from "./executor.ts";

export type { PowerPreference } from "./adapter.ts";
export type { DeviceLimits, RequestedLimits } from "./device.ts";
export { WebgpuError, type WebgpuErrorFacts, type WebgpuFault } from "./device.ts";
export { type BufferPlace, type ExecutorSettings, WebgpuExecutor } from "./executor.ts";
export type { NativeAdd, NativeAdds } from "./wgsl/float-sum.ts";

/** Options of `webgpu`. */
export interface WebgpuOptions {
  /** The caller's own device, which is not destroyed; left out, one is opened with the first world and closed with the last. */
  readonly device?: GPUDevice | undefined;
  /** The adapter that is preferred where there are several. */
  readonly powerPreference?: PowerPreference | undefined;
  /** Dawn's own switches, in Node: `["backend=vulkan", "adapter=NVIDIA"]`. */
  readonly dawn?: readonly string[] | undefined;
  /**
   * Keeps the device, and its compiled kernels, when the last world is closed, for the next one: until `release()`. It
   * does not keep a process from ending.
   */
  readonly keepDevice?: boolean | undefined;
  /** Bytes of the buffers that ranks' memory is allocated in; left out, as many as needed, in few buffers. */
  readonly slabBytes?: number | undefined;
  /** Limits below the device's own. */
  readonly limits?: RequestedLimits | undefined;
}

const kinds: OptionKinds<WebgpuOptions> = {
  ...{ keepDevice: "boolean", slabBytes: integer(1), limits: "object" },
  dawn: { needed: 'an array of switches such as "backend=vulkan"', holds: Array.isArray },
  powerPreference: oneOf(["low-power", "high-performance"]),
  device: {
    needed: "a GPUDevice",
    holds: (value) => typeof (value as Partial<GPUDevice> | null)?.createBuffer === "function",
  },
};

const limitKinds: OptionKinds<DeviceLimits> = {
  ...{ bufferBytes: integer(alignment), windows: integer(1), gridWidth: integer(1) },
  windowBytes: {
    needed: `a positive multiple of ${alignment}`,
    holds: (value) => integer(1).holds(value) && (value as number) % alignment === 0,
  },
};

/**
 * The executor that keeps ranks' buffers on a GPU and folds them there.
 *
 * Every call is planned once for its shape and buffers, and submitted in one piece; data is read back only by `toHost` and
 * `copyTo`. Results have the bits of `cpu()` for every dtype and operator, on every adapter. Inexact operations of a device are
 * replaced by integer arithmetic. TypedArrays may be passed in calls; they are uploaded first and read back before the call
 * settles.
 *
 * @throws InvalidArgumentError for an invalid option. Opening a world throws `BackendUnavailableError` without an adapter.
 * Calls fail with a `WebgpuError` if the device is lost or out of memory.
 * @example
 * const world = await createWorld({ backend: sim({ executor: webgpu() }), size: 8 });
 */
export function webgpu(options: WebgpuOptions = {}): WebgpuExecutor {
  assertOptions("webgpu", options, kinds);
  const { device, powerPreference, dawn, keepDevice = false, slabBytes, limits = {} } = options;
  assertOptions("webgpu", limits, limitKinds, { path: "limits" });
  for (const [at, each] of dawn?.entries() ?? []) {
    const needed = 'a switch such as "backend=vulkan"';
    if (typeof each !== "string") throw invalid("webgpu", `dawn[${at}]`, textOf(each), needed);
  }
  return new WebgpuExecutor({ device, powerPreference, dawn, keepDevice, slabBytes, limits });
}

/** The names of WebGPU types in this entry; a program with WebGPU's own types has their members. */
declare global {
  interface GPUAdapterInfo {
    readonly vendor: string;
    readonly architecture: string;
    readonly device: string;
    readonly description: string;
  }
  interface GPUAdapter {
    readonly info: GPUAdapterInfo;
  }
  interface GPUDevice {
    label: string;
  }
  interface GPUQueue {
    label: string;
  }
  interface GPUBuffer {
    label: string;
  }
}
