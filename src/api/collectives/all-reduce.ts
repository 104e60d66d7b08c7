/** All-reduce: every rank ends with the fold of all ranks' inputs, the same bits everywhere. */
import type { AllReduceArgs, Data, Received } from "../calls.ts";
import { type Prepared, preparedCall } from "../ledger/posting.ts";
import { everyRanksBlock, type Specification } from "../specification.ts";
import type { Validator } from "./validate.ts";

/** Out block 0 of every rank = fold of block 0 of all ranks. */
export const allReduceSpec: Specification = {
  collective: "allReduce",
  reduces: true,
  rooted: false,
  synchronises: false,
  inBlocks: () => 1,
  outBlocks: () => 1,
  expected: (ranks) => everyRanksBlock(ranks, 0),
  inPlace: () => 0,
};

/** Checks one rank's arguments: `recv.length = send.length`, in place or apart. */
export function prepareAllReduce<S extends Data, R extends Data | undefined>(
  check: Validator,
  args: AllReduceArgs<S, R>,
): Prepared<Received<R, S>> {
  const send = check.buffer("send", args.send);
  const recv = args.recv === undefined ? send : check.buffer("recv", args.recv);
  check.shape("recv", recv, send.dtype, send.length);
  check.apart(send, recv, 0);
  const op = check.op(args.op, send.dtype);
  const call = { dtype: send.dtype, op, count: send.length, send, recv };
  return preparedCall("allReduce", call, (args.recv ?? args.send) as Received<R, S>);
}
