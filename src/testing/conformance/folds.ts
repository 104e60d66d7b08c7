/** Reductions of any bits of every float type, judged by the order that their backend explains. */
import { type DType, dtypes, type Explanation, type ReduceOp } from "../../api/index.ts";
import type { RankOutcome } from "../call-site.ts";
import { bitsFromBytes, isFloat } from "../oracle/elements.ts";
import { bitsInOrder } from "../oracle/order.ts";
import { oracleFinish } from "../oracle/rounding.ts";
import type { ProgramFoldingCall } from "../program.ts";

/** A reduction with blocks of equal lengths. */
export type RoundedCall = Exclude<ProgramFoldingCall, { readonly kind: "reduceScatterv" }>;

const operators: readonly ReduceOp[] = ["sum", "prod", "avg", { preMul: 0.375 }];

/** Reductions that round at nearly every hop. */
export function roundedCalls(size: number): RoundedCall[] {
  const placement = { form: "inPlace", lead: 1, tail: 1, host: false } as const;
  const callsOf = (dtype: DType, op: ReduceOp, seed: number): RoundedCall[] => {
    const shared = { dtype, op, payload: "bits", seed, placement } as const;
    return [
      { ...shared, kind: "allReduce", count: 120 },
      { ...shared, kind: "reduce", count: 60, root: size - 1 },
      { ...shared, kind: "reduceScatter", count: 13 },
    ];
  };
  return dtypes
    .filter(isFloat)
    .flatMap((dtype, at) => operators.flatMap((op, place) => callsOf(dtype, op, 4 * at + place)));
}

/** Throws at the first element that no rounding of the explained order gives; plans and outcomes by rank. */
export function judgeFolds(
  call: RoundedCall,
  plans: readonly Pick<Explanation, "chunks">[],
  outcomes: readonly RankOutcome[],
): void {
  const { kind, dtype, op, count } = call;
  const ranks = outcomes.length;
  const sent = outcomes.map((outcome) => bitsFromBytes(dtype, outcome.sent));
  const admittedOn = (rank: number): ReadonlySet<bigint>[] => {
    const begin = kind === "reduceScatter" ? rank * count : 0;
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

function hex(bits: bigint): string {
  return `0x${bits.toString(16)}`;
}
