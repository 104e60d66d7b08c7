/** All-gatherv: an all-gather of blocks that each have a length of their own, known to every rank. */
import type { AllGathervArgs, Data } from "../calls.ts";
import { type Prepared, preparedCall } from "../ledger/posting.ts";
import type { Specification } from "../specification.ts";
import { allGatherSpec } from "./all-gather.ts";
import { assertDisjoint, blocksIn, countFields } from "./blocks.ts";
import type { Validator } from "./validate.ts";

/** The same blocks as an all-gather; lengths are a matter of layout. */
export const allGathervSpec: Specification = { ...allGatherSpec, collective: "allGatherv" };

/** Checks one rank's arguments: `send` is as long as this rank's count says, `recv` holds every block. */
export function prepareAllGatherv<S extends Data, R extends Data>(
  check: Validator,
  args: AllGathervArgs<S, R>,
  rank: number,
): Prepared<R> {
  const send = check.buffer("send", args.send);
  const recv = check.buffer("recv", args.recv);
  const recvCounts = check.counts("recvCounts", args.recvCounts);
  const why = `as recvCounts[${rank}] says`;
  check.shape("send", send, recv.dtype, recvCounts[rank] as number, why);
  const recvOffsets = blocksIn(check, "recv", recv, send.dtype, recvCounts, args.recvOffsets);
  assertDisjoint(check, recvCounts, recvOffsets);
  check.apart(send, recv, recvOffsets[rank] as number);
  const blocks = { recvCounts, recvOffsets };
  const call = { dtype: send.dtype, count: send.length, send, recv, blocks };
  return preparedCall("allGatherv", call, args.recv, countFields("recvCounts", recvCounts));
}
