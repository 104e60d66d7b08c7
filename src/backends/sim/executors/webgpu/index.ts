/** The simulation on a GPU: `sim({ executor: webgpu() })`, in Node through Dawn and in browsers. */
import { InvalidArgumentError } from "../../../../api/index.ts";
import { assertOptionNames, type OptionNames } from "../../../../api/option-names.ts";
import type { LimitWish } from "./device.ts";
import { WebgpuExecutor } from "./executor.ts";

export type { DeviceLimits, LimitWish } from "./device.ts";
export { WebgpuError, type WebgpuErrorFacts, type WebgpuFault } from "./errors.ts";
export { type BufferPlace, type ExecutorSettings, WebgpuExecutor } from "./executor.ts";
export type { NativeAdd, NativeAdds } from "./wgsl/float-native.ts";

/** Options of `webgpu`. */
export interface WebgpuOptions {
  /** An own device, which stays the caller's; left out, one is opened with the first world and closed with the last. */
  readonly device?: GPUDevice;
  /** Which adapter is preferred where there are several. */
  readonly powerPreference?: GPUPowerPreference;
  /** Dawn's own switches, in Node: `["backend=vulkan", "adapter=NVIDIA"]`. */
  readonly dawn?: readonly string[];
  /**
   * Keeps the device, and its compiled kernels, when the last world is closed, for the next one: until `release()`. It
   * does not keep a process from ending.
   */
  readonly keepDevice?: boolean;
  /** Bytes of the buffers that ranks' memory is cut from; as much as is needed, in few pieces, when left out. */
  readonly slabBytes?: number;
  /** Stays below the device's own limits. */
  readonly limits?: LimitWish;
}

const names: OptionNames<WebgpuOptions> = {
  ...{ device: true, powerPreference: true, dawn: true, keepDevice: true },
  ...{ slabBytes: true, limits: true },
};

/**
 * The executor that keeps ranks' buffers on a GPU and folds them there.
 *
 * Every call is planned once for its shape and buffers, and submitted in one piece; nothing is read back until a buffer
 * is (`toHost`, `copyTo`). Results have the bits of `cpu()` for every dtype and operator, on every adapter: what a
 * device's own arithmetic does not do exactly is done in whole numbers. TypedArrays may be passed in calls; they are
 * uploaded first and read back before the call settles.
 *
 * @throws InvalidArgumentError for an option that makes no sense. Opening a world throws `BackendUnavailableError` where
 * there is no adapter, and calls fail with a `WebgpuError` when the device is lost or has no memory left.
 * @example
 * const world = await createWorld({ backend: sim({ executor: webgpu() }), size: 8 });
 */
export function webgpu(options: WebgpuOptions = {}): WebgpuExecutor {
  assertOptionNames("webgpu", options, names);
  const { device, powerPreference, dawn, keepDevice = false, slabBytes, limits = {} } = options;
  for (const [field, value] of Object.entries({ slabBytes, ...limits })) {
    if (value === undefined || (Number.isSafeInteger(value) && value > 0)) continue;
    throw new InvalidArgumentError(
      { headline: `webgpu: ${field}: found ${String(value)}, needs a positive integer` },
      { field },
    );
  }
  if (limits.windowBytes !== undefined && limits.windowBytes % 256 !== 0) {
    throw new InvalidArgumentError(
      { headline: `webgpu: windowBytes: found ${limits.windowBytes}, needs a multiple of 256` },
      { field: "windowBytes" },
    );
  }
  return new WebgpuExecutor({ device, powerPreference, dawn, keepDevice, slabBytes, limits });
}
