/** All-gather: every rank ends with the inputs of all ranks, one after another. */
import type { AllGatherArgs, Data } from "../calls.ts";
import { type Prepared, preparedCall } from "../ledger/posting.ts";
import type { Specification } from "../specification.ts";
import type { Validator } from "./validate.ts";

/** Out block s of every rank = block 0 of rank s. */
export const allGatherSpec: Specification = {
  collective: "allGather",
  reduces: false,
  rooted: false,
  synchronises: false,
  inBlocks: () => 1,
  outBlocks: (ranks) => ranks,
  expected: (_ranks, _rank, block) => [{ rank: block, block: 0 }],
  inPlace: (_ranks, rank) => rank,
};

/** Checks one rank's arguments: `recv` is `size` times as long; in place `send` is this rank's block of it. */
export function prepareAllGather<S extends Data, R extends Data>(
  check: Validator,
  args: AllGatherArgs<S, R>,
  rank: number,
  size: number,
): Prepared<R> {
  const send = check.buffer("send", args.send);
  const recv = check.buffer("recv", args.recv);
  check.shape("recv", recv, send.dtype, size * send.length);
  check.apart(send, recv, rank * send.length);
  const call = { dtype: send.dtype, count: send.length, send, recv };
  return preparedCall("allGather", call, args.recv);
}
