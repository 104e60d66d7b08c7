/** NVML's facts about GPUs. It serves reports alone, so missing facts are left out. */
import type { nvmlTable } from "../sys/nvml.ts";
import type { Bound } from "../sys/prototype.ts";
import { type FarEnd, linksUp } from "./nvml-links.ts";

const success = 0;
const textBytes = 96;

/** A GPU as NVML sees it. */
export interface NvmlDevice {
  readonly name?: string | undefined;
  readonly totalBytes?: number | undefined;
  /** The other ends of its NVLinks that are up; `undefined` where NVML cannot say. */
  readonly links?: readonly FarEnd[] | undefined;
}

/** NVML's answers. */
export interface NvmlCalls {
  /** Version of the driver, such as `570.86.15`. */
  driver(): string | undefined;
  device(pciBusId: string): NvmlDevice;
  /** The distance of two GPUs without NVLink, by `nvmlGpuTopologyLevel_t`; `undefined` where NVML has no answer. */
  ancestor(pciBusId: string, other: string): number | undefined;
  shutdown(): void;
}

/** Wraps a bound libnvidia-ml; `undefined` when it cannot be started. */
export function nvmlCalls(bound: Bound<typeof nvmlTable>): NvmlCalls | undefined {
  if (bound.init?.() !== success) return undefined;
  const handleOf = (pciBusId: string): bigint | undefined => {
    const slot = new BigUint64Array(1);
    return bound.deviceGetHandleByPciBusId?.(pciBusId, slot) === success ? slot[0] : undefined;
  };
  return {
    driver: () => text((bytes) => bound.systemGetDriverVersion?.(bytes, bytes.length)),
    device(pciBusId) {
      const handle = handleOf(pciBusId);
      if (handle === undefined) return {};
      const memory = new BigUint64Array(3);
      const knowsMemory = bound.deviceGetMemoryInfo?.(handle, memory) === success;
      return {
        name: text((bytes) => bound.deviceGetName?.(handle, bytes, bytes.length)),
        totalBytes: knowsMemory ? Number(memory[0]) : undefined,
        links: linksUp(bound, handle),
      };
    },
    ancestor(pciBusId, other) {
      const [one, two] = [handleOf(pciBusId), handleOf(other)];
      if (one === undefined || two === undefined) return undefined;
      const level = new Int32Array(1);
      const asked = bound.deviceGetTopologyCommonAncestor?.(one, two, level);
      return asked === success ? level[0] : undefined;
    },
    shutdown: () => void bound.shutdown?.(),
  };
}

function text(write: (bytes: Uint8Array) => number | undefined): string | undefined {
  const bytes = new Uint8Array(textBytes);
  if (write(bytes) !== success) return undefined;
  return new TextDecoder().decode(bytes.subarray(0, bytes.indexOf(0)));
}
