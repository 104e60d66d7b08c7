/** The compute pipelines of a device: created at their first use, and kept as long as the device. */

import type { Access } from "./wgsl/access.ts";
import { arithmeticOf } from "./wgsl/arithmetic.ts";
import { type NativeAdd, type NativeAdds, nativeFor } from "./wgsl/float-sum.ts";
import { copyKernel, foldKernel, pieceBytes } from "./wgsl/kernel.ts";
import { type Operation, operationKey } from "./wgsl/operation.ts";

/** A pipeline and the layout of its bindings: the table, then the windows. */
export interface Kernel {
  readonly pipeline: GPUComputePipeline;
  readonly bindings: GPUBindGroupLayout;
  /** Bytes that one invocation folds. */
  readonly pieceBytes: number;
}

/** `GPUShaderStage.COMPUTE`. */
const computeStage = 4;

/** The kernels of one device. */
export class Kernels {
  readonly #device: GPUDevice;
  readonly #kernels = new Map<string, Kernel>();
  readonly #layouts = new Map<number, GPUBindGroupLayout>();

  constructor(device: GPUDevice) {
    this.#device = device;
  }

  /** The kernel of an operation, or of copies where there is none. */
  get(
    operation: Operation | undefined,
    access: Access,
    windows: number,
    natives: NativeAdds,
  ): Kernel {
    const native = operation === undefined ? "none" : nativeFor(operation, natives);
    const name = operation === undefined ? "copy" : operationKey(operation);
    const key = `${name}, ${access}, ${windows}, ${native}`;
    let kernel = this.#kernels.get(key);
    if (kernel === undefined) {
      kernel = this.#make(key, operation, access, windows, native);
      this.#kernels.set(key, kernel);
    }
    return kernel;
  }

  #make(
    key: string,
    operation: Operation | undefined,
    access: Access,
    windows: number,
    native: NativeAdd,
  ): Kernel {
    const arithmetic = operation && arithmeticOf(operation, native);
    const code =
      arithmetic === undefined
        ? copyKernel(access, windows)
        : foldKernel(arithmetic, access, windows);
    const bindings = this.#layout(windows);
    const label = `twinccl ${key}`;
    const pipeline = this.#device.createComputePipeline({
      label,
      layout: this.#device.createPipelineLayout({ bindGroupLayouts: [bindings] }),
      compute: { module: this.#device.createShaderModule({ label, code }), entryPoint: "main" },
    });
    return { pipeline, bindings, pieceBytes: pieceBytes(access, arithmetic?.unit) };
  }

  #layout(windows: number): GPUBindGroupLayout {
    let layout = this.#layouts.get(windows);
    if (layout === undefined) {
      const entries = Array.from({ length: windows + 1 }, (_, binding) => ({
        binding,
        visibility: computeStage,
        buffer: { type: binding === 0 ? ("read-only-storage" as const) : ("storage" as const) },
      }));
      layout = this.#device.createBindGroupLayout({ entries });
      this.#layouts.set(windows, layout);
    }
    return layout;
  }
}

const known = new WeakMap<GPUDevice, Kernels>();

/** The kernels of a device, shared by everything that uses it. */
export function kernelsOf(device: GPUDevice): Kernels {
  let kernels = known.get(device);
  if (kernels === undefined) {
    kernels = new Kernels(device);
    known.set(device, kernels);
  }
  return kernels;
}
