/**
 * NCCL's choice for a call on one node: algorithm and protocol by the least predicted time, and the number of channels.
 */
import { type DType, dtypeInfo } from "../../api/dtype.ts";
import { UnsupportedError } from "../../api/errors.ts";
import {
  algorithms,
  maxThreads,
  modelBytes,
  type NcclAlgorithm,
  type NcclCollective,
  type NcclProtocol,
  protocols,
  threadThreshold,
} from "./protocol.ts";
import type { Topology } from "./topology.ts";
import { costEntry, predictedTime } from "./tuning.ts";

/** Algorithm and protocol of a call. */
export interface Choice {
  readonly algorithm: NcclAlgorithm;
  readonly protocol: NcclProtocol;
}

/** The values of NCCL_ALGO and NCCL_PROTO; a field that is left out is NCCL's choice. */
export interface Forced {
  readonly algorithm?: NcclAlgorithm | undefined;
  readonly protocol?: NcclProtocol | undefined;
}

/** The facts of a call that decide algorithm and protocol: neither channel limits nor buffer sizes do. */
interface ChoiceQuestion {
  readonly collective: NcclCollective;
  readonly topology: Topology;
  readonly dtype: DType;
  /** Bytes as the cost model counts them: `modelBytes`. */
  readonly size: number;
  readonly forced?: Forced | undefined;
}

/** NCCL's choice for a call that is alone in its group. Throws for an impossible demand, as NCCL does since 2.24. */
export function choose(question: ChoiceQuestion): Choice {
  const { collective, topology, size, forced = {} } = question;
  let best: Choice | undefined;
  let least = Number.POSITIVE_INFINITY;
  for (const algorithm of algorithms) {
    if (forced.algorithm !== undefined && forced.algorithm !== algorithm) continue;
    for (const protocol of protocols) {
      if (forced.protocol !== undefined && forced.protocol !== protocol) continue;
      const entry = costEntry(collective, algorithm, protocol, topology);
      const time = predictedTime(entry, algorithm, protocol, size) * penalty(question, algorithm);
      if (time < 0 || time >= least) continue;
      least = time;
      best = { algorithm, protocol };
    }
  }
  if (best !== undefined) return best;
  throw new UnsupportedError(
    {
      headline: `${collective}: NCCL has no ${forced.algorithm} algorithm for it`,
      hint: "force Tree for all-reduces only, as in NCCL_ALGO=allreduce:tree",
    },
    { field: "forced.algorithm", collective },
  );
}

/** NCCL avoids rings of 1-byte floats over more than 8 ranks, which lose too much precision. */
function penalty({ dtype, topology }: ChoiceQuestion, algorithm: NcclAlgorithm): number {
  const { bytes, kind } = dtypeInfo[dtype];
  const narrow = bytes === 1 && kind === "float";
  return algorithm === "Ring" && narrow && topology.ranks > 8 ? 1024 : 1;
}

/** The facts of a call that decide its channels. */
interface BudgetQuestion {
  readonly collective: NcclCollective;
  readonly algorithm: NcclAlgorithm;
  readonly protocol: NcclProtocol;
  readonly topology: Topology;
  /** Bytes of the call's own count. */
  readonly bytes: number;
  /** Channels of the communicator. */
  readonly channels: number;
}

/** Channels that a call may use, NCCL's `nc`: one per `bytesPerChannel`, at least one, at most all. */
export function channelBudget(question: BudgetQuestion): number {
  const { collective, algorithm, protocol, topology, bytes, channels } = question;
  const { ranks } = topology;
  const bytesPerChannel =
    maxThreads(algorithm, protocol, topology) * threadThreshold(algorithm, protocol, ranks);
  const channelsForBytes = Math.floor(modelBytes(collective, ranks, bytes) / bytesPerChannel);
  return Math.max(1, Math.min(channels, channelsForBytes));
}
