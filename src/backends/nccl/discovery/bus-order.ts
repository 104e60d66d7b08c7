/**
 * In which order the GPUs of ranks lie on the bus: that is the order in which NCCL lays its rings, whatever numbers CUDA gives
 * the devices (`CUDA_DEVICE_ORDER`, `CUDA_VISIBLE_DEVICES`) and whichever of them ranks were given.
 */
import type { CommInfo } from "../../../api/index.ts";

/** A GPU: its PCI bus id, in a job behind the name of its host. */
export type BusAddress = string;

/**
 * The communicator with each rank as the position of its GPU on the bus. Where the places are not known, or on several
 * hosts, no two ranks are in order, so that nothing is claimed of them.
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
