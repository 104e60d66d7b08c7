/** What NVML knows about GPUs. It is asked for reports alone, so whatever it cannot say is left out. */
import type { nvmlTable } from "../sys/nvml.ts";
import type { Bound } from "../sys/prototype.ts";

const success = 0;
const textBytes = 96;

/** More links than any GPU has. */
const mostLinks = 64;

/** A GPU as NVML sees it. */
export interface NvmlDevice {
  readonly name?: string | undefined;
  readonly totalBytes?: number | undefined;
  /** Links that are up; `undefined` where NVML cannot say. */
  readonly nvLinks?: number | undefined;
}

/** NVML's answers. */
export interface NvmlCalls {
  /** Version of the driver, such as `570.86.15`. */
  driver(): string | undefined;
  device(pciBusId: string): NvmlDevice;
  shutdown(): void;
}

/** Wraps a bound libnvidia-ml; `undefined` when it cannot be started. */
export function nvmlCalls(bound: Bound<typeof nvmlTable>): NvmlCalls | undefined {
  if (bound.init?.() !== success) return undefined;
  return {
    driver: () => text((bytes) => bound.systemGetDriverVersion?.(bytes, bytes.length)),
    device(pciBusId) {
      const slot = new BigUint64Array(1);
      if (bound.deviceGetHandleByPciBusId?.(pciBusId, slot) !== success) return {};
      const handle = slot[0] as bigint;
      const memory = new BigUint64Array(3);
      const knowsMemory = bound.deviceGetMemoryInfo?.(handle, memory) === success;
      return {
        name: text((bytes) => bound.deviceGetName?.(handle, bytes, bytes.length)),
        totalBytes: knowsMemory ? Number(memory[0]) : undefined,
        nvLinks: activeLinks(bound, handle),
      };
    },
    shutdown: () => void bound.shutdown?.(),
  };
}

function activeLinks(bound: Bound<typeof nvmlTable>, device: bigint): number | undefined {
  if (bound.deviceGetNvLinkState === undefined) return undefined;
  const active = new Int32Array(1);
  let links = 0;
  for (let link = 0; link < mostLinks; link++) {
    // Any other status: the GPU has no such link, or none at all.
    if (bound.deviceGetNvLinkState(device, link, active) !== success) break;
    links += active[0] === 0 ? 0 : 1;
  }
  return links;
}

function text(write: (bytes: Uint8Array) => number | undefined): string | undefined {
  const bytes = new Uint8Array(textBytes);
  if (write(bytes) !== success) return undefined;
  return new TextDecoder().decode(bytes.subarray(0, bytes.indexOf(0)));
}
