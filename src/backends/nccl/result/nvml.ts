/** NVML's facts about GPUs and their NVLinks. They serve reports alone, so missing facts are left out. */
import type { nvmlTable } from "../sys/nvml.ts";
import type { Bound } from "../sys/prototype.ts";

const success = 0;
const textBytes = 96;

/** A GPU as NVML sees it. */
interface NvmlDevice {
  readonly name?: string | undefined;
  readonly totalBytes?: number | undefined;
  /** The other ends of its NVLinks that are up; `undefined` where NVML cannot say. */
  readonly links?: readonly LinkEnd[] | undefined;
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
      const status = bound.deviceGetTopologyCommonAncestor?.(one, two, level);
      return status === success ? level[0] : undefined;
    },
    shutdown: () => void bound.shutdown?.(),
  };
}

function text(write: (bytes: Uint8Array) => number | undefined): string | undefined {
  const bytes = new Uint8Array(textBytes);
  if (write(bytes) !== success) return undefined;
  return new TextDecoder().decode(bytes.subarray(0, bytes.indexOf(0)));
}

/** More links than any GPU has. */
const maxLinks = 64;

/** The device at the other end of a link. */
type LinkEndKind = "gpu" | "switch" | "other";

/** By `nvmlIntNvLinkDeviceType_t`: an IBM processor is neither; 255 is an unknown device. */
const linkEndKinds: Readonly<Record<number, LinkEndKind>> = { 0: "gpu", 1: "other", 2: "switch" };

/** The other end of a link that is up. */
export interface LinkEnd {
  /** `undefined` where NVML cannot say. */
  readonly kind: LinkEndKind | undefined;
  /** As `pciPlace` writes it; `undefined` where NVML cannot say. */
  readonly place: string | undefined;
}

/** `nvmlPciInfo_t` as 32-bit words: 16 bytes of text, domain, bus, device, two more words, and 32 bytes of text. */
const pciInfoWords = { all: 17, domain: 4, bus: 5, device: 6 } as const;

/** Domain, bus and device in one form, for comparisons: CUDA and NVML write them with different numbers of digits. */
export function pciPlace(domain: number, bus: number, device: number): string {
  return [domain, bus, device].map((each) => each.toString(16)).join(":");
}

/** The links of a GPU that are up; `undefined` where NVML cannot say. */
function linksUp(bound: Bound<typeof nvmlTable>, device: bigint): LinkEnd[] | undefined {
  if (bound.deviceGetNvLinkState === undefined) return undefined;
  const active = new Int32Array(1);
  const ends: LinkEnd[] = [];
  for (let link = 0; link < maxLinks; link++) {
    // Any other status: the GPU has no such link, or none at all.
    if (bound.deviceGetNvLinkState(device, link, active) !== success) break;
    if (active[0] !== 0) ends.push(linkEnd(bound, device, link));
  }
  return ends;
}

function linkEnd(bound: Bound<typeof nvmlTable>, device: bigint, link: number): LinkEnd {
  const type = new Int32Array(1);
  const pci = new Uint32Array(pciInfoWords.all);
  const knowsType = bound.deviceGetNvLinkRemoteDeviceType?.(device, link, type) === success;
  const knowsPlace = bound.deviceGetNvLinkRemotePciInfo?.(device, link, pci) === success;
  const word = (at: number): number => pci[at] as number;
  const { domain, bus, device: slot } = pciInfoWords;
  return {
    kind: knowsType ? linkEndKinds[type[0] as number] : undefined,
    place: knowsPlace ? pciPlace(word(domain), word(bus), word(slot)) : undefined,
  };
}
