/** NCCL's algorithms and protocols on one node, and the constants that come with each. */
import type { Topology } from "./topology.ts";

/** Algorithms that a single node without in-switch reduction has, in the order NCCL tries them. */
export const algorithms = ["Tree", "Ring"] as const;

/** Protocols, in the order NCCL tries them. */
export const protocols = ["LL", "LL128", "Simple"] as const;

/** How values travel between ranks. */
export type NcclAlgorithm = (typeof algorithms)[number];

/** How a message is laid out in the channel's buffer. */
export type NcclProtocol = (typeof protocols)[number];

/** Collectives that Ring serves; Tree serves `allReduce` alone. */
export type NcclCollective = "allReduce" | "reduceScatter" | "reduce" | "allGather" | "broadcast";

/** Messages that fit into a channel's buffer. */
export const bufferSteps = 8;

/** Bytes whose multiples chunks are cut to. */
export const grains: { readonly [P in NcclProtocol]: number } = {
  LL: 16,
  LL128: 1920,
  Simple: 512,
};

/** Threads of a block. */
export function maxThreads(
  algorithm: NcclAlgorithm,
  protocol: NcclProtocol,
  { ringSearch }: Topology,
): number {
  if (protocol === "LL128") return 640;
  const slow = ringSearch.bandwidth * ringSearch.channels <= 12;
  return algorithm === "Ring" && protocol === "Simple" && slow ? 256 : 512;
}

/** Bytes that keep one thread busy. */
export function threadThreshold(
  algorithm: NcclAlgorithm,
  protocol: NcclProtocol,
  ranks: number,
): number {
  if (protocol === "Simple") return 64;
  return algorithm === "Ring" && protocol === "LL" ? 8 * ranks : 8;
}

/** Bytes that the cost model and the channel budget count for a call. */
export function modelBytes(collective: NcclCollective, ranks: number, bytes: number): number {
  const blocks = collective === "allGather" || collective === "reduceScatter" ? ranks : 1;
  return bytes * blocks;
}
