/** Reduce-scatter: rank r ends with the fold of block r of all ranks' inputs. */
import type { Data, ReduceScatterArgs } from "../calls.ts";
import { type Prepared, preparedCall } from "../ledger/posting.ts";
import { everyRanksBlock, type Specification } from "../specification.ts";
import type { Validator } from "./validate.ts";

/** Out block 0 of rank r = fold of block r of all ranks. */
export const reduceScatterSpec: Specification = {
  collective: "reduceScatter",
  reduces: true,
  rooted: false,
  synchronises: false,
  inBlocks: (ranks) => ranks,
  outBlocks: () => 1,
  expected: (ranks, rank) => everyRanksBlock(ranks, rank),
  inPlace: (_ranks, rank, block) => (block === rank ? 0 : undefined),
};

/** Checks one rank's arguments: `send` is `size` times as long; in place `recv` is this rank's block of it. */
export function prepareReduceScatter<S extends Data, R extends Data>(
  check: Validator,
  args: ReduceScatterArgs<S, R>,
  rank: number,
  size: number,
): Prepared<R> {
  const send = check.buffer("send", args.send);
  const recv = check.buffer("recv", args.recv);
  check.shape("send", send, recv.dtype, size * recv.length);
  check.apart(send, recv, -rank * recv.length);
  const op = check.op(args.op, send.dtype);
  const call = { dtype: send.dtype, op, count: recv.length, send, recv };
  return preparedCall("reduceScatter", call, args.recv);
}
