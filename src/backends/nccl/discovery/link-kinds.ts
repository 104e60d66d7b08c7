/** The link of each pair of GPUs, in the notation of `nvidia-smi topo -m`. */
import { type LinkEnd, pciPlace } from "../result/nvml.ts";

/** A GPU with its links. */
export interface LinkedGpu {
  /** In the format of CUDA and NVML, such as `0000:1B:00.0`. */
  readonly pciBusId: string;
  /** Remote ends of the active NVLinks; `undefined` if unknown. */
  readonly links: readonly LinkEnd[] | undefined;
}

/** By `nvmlGpuTopologyLevel_t`. Two GPUs of one board share a PCIe switch. */
const levels: Readonly<Record<number, string>> = {
  0: "PIX",
  10: "PIX",
  20: "PXB",
  30: "PHB",
  40: "NODE",
  50: "SYS",
};

/** Meaning of the letters; the number of `NV#` counts links. */
export const linkLegend: readonly (readonly [letters: string, meaning: string])[] = [
  ["X", "the GPU itself"],
  ["NV#", "# NVLinks, to each other or to NVSwitches"],
  ["PIX", "PCIe, through one switch at most"],
  ["PXB", "PCIe, through several switches"],
  ["PHB", "PCIe, through a host bridge of the processor"],
  ["NODE", "PCIe, through several host bridges of one NUMA node"],
  ["SYS", "PCIe, and between NUMA nodes"],
];

/**
 * The kinds of links between GPUs, by row and column: `X` on the diagonal, null if unknown.
 *
 * @param ancestor The topology level of two GPUs without NVLink, by index.
 */
export function linkKinds(
  gpus: readonly LinkedGpu[],
  ancestor: (one: number, other: number) => number | undefined,
): (string | null)[][] {
  const ends = gpus.map(({ pciBusId, links }) => ({ place: placeOf(pciBusId), links }));
  const places = new Set(ends.map(({ place }) => place));
  return ends.map((one, row) =>
    ends.map((other, column) => {
      if (row === column) return "X";
      const linked = nvLinkKind(one, other, places);
      return linked === undefined ? (levels[ancestor(row, column) ?? -1] ?? null) : linked;
    }),
  );
}

interface Ends {
  readonly place: string;
  readonly links: readonly LinkEnd[] | undefined;
}

/** `NV#`; null if unknown; `undefined` if no NVLink connects the two. */
function nvLinkKind(one: Ends, other: Ends, gpus: ReadonlySet<string>): string | null | undefined {
  if (one.links === undefined || other.links === undefined) return null;
  const direct = one.links.filter(({ place }) => place === other.place).length;
  // NVML names a switch as the remote end, not the GPUs behind it. All GPUs with links to switches are therefore connected.
  const [here, there] = [one.links, other.links].map(switchLinkCount) as [number, number];
  const count = direct + Math.min(here, there);
  if (count > 0) return `NV${count}`;
  const isUnknown = ({ kind, place }: LinkEnd): boolean =>
    kind === undefined && !gpus.has(place ?? "");
  return one.links.some(isUnknown) && other.links.some(isUnknown) ? null : undefined;
}

function switchLinkCount(links: readonly LinkEnd[]): number {
  return links.filter(({ kind }) => kind === "switch").length;
}

function placeOf(pciBusId: string): string {
  const [domain = 0, bus = 0, device = 0] = pciBusId
    .split(/[:.]/)
    .map((part) => Number.parseInt(part, 16));
  return pciPlace(domain, bus, device);
}
