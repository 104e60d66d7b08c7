/** Results of an order of folding for any bits: the hand-written orders, rounded step by step in whole numbers. */
import { bytesFromBits, isFloat } from "../../src/testing/oracle/elements.ts";
import {
  type OracleDType,
  type OracleOp,
  oracleFinish,
  oracleFold,
  oracleJoin,
} from "../../src/testing/oracle/rounding.ts";
import type { ProgramFoldingCall } from "../../src/testing/program.ts";
import { type Element, type FoldOrder, orderOf } from "./fold-order.ts";

/** Maps a collective to its algorithm. */
export type ChoiceOf = (collective: string) => string;

/** Bytes of a call's folded blocks, one after another; `ops` and `sent` by rank. */
export function orderedReduce(
  choice: ChoiceOf,
  call: ProgramFoldingCall,
  ops: readonly OracleOp[],
  sent: readonly (readonly bigint[])[],
): Uint8Array {
  const { dtype } = call;
  const ranks = sent.length;
  const scaled = typeof ops[0] === "object" || (ops[0] === "avg" && isFloat(dtype));
  // One rank alone has nothing to fold: without a scalar its bytes stay, NaN payloads included.
  if (ranks === 1 && !scaled) return bytesFromBits(dtype, sent[0]!);
  const order = orderOf(call.kind, choice(call.kind));
  const column = elementsOf(call, ranks).map((element, i) => {
    const contributions = sent.map((bits) => bits[i]!);
    return resultOf(dtype, ops, contributions, order(ranks, element));
  });
  return bytesFromBits(dtype, column);
}

/** Bits of one element. */
function resultOf(
  dtype: OracleDType,
  ops: readonly OracleOp[],
  contributions: readonly bigint[],
  order: FoldOrder,
): bigint {
  const ranks = ops.length;
  const contribution = (rank: number, begin?: bigint): bigint =>
    oracleFold({
      dtype,
      op: ops[rank]!,
      ranks,
      rounding: "fused",
      contributions: [contributions[rank]!],
      finish: false,
      ...(begin === undefined ? {} : { begin }),
    });
  const bitsOf = (each: FoldOrder): bigint => {
    if ("alone" in each) return contribution(each.alone);
    if ("meets" in each) return contribution(each.meets, bitsOf(each.partial));
    const [left, right] = [bitsOf(each.left), bitsOf(each.right)];
    return oracleJoin({ dtype, op: ops[0]!, left, right });
  };
  return oracleFinish({ dtype, op: ops[0]!, ranks, bits: bitsOf(order) });
}

/** Where every element of the folded blocks lies. */
function elementsOf(call: ProgramFoldingCall, ranks: number): Element[] {
  const lengths =
    call.kind === "reduceScatterv"
      ? call.counts
      : new Array<number>(call.kind === "reduceScatter" ? ranks : 1).fill(call.count);
  const root = call.kind === "reduce" ? call.root : -1;
  return lengths.flatMap((length, block) =>
    Array.from({ length }, (_, at) => ({
      root,
      block,
      chunkOf: (chunks: number): number => {
        const longer = length % chunks;
        const short = (length - longer) / chunks;
        const inLonger = longer * (short + 1);
        if (at < inLonger) return Math.floor(at / (short + 1));
        return longer + Math.floor((at - inLonger) / short);
      },
    })),
  );
}
