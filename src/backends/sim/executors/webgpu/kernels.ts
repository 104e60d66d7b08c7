/** The compute pipelines of a device: created at their first use, and kept as long as the device. */

import { getOrCreate } from "../../../../api/get-or-create.ts";
import type { Access } from "./wgsl/access.ts";
import { arithmeticOf } from "./wgsl/arithmetic.ts";
import { type NativeAdds, nativeFor } from "./wgsl/float-sum.ts";
import { foldKernel, pieceBytes } from "./wgsl/kernel.ts";
import { type Operation, operationKey } from "./wgsl/operation.ts";

/** A pipeline: it binds the table, then the windows. */
export interface Kernel {
  readonly pipeline: GPUComputePipeline;
  /** Bytes that one invocation folds. */
  readonly pieceBytes: number;
}

const known = new WeakMap<GPUDevice, Map<string, Kernel>>();

/** The kernel of an operation on a device, the same one for everything that uses the device. */
export function kernelOf(
  device: GPUDevice,
  operation: Operation,
  access: Access,
  windows: number,
  natives: NativeAdds,
): Kernel {
  const kernels = getOrCreate(known, device, () => new Map());
  const native = nativeFor(operation, natives);
  const label = `twinccl ${operationKey(operation)}, ${access}, ${windows}, ${native}`;
  return getOrCreate(kernels, label, () => {
    const arithmetic = arithmeticOf(operation, native);
    const code = foldKernel(arithmetic, access, windows);
    const module = device.createShaderModule({ label, code });
    const compute = { module, entryPoint: "main" };
    const pipeline = device.createComputePipeline({ label, layout: "auto", compute });
    return { pipeline, pieceBytes: pieceBytes(access, arithmetic.unit) };
  });
}
