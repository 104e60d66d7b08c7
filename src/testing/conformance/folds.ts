/** Results of reductions of any bits, judged by the order that their backend explains. */
import type { Explanation } from "../../api/index.ts";
import type { RankOutcome } from "../call-execution.ts";
import { bitsFromBytes } from "../oracle/elements.ts";
import { bitsInOrder } from "../oracle/order.ts";
import { oracleFinish } from "../oracle/rounding.ts";
import type { ProgramFoldingCall } from "../program.ts";

/** Throws at the first element that no rounding of the explained order gives; plans and outcomes by rank. */
export function judgeFolds(
  call: ProgramFoldingCall,
  plans: readonly Pick<Explanation, "chunks">[],
  outcomes: readonly RankOutcome[],
): void {
  const { kind, dtype, op } = call;
  const ranks = outcomes.length;
  const sent = outcomes.map((outcome) => bitsFromBytes(dtype, outcome.sent));
  const admittedOn = (rank: number): ReadonlySet<bigint>[] => {
    const { begin, count } = blockOf(call, rank);
    const contents = sent.map((bits) => bits.slice(begin, begin + count));
    return bitsInOrder({ dtype, op, chunks: plans[rank]?.chunks ?? [], contents });
  };
  // All ranks have the same plan of an all-reduce.
  const shared = kind === "allReduce" ? admittedOn(0) : undefined;
  for (const [rank, { bytes }] of outcomes.entries()) {
    if (kind === "reduce" && rank !== call.root) continue;
    const admitted = shared ?? admittedOn(rank);
    for (const [at, bits] of bitsFromBytes(dtype, bytes).entries()) {
      // Any NaN of a reduction equals any other.
      if (admitted[at]?.has(oracleFinish({ dtype, op, ranks, bits })) === true) continue;
      const needed = Array.from(admitted[at] ?? [], hex).join(" or ") || "an explained element";
      const name = typeof op === "string" ? op : `preMul ${op.preMul}`;
      throw new Error(
        `${kind} ${dtype} ${name}, rank ${rank}, element ${at}: found ${hex(bits)}, needed ${needed}`,
      );
    }
  }
}

/** A rank's block of what each rank sends. */
function blockOf(call: ProgramFoldingCall, rank: number): { begin: number; count: number } {
  if (call.kind === "reduceScatterv") {
    const begin = call.counts.slice(0, rank).reduce((sum, count) => sum + count, 0);
    return { begin, count: call.counts[rank] as number };
  }
  return { begin: call.kind === "reduceScatter" ? rank * call.count : 0, count: call.count };
}

function hex(bits: bigint): string {
  return `0x${bits.toString(16)}`;
}
