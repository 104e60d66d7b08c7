/** Reduce: the root ends with the fold of all ranks' inputs. */
import type { Data, Received, ReduceArgs } from "../calls.ts";
import { type Prepared, preparedCall } from "../ledger/posting.ts";
import { everyRanksBlock, type Specification } from "../specification.ts";
import type { Validator } from "./validate.ts";

/** Out block 0 of the root = fold of block 0 of all ranks; other ranks have no output. */
export const reduceSpec: Specification = {
  collective: "reduce",
  reduces: true,
  rooted: true,
  synchronises: false,
  inBlocks: () => 1,
  outBlocks: (_ranks, rank, root) => (rank === root ? 1 : 0),
  expected: (ranks) => everyRanksBlock(ranks, 0),
  inPlace: (_ranks, rank, _block, root) => (rank === root ? 0 : undefined),
};

/** Checks one rank's arguments: the root's `recv` is as long as `send`, the others have none. */
export function prepareReduce<S extends Data, R extends Data | undefined>(
  check: Validator,
  args: ReduceArgs<S, R>,
  rank: number,
): Prepared<Received<R, S> | undefined> {
  const root = check.rank("root", args.root);
  const send = check.buffer("send", args.send);
  if (rank !== root) check.rootOnly("recv", args.recv, root);
  const recv = args.recv === undefined ? send : check.buffer("recv", args.recv);
  check.shape("recv", recv, send.dtype, send.length);
  check.apart(send, recv, 0);
  const op = check.op(args.op, send.dtype);
  const call = { dtype: send.dtype, op, count: send.length, root, send };
  if (rank !== root) return preparedCall("reduce", call, undefined);
  const result = (args.recv ?? args.send) as Received<R, S>;
  return preparedCall("reduce", { ...call, recv }, result);
}
