/** An open device: its name, its limits, and its first failure. */

import { CommError, type CommErrorFacts } from "../../../../api/index.ts";
import { invalid, textOf } from "../../../../api/option-kinds.ts";
import { type AdapterRequest, adapterName, findAdapter, hasOwnGpu, sleepUntil } from "./adapter.ts";

/** Bits of `GPUBufferUsage` and `GPUMapMode`, which Node has no globals for. */
export const usage = { mapRead: 1, copySource: 4, copyTarget: 8, storage: 0x80 } as const;

/** Limits of kernels and memory. */
export interface DeviceLimits {
  /** Bytes of one buffer. */
  readonly bufferBytes: number;
  /** Bytes of a buffer that one binding covers; a multiple of 256. */
  readonly windowBytes: number;
  /** Bindings beside the table. */
  readonly windows: number;
  /** Workgroups along one dimension of a dispatch. */
  readonly gridWidth: number;
}

/** Limits below the device's own. */
export type RequestedLimits = { readonly [Limit in keyof DeviceLimits]?: number | undefined };

/** Bindings start at multiples of this, and so does every allocation. */
export const alignment = 256;

/** An open device and its state. */
export class OpenDevice {
  readonly device: GPUDevice;
  readonly adapter: string;
  readonly limits: DeviceLimits;
  readonly #owned: boolean;
  /** True for an adapter in software under Dawn. */
  readonly #sleeps: boolean;
  /** Resolves when it is known whether all allocations so far have found memory. */
  allocated: Promise<unknown> = Promise.resolve();
  /** Number of those that have not. */
  #refusals = 0;
  #failure: WebgpuError | undefined;
  #closed = false;

