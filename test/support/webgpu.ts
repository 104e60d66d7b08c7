/**
 * The WebGPU adapter of this machine, for tests: one device for all of them, because kernels are made for a device.
 *
 * Without an adapter the tests are left out and the reason is printed, unless they were requested by name
 * (`npm run test:webgpu`): then every one of them fails.
 */
import { type WebgpuExecutor, webgpu } from "twinccl/webgpu";
import { describe } from "vitest";

const needed = process.env["TWINCCL_WEBGPU"] === "needed";

/** The adapter's description, or the reason for its absence. */
export const adapter = await webgpu().probe();

if (!adapter.ok && !needed) console.log(`left out: ${adapter.reason}`);

/** `describe` where there is an adapter, or where there must be one. */
export const describeWebgpu: (name: string, body: () => void) => void =
  adapter.ok || needed ? describe : describe.skip;

// Dawn's object must outlive its devices.
let gpu: GPU | undefined;
let shared: Promise<GPUDevice> | undefined;

/** A device that the tests share. */
export function sharedDevice(): Promise<GPUDevice> {
  shared ??= ownDevice();
  return shared;
}

/** A device of the caller's own. */
export async function ownDevice(): Promise<GPUDevice> {
  const { create } = await import("webgpu");
  gpu ??= create([]);
  const found = await gpu.requestAdapter();
  if (found === null) throw new Error(adapter.reason);
  const { maxBufferSize, maxStorageBuffersPerShaderStage } = found.limits;
  return found.requestDevice({
    requiredFeatures: found.features.has("shader-f16") ? ["shader-f16"] : [],
    requiredLimits: { maxBufferSize, maxStorageBuffersPerShaderStage },
  });
}

/** An executor on the shared device. */
export async function sharedExecutor(
  more: Parameters<typeof webgpu>[0] = {},
): Promise<WebgpuExecutor> {
  return webgpu({ ...more, device: await sharedDevice() });
}
