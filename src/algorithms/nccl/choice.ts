/** Which algorithm and protocol NCCL takes: the least predicted time, or what was forced. */
import { type DType, dtypeInfo } from "../../api/dtype.ts";
import { UnsupportedError } from "../../api/errors.ts";
import {
  algorithms,
  type NcclAlgorithm,
  type NcclCollective,
  type NcclProtocol,
  protocols,
} from "./protocol.ts";
import type { Topology } from "./topology.ts";
import { costEntry, predictedTime } from "./tuning.ts";

/** Algorithm and protocol of a call. */
export interface Choice {
  readonly algorithm: NcclAlgorithm;
  readonly protocol: NcclProtocol;
}

/** What NCCL_ALGO and NCCL_PROTO allow; what is left out is NCCL's choice. */
export interface Forced {
  readonly algorithm?: NcclAlgorithm | undefined;
  readonly protocol?: NcclProtocol | undefined;
}

/** The call as far as the choice depends on it: neither channel limits nor buffer sizes do. */
export interface ChoiceQuestion {
  readonly collective: NcclCollective;
  readonly topology: Topology;
  readonly dtype: DType;
  /** Bytes as the cost model counts them: `modelBytes`. */
  readonly size: number;
  readonly forced?: Forced | undefined;
}

/** NCCL's choice for a lone call; an impossible demand is refused, as NCCL does since 2.24. */
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

/** Rings of 1-byte floats lose too much over more than 8 ranks, in NCCL's opinion. */
function penalty({ dtype, topology }: ChoiceQuestion, algorithm: NcclAlgorithm): number {
  const { bytes, kind } = dtypeInfo[dtype];
  const narrow = bytes === 1 && kind === "float";
  return algorithm === "Ring" && narrow && topology.ranks > 8 ? 1024 : 1;
}