  constructor(device: GPUDevice, adapter: string, owned: boolean, request: RequestedLimits) {
    this.device = device;
    this.adapter = adapter;
    this.#owned = owned;
    this.#sleeps = !hasOwnGpu() && device.adapterInfo.isFallbackAdapter;
    this.limits = limitsOf(device, request);
    void device.lost.then(({ message, reason }) => {
      if (!this.#closed) this.fail("lost", message === "" ? reason : message);
    });
    if (owned) device.addEventListener("uncapturederror", (event) => this.#uncaptured(event));
  }

  get queue(): GPUQueue {
    return this.device.queue;
  }

  /** The reason why the device cannot be used any more. */
  get failure(): WebgpuError | undefined {
    return this.#failure;
  }

  /** Records the first failure. */
  fail(fault: WebgpuFault, detail: string): void {
    this.#failure ??= new WebgpuError(this.adapter, fault, detail, { foreign: !this.#owned });
  }

  /** Throws the first failure, if there is one. */
  assertFine(): void {
    if (this.#failure !== undefined) throw this.#failure;
  }

  /** Waits until everything submitted so far is done; rejects if it failed. */
  async done(): Promise<void> {
    try {
      await this.settled(this.queue.onSubmittedWorkDone());
    } catch (error) {
      this.fail("lost", messageOf(error));
    }
    await this.allocated;
    this.assertFine();
  }

  /** The result of `pending`, which the device settles. */
  settled<T>(pending: Promise<T>): Promise<T> {
    return this.#sleeps ? sleepUntil(pending) : pending;
  }

  /** Runs `make`, and calls `onRefusal` with WebGPU's message if the device has no memory for what it makes. */
  allocate<T>(make: () => T, onRefusal: (message: string) => void): T {
    this.device.pushErrorScope("out-of-memory");
    const made = make();
    const known = this.device.popErrorScope().then(
      (error) => {
        if (error === null) return;
        this.#refusals++;
        onRefusal(error.message);
      },
      // A lost device fails by itself.
      () => {},
    );
    this.allocated = Promise.all([this.allocated, known]);
    return made;
  }

  /** Runs `act` and counts its errors as this device's; errors of the caller's own commands do not count. */
  watched<T>(act: () => T): T {
    if (this.#owned) return act();
    const refusals = this.#refusals;
    this.device.pushErrorScope("out-of-memory");
    this.device.pushErrorScope("validation");
    try {
      return act();
    } finally {
      for (const fault of ["validation", "out-of-memory"] as const) {
        void this.device.popErrorScope().then(
          (error) => this.#failUnlessRefused(fault, error, refusals),
          (error: unknown) => this.fail("lost", messageOf(error)),
        );
      }
    }
  }

  /** Destroys the device, unless it is the caller's. */
  close(): void {
    this.#closed = true;
    this.#failure ??= new WebgpuError(this.adapter, "lost", "its last world was closed");
    if (this.#owned) this.device.destroy();
  }

  #uncaptured(event: Event): void {
    // The calls fail with this error, so Dawn need not print it as well.
    event.preventDefault();
    const { error } = event as GPUUncapturedErrorEvent;
    const fault = faults[error.constructor.name] ?? "validation";
    void this.#failUnlessRefused(fault, error, this.#refusals);
  }

  /**
   * Records an error, unless an allocation was refused after the first `refusals`: commands with memory that does not exist are
   * invalid, and what they belong to fails by the refusal.
   */
  async #failUnlessRefused(
    fault: WebgpuFault,
    error: GPUError | null,
    refusals: number,
  ): Promise<void> {
    await this.allocated;
    if (error !== null && this.#refusals === refusals) this.fail(fault, error.message);
  }
}

/** Opens a device with the largest limits its adapter has. */
export async function openDevice(
  request: AdapterRequest,
  limits: RequestedLimits,
): Promise<OpenDevice> {
  const adapter = await findAdapter(request);
  const { maxBufferSize, maxStorageBufferBindingSize, maxStorageBuffersPerShaderStage } =
    adapter.limits;
  const name = adapterName(adapter.info);
  try {
    const device = await adapter.requestDevice({
      requiredFeatures: adapter.features.has("shader-f16") ? ["shader-f16"] : [],
      requiredLimits: {
        maxBufferSize,
        maxStorageBufferBindingSize,
        maxStorageBuffersPerShaderStage,
      },
    });
    return new OpenDevice(device, name, true, limits);
  } catch (error) {
    throw new WebgpuError(name, "internal", messageOf(error), { cause: error });
  }
}

/** A caller's device. */
export function foreignDevice(device: GPUDevice, limits: RequestedLimits): OpenDevice {
  return new OpenDevice(device, adapterName(device.adapterInfo), false, limits);
}

/** The text of an error. */
export function messageOf(error: unknown): string {
  return error instanceof Error ? error.message : String(error);
}

/** Addresses inside a window have 32 bits, and the last ones must not wrap. */
const maxWindowBytes = 2 ** 32 - 2 ** 16;

/** The device's own limits, or lower ones on request. */
function limitsOf({ limits }: GPUDevice, request: RequestedLimits): DeviceLimits {
  const lowered = (own: number, requested = own): number => Math.min(own, requested);
  const bufferBytes = lowered(limits.maxBufferSize, request.bufferBytes);
  const { maxStorageBufferBindingSize, maxStorageBuffersPerShaderStage } = limits;
  // A window lies within one buffer.
  const window = Math.min(maxStorageBufferBindingSize, bufferBytes, maxWindowBytes);
  return {
    bufferBytes,
    windowBytes: lowered(window - (window % alignment), request.windowBytes),
    windows: lowered(maxStorageBuffersPerShaderStage - 1, request.windows),
    gridWidth: lowered(limits.maxComputeWorkgroupsPerDimension, request.gridWidth),
  };
}

/** Faults by the classes of WebGPU's errors; others are `validation`. */
const faults: { readonly [kind: string]: WebgpuFault | undefined } = {
  GPUOutOfMemoryError: "out-of-memory",
  GPUInternalError: "internal",
};

/** `lost`: the device is gone; the others: it refused memory, a command, or failed inside. */
export type WebgpuFault = "lost" | "out-of-memory" | "validation" | "internal";

const hints: { readonly [F in WebgpuFault]: string } = {
  lost: "what was on the device is gone: close the world and create another one, which opens the device again",
  "out-of-memory": "dispose buffers, use smaller ones, or open fewer worlds on this adapter",
  validation:
    "check the usage and size of GPUBuffers that were handed in (STORAGE, COPY_SRC, COPY_DST); without any, report this message",
  internal:
    "close the world and create another one; when it fails again, use cpu() and report this message",
};

/** The hint for a lost device of the caller's own. */
const lostOwn =
  "what was on the device is gone, and it is yours: close the world, and pass a new device to webgpu({ device })";

/** The meaning of a fault, beside WebGPU's own message. */
export interface WebgpuErrorFacts extends CommErrorFacts {
  /** True when the device is the caller's own. */
  readonly foreign?: boolean | undefined;
}

function assertFault(found: unknown): void {
  const known = Object.keys(hints);
  if (known.some((each) => each === found)) return;
  throw invalid("WebgpuError", "fault", textOf(found), `one of ${known.join(", ")}`);
}

/** A WebGPU device failed. `adapter` names it, `fault` is the kind of failure, and the message ends with the next step. */
export class WebgpuError extends CommError {
  static override readonly name: string = "WebgpuError";
  readonly code = "ERR_COMM_WEBGPU";
  readonly adapter: string;
  readonly fault: WebgpuFault;

  constructor(adapter: string, fault: WebgpuFault, detail: string, facts: WebgpuErrorFacts = {}) {
    assertFault(fault);
    const what = { lost: "the device was lost", "out-of-memory": "the device has no memory left" };
    const found = fault === "lost" || fault === "out-of-memory" ? what[fault] : `${fault} error`;
    const hint = fault === "lost" && facts.foreign === true ? lostOwn : hints[fault];
    super({ headline: `webgpu (${adapter}): ${found}: ${detail}`, hint }, facts);
    this.adapter = adapter;
    this.fault = fault;
  }
}
