/** The simulation on a GPU: `sim({ executor: webgpu() })`, in Node through Dawn and in browsers. */
import { assertOptions, invalid, type OptionKinds, textOf } from "../../../../api/option-kinds.ts";
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
  ...{ device: "object", powerPreference: true, dawn: "array", keepDevice: "boolean" },
  ...{ slabBytes: true, limits: "object" },
};

const limitKinds: OptionKinds<DeviceLimits> = {
  ...{ bufferBytes: true, windowBytes: true, windows: true, gridWidth: true },
};

const powerPreferences: readonly PowerPreference[] = ["low-power", "high-performance"];

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
  for (const each of dawn ?? []) {
    if (typeof each !== "string")
      throw invalid("webgpu", "dawn", textOf(each), 'switches such as "backend=vulkan"');
  }
  if (powerPreference !== undefined && !powerPreferences.includes(powerPreference)) {
    throw invalid(
      "webgpu",
      "powerPreference",
      textOf(powerPreference),
      `one of ${powerPreferences.join(", ")}`,
    );
  }
  if (device !== undefined && typeof device.createBuffer !== "function") {
    throw invalid("webgpu", "device", textOf(device), "a GPUDevice");
  }
  assertCount("slabBytes", slabBytes);
  assertOptions("webgpu", limits, limitKinds, { path: "limits" });
  for (const [name, value] of Object.entries(limits)) {
    assertCount(`limits.${name}`, value, name === "bufferBytes" ? alignment : 1);
  }
  if (limits.windowBytes !== undefined && limits.windowBytes % alignment !== 0) {
    throw invalid(
      "webgpu",
      "limits.windowBytes",
      textOf(limits.windowBytes),
      `a multiple of ${alignment}`,
    );
  }
  return new WebgpuExecutor({ device, powerPreference, dawn, keepDevice, slabBytes, limits });
}

function assertCount(field: string, value: number | undefined, least = 1): void {
  if (value === undefined || (Number.isSafeInteger(value) && value >= least)) return;
  const needed = least === 1 ? "a positive integer" : `an integer of at least ${least}`;
  throw invalid("webgpu", field, textOf(value), needed);
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
