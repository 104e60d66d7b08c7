/** Reduce-scatterv: a reduce-scatter of blocks that each have a length of their own, known to every rank. */
import type { Data, ReduceScattervArgs } from "../calls.ts";
import { type Prepared, preparedCall } from "../ledger/posting.ts";
import type { Specification } from "../specification.ts";
import { runningSum, sum } from "../sums.ts";
import { countFields } from "./blocks.ts";
import { reduceScatterSpec } from "./reduce-scatter.ts";
import type { Validator } from "./validate.ts";

/** The same folds as a reduce-scatter; lengths are a matter of layout. */
export const reduceScattervSpec: Specification = {
  ...reduceScatterSpec,
  collective: "reduceScatterv",
};

/** Checks one rank's arguments: `send` holds all blocks one after another, `recv` is as long as this rank's. */
export function prepareReduceScatterv<S extends Data, R extends Data>(
  check: Validator,
  args: ReduceScattervArgs<S, R>,
  rank: number,
): Prepared<R> {
  const send = check.buffer("send", args.send);
  const recv = check.buffer("recv", args.recv);
  const sendCounts = check.counts("sendCounts", args.sendCounts);
  const sendOffsets = runningSum(sendCounts);
  check.shape("send", send, recv.dtype, sum(sendCounts), "the sum of sendCounts");
  const why = `as sendCounts[${rank}] says`;
  check.shape("recv", recv, send.dtype, sendCounts[rank] as number, why);
  check.apart(send, recv, -(sendOffsets[rank] as number));
  const op = check.op(args.op, send.dtype);
  const blocks = { sendCounts, sendOffsets };
  const call = { dtype: send.dtype, op, count: recv.length, send, recv, blocks };
  return preparedCall("reduceScatterv", call, args.recv, countFields("sendCounts", sendCounts));
}
