/** All-to-all: block j of rank i goes to block i of rank j. */
import type { AllToAllArgs, Data } from "../calls.ts";
import { type Prepared, preparedCall } from "../ledger/posting.ts";
import type { Specification } from "../specification.ts";
import type { Validator } from "./validate.ts";

/** Out block s of rank r = in block r of rank s; blocks of equal length. */
export const allToAllSpec: Specification = {
  collective: "allToAll",
  reduces: false,
  rooted: false,
  synchronises: false,
  inBlocks: (ranks) => ranks,
  outBlocks: (ranks) => ranks,
  expected: (_ranks, rank, block) => [{ rank: block, block: rank }],
  inPlace: () => undefined,
};

/** Checks one rank's arguments: both buffers hold `size` blocks of one length. */
export function prepareAllToAll<S extends Data, R extends Data>(
  check: Validator,
  args: AllToAllArgs<S, R>,
  _rank: number,
  size: number,
): Prepared<R> {
  const send = check.buffer("send", args.send);
  const recv = check.buffer("recv", args.recv);
  if (send.length % size !== 0) {
    throw check.fault("send", `found ${send.length} elements`, `a multiple of the ${size} ranks`);
  }
  check.shape("recv", recv, send.dtype, send.length);
  check.apart(send, recv);
  const call = { dtype: send.dtype, count: send.length / size, send, recv };
  return preparedCall("allToAll", call, args.recv);
}
