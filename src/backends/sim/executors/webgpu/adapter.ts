/**
 * Opens a device: of the page's `navigator.gpu`, or of Dawn, which the `webgpu` package provides in Node.
 *
 * The package is loaded only here, when a world is opened. Dawn's object is kept until the process ends, because collecting it
 * crashes a process that uses its devices.
 */
import { firstLine } from "../../../../api/error-text.ts";
import { BackendUnavailableError } from "../../../../api/index.ts";

/** WebGPU's `GPUPowerPreference`. */
export type PowerPreference = "low-power" | "high-performance";

/** The requested adapter. */
export interface AdapterRequest {
  readonly powerPreference?: PowerPreference | undefined;
  /** Dawn's own switches, in Node: `["backend=vulkan", "adapter=NVIDIA"]`. */
  readonly dawn?: readonly string[] | undefined;
}

const instances = new Map<string, GPU>();

/**
 * The requested adapter.
 *
 * @throws BackendUnavailableError when there is none, with the request.
 */
export async function findAdapter(request: AdapterRequest): Promise<GPUAdapter> {
  const gpu = await instanceOf(request.dawn ?? []);
  const { powerPreference } = request;
  let found: GPUAdapter | null = null;
  let cause: unknown;
  try {
    found = await gpu.requestAdapter(powerPreference && { powerPreference });
  } catch (error) {
    // Dawn throws when no adapter fits its switches.
    cause = error;
  }
  if (found !== null) return found;
  const switches = request.dawn === undefined ? "" : ` with ${request.dawn.join(", ")}`;
  throw new BackendUnavailableError(
    {
      headline: `webgpu: found no adapter${switches}, needs a GPU that WebGPU can use, or a software one`,
      hint: "in Node install a Vulkan driver and loader (libvulkan1), and set VK_DRIVER_FILES where its file is not found; in a browser see about:gpu; docs/webgpu.md tells more",
    },
    cause === undefined ? {} : { cause },
  );
}

/** The name of an adapter for messages. */
export function adapterName({ vendor, architecture, device, description }: GPUAdapterInfo): string {
  const parts = [description, device, architecture, vendor].filter((part) => part !== "");
  return parts[0] === undefined ? "unnamed adapter" : parts.slice(0, 2).join(", ");
}

/** `navigator.gpu`, where there is one. */
const ownGpu = (): GPU | undefined =>
  (globalThis as { readonly navigator?: { readonly gpu?: GPU } }).navigator?.gpu;

/** True where the runtime has WebGPU of its own, as browsers do. */
export function hasOwnGpu(): boolean {
  return ownGpu() !== undefined;
}

async function instanceOf(switches: readonly string[]): Promise<GPU> {
  const own = ownGpu();
  if (own !== undefined && switches.length === 0) return own;
  const key = switches.join("\n");
  const known = instances.get(key);
  if (known !== undefined) return known;
  const { create } = await import("webgpu").catch((cause) => {
    throw notLoaded(cause);
  });
  const created = create([...switches]);
  instances.set(key, created);
  return created;
}

/**
 * The reason why WebGPU is missing: no package provides it, or the package cannot be loaded here.
 *
 * @internal
 */
export function notLoaded(cause: unknown): BackendUnavailableError {
  const code = cause instanceof Error && "code" in cause ? cause.code : undefined;
  // Errors of browsers, which resolve no packages, have no such code.
  const isBroken = code === "ERR_DLOPEN_FAILED";
  return new BackendUnavailableError(
    {
      headline: `webgpu: there is no navigator.gpu, and the package \`webgpu\` (Dawn) did not load: ${firstLine(cause)}`,
      hint: isBroken
        ? "its build does not fit this system: another version of webgpu, or a newer system"
        : "in Node: npm install webgpu; in a browser: one with WebGPU, on a secure page",
    },
    { cause },
  );
}

// Waits for an adapter in software, which computes on the cores of the process. Dawn in Node asks for its results in every turn of the
// event loop, which keeps one of these cores busy: after some turns, the thread sleeps in each. A GPU needs no core, and a sleep would
// only delay its results.

/** Turns of a wait without sleep, some microseconds each. */
const briefTurns = 32;
/** Other events of the process are this much later at most. */
const sleepMs = 0.2;

let cell: Int32Array | undefined;
let waits = 0;
let turns = 0;
let isScheduled = false;

/** The result of `pending`, which an adapter in software settles. */
export async function sleepUntil<T>(pending: Promise<T>): Promise<T> {
  if (waits++ === 0) turns = 0;
  schedule();
  try {
    return await pending;
  } finally {
    waits--;
  }
}

function schedule(): void {
  if (isScheduled || waits === 0) return;
  isScheduled = true;
  setImmediate(() => {
    isScheduled = false;
    if (waits > 0 && ++turns > briefTurns) {
      cell ??= new Int32Array(new SharedArrayBuffer(4));
      Atomics.wait(cell, 0, 0, sleepMs);
    }
    schedule();
  });
}
