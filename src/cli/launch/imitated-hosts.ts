/** Hosts that a job imitates on one machine: consecutive ranks share one, and each host has as many as the next, or one more. */

/** Where a rank is. */
export interface HostPlace {
  readonly host: number;
  readonly localRank: number;
  /** Ranks on its host. */
  readonly localSize: number;
}

/** The place of a rank of a job of `size` on so many hosts. */
export function hostPlace(rank: number, size: number, hosts: number): HostPlace {
  const firstOn = (host: number): number => Math.ceil((host * size) / hosts);
  const host = Math.floor((rank * hosts) / size);
  const first = firstOn(host);
  return { host, localRank: rank - first, localSize: firstOn(host + 1) - first };
}
