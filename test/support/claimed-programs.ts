/** Which random programs the simulation claims NCCL's bits for. */
import type { ProgramConstraints } from "twinccl/testing";

/**
 * Arbitrary bits where the ranks keep the order of their devices, exact contents elsewhere, and one scalar for all ranks
 * of a pre-multiplied sum.
 */
export const claimedBits: ProgramConstraints = {
  payload: (ranks) => (inDeviceOrder(ranks) ? "bits" : "exact"),
  scalarsDiffer: false,
  symmetric: true,
};

function inDeviceOrder(ranks: readonly number[]): boolean {
  return ranks.every((rank, i) => i === 0 || rank > ranks[i - 1]!);
}
