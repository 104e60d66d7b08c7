/**
 * NCCL's algorithms and protocols on one node, with their constants, and the versions of NCCL that are known.
 *
 * NCCL's rules change between versions, and rules of one version say nothing about another. Everything in this folder was read
 * from 2.28.9 and checked against its recorded results. So that is the only known version; `2.28` is short for it. Versions
 * from 2.29.2 on cut the range differently.
 */

import { UnsupportedError } from "../../api/errors.ts";
import type { Topology } from "./topology.ts";

/** Algorithms that a single node without in-switch reduction has, in the order NCCL tries them. */
export const algorithms = ["Tree", "Ring"] as const;

/** Protocols, in the order NCCL tries them. */
export const protocols = ["LL", "LL128", "Simple"] as const;

/** Path of values between ranks. */
export type NcclAlgorithm = (typeof algorithms)[number];

/** Layout of a message in the channel's buffer. */
export type NcclProtocol = (typeof protocols)[number];

/** Collectives that Ring serves; Tree serves `allReduce` alone. */
export type NcclCollective = "allReduce" | "reduceScatter" | "reduce" | "allGather" | "broadcast";

/** Messages that fit into a channel's buffer. */
export const bufferSteps = 8;

/** Chunk sizes are multiples of these bytes. */
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

/** Names of the known version. */
export const ncclVersions = ["2.28", "2.28.9"] as const;

/** Rules that are known to differ between versions. */
export interface VersionRules {
  readonly version: string;
  /** Bytes of traffic that make a channel worthwhile; 32 KiB from 2.29.2 on. */
  readonly minimumTraffic: number;
}

const rules28: VersionRules = { version: "2.28.9", minimumTraffic: 16_384 };

/** The rules of a version. Throws for an unknown one. */
export function rulesOf(version: string): VersionRules {
  if ((ncclVersions as readonly string[]).includes(version)) return rules28;
  throw new UnsupportedError(
    {
      headline: `the plan of NCCL ${version}: its rules are not known here`,
      hint: `known versions: ${ncclVersions.join(", ")}; plans of other versions are not guessed`,
    },
    { field: "version" },
  );
}
