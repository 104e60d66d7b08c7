/** The targets of a GPU's NVLinks, from NVML. */
import type { nvmlTable } from "../sys/nvml.ts";
import type { Bound } from "../sys/prototype.ts";

const success = 0;

/** More links than any GPU has. */
const mostLinks = 64;

/** The device at the other end of a link. */
export type FarKind = "gpu" | "switch" | "other";

/** By `nvmlIntNvLinkDeviceType_t`: a processor of IBM is neither; 255 is said of what is not known. */
const farKinds: Readonly<Record<number, FarKind>> = { 0: "gpu", 1: "other", 2: "switch" };

/** The other end of a link that is up. */
export interface FarEnd {
  /** `undefined` where NVML cannot say. */
  readonly kind: FarKind | undefined;
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
export function linksUp(bound: Bound<typeof nvmlTable>, device: bigint): FarEnd[] | undefined {
  if (bound.deviceGetNvLinkState === undefined) return undefined;
  const active = new Int32Array(1);
  const ends: FarEnd[] = [];
  for (let link = 0; link < mostLinks; link++) {
    // Any other status: the GPU has no such link, or none at all.
    if (bound.deviceGetNvLinkState(device, link, active) !== success) break;
    if (active[0] !== 0) ends.push(farEnd(bound, device, link));
  }
  return ends;
}

function farEnd(bound: Bound<typeof nvmlTable>, device: bigint, link: number): FarEnd {
  const type = new Int32Array(1);
  const pci = new Uint32Array(pciInfoWords.all);
  const knowsType = bound.deviceGetNvLinkRemoteDeviceType?.(device, link, type) === success;
  const knowsPlace = bound.deviceGetNvLinkRemotePciInfo?.(device, link, pci) === success;
  const word = (at: number): number => pci[at] as number;
  const { domain, bus, device: slot } = pciInfoWords;
  return {
    kind: knowsType ? farKinds[type[0] as number] : undefined,
    place: knowsPlace ? pciPlace(word(domain), word(bus), word(slot)) : undefined,
  };
}
