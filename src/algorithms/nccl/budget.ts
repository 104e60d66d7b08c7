/** How many channels a call may use. */
import {
  maxThreads,
  modelBytes,
  type NcclAlgorithm,
  type NcclCollective,
  type NcclProtocol,
  threadThreshold,
} from "./protocol.ts";
import type { Topology } from "./topology.ts";

/** The call as far as its budget depends on it. */
export interface BudgetQuestion {
  readonly collective: NcclCollective;
  readonly algorithm: NcclAlgorithm;
  readonly protocol: NcclProtocol;
  readonly topology: Topology;
  /** Bytes of the call's own count. */
  readonly bytes: number;
  /** Channels of the communicator. */
  readonly channels: number;
}

/** NCCL's `nc`: one channel for every so many bytes, at least one, at most all. */
export function channelBudget(question: BudgetQuestion): number {
  const { collective, algorithm, protocol, topology, bytes, channels } = question;
  const { ranks } = topology;
  const bytesPerChannel =
    maxThreads(algorithm, protocol, topology) * threadThreshold(algorithm, protocol, ranks);
  const wanted = Math.floor(modelBytes(collective, ranks, bytes) / bytesPerChannel);
  return Math.max(1, Math.min(channels, wanted));
}
