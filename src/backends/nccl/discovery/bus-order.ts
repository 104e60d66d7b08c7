/**
 * Order of the ranks' GPUs on the PCI bus. NCCL builds its rings in that order, independent of CUDA's numbering
 * (`CUDA_DEVICE_ORDER`, `CUDA_VISIBLE_DEVICES`) and of the assignment of ranks.
 */
import type { CommInfo } from "../../../api/backend-entry.ts";

/** A GPU's PCI bus id; in a job, the name of its host precedes it. */
export type BusAddress = string;

/**
 * Replaces each rank of the communicator by the position of its GPU on the bus. With unknown addresses or several hosts, the
 * result has no two ranks in order, so that no prediction depends on it.
 */
export function inBusOrder(comm: CommInfo, places: readonly BusAddress[] | undefined): CommInfo {
  const known = places !== undefined && new Set(places.map(hostOf)).size === 1;
  if (!known) return { ...comm, ranks: comm.ranks.map((_, rank) => -rank) };
  const sorted = [...places].sort();
  return { ...comm, ranks: comm.ranks.map((rank) => sorted.indexOf(places[rank] ?? "")) };
}

function hostOf(place: BusAddress): string {
  return place.includes(" ") ? place.slice(0, place.lastIndexOf(" ")) : "";
}
