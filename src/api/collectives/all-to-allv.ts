/** All-to-allv: an all-to-all of blocks that each have a length of their own. */
import type { CallSet, RankCall, Session } from "../backend.ts";
import { bufferOver, type DeviceBuffer } from "../buffer.ts";
import type { AllToAllvArgs, AllToAllvResult, Data, DTypeOf, Received } from "../calls.ts";
import { bytesOf } from "../dtype.ts";
import { numbersText, rankRows, ranksText } from "../error-text.ts";
import { CollectiveMismatchError } from "../errors.ts";
import { largest } from "../largest.ts";
import { PerRankError, postedFacts } from "../ledger/failures.ts";
import type { Prepared } from "../ledger/posting.ts";
import type { Specification } from "../specification.ts";
import { allToAllSpec } from "./all-to-all.ts";
import { assertDisjoint, assertInside, offsetsOf, sum } from "./blocks.ts";
import type { Validator } from "./validate.ts";

/** The same exchange of blocks as an all-to-all; lengths are a matter of layout, not of meaning. */
export const allToAllvSpec: Specification = { ...allToAllSpec, collective: "allToAllv" };

/** Checks one rank's arguments: blocks lie inside their buffers, and those of `recv` do not overlap. */
export function prepareAllToAllv<S extends Data, R extends Data | undefined>(
  check: Validator,
  args: AllToAllvArgs<S, R>,
): Prepared<AllToAllvResult<Received<R, DeviceBuffer<DTypeOf<S>>>>> {
  const send = check.buffer("send", args.send);
  const sendCounts = check.counts("sendCounts", args.sendCounts);
  const sendOffsets = offsetsOf(check, "sendOffsets", args.sendOffsets, sendCounts);
  const sentBy = args.sendOffsets === undefined ? "sendCounts" : "sendOffsets";
  assertInside(check, sentBy, sendCounts, sendOffsets, send);
  const recv = args.recv === undefined ? undefined : check.buffer("recv", args.recv);
  if (recv !== undefined) {
    check.dtype("recv", recv, send.dtype);
    check.apart(send, recv);
  }
  if (args.recvCounts === undefined && args.recvOffsets !== undefined) {
    throw check.fault("recvOffsets", "given without recvCounts", "both or neither");
  }
  const given = receiveBlocks(check, args, recv);
  const result = args.recv;
  return {
    call: {
      dtype: send.dtype,
      count: sum(sendCounts),
      send,
      recv,
      blocks: { sendCounts, sendOffsets, ...given },
    },
    signature: [
      ["collective", "allToAllv"],
      ["dtype", send.dtype],
      ["recvCounts", given === undefined ? "exchanged" : "given"],
    ],
    toResult: (call: RankCall) => ({
      recv: (result ?? call.recv) as Received<R, DeviceBuffer<DTypeOf<S>>>,
      recvCounts: call.recvCounts ?? [],
      recvOffsets: call.recvOffsets ?? [],
    }),
  };
}

/** Gives every rank a receiving buffer once all counts are known, or refuses the set when one is too short. */
export function provideReceiveBuffers(session: Session, set: CallSet): void {
  const needed = set.calls.map(receivedLength);
  const short = set.calls.flatMap(({ recv, rank }, index) =>
    recv !== undefined && recv.length < (needed[index] as number) ? [rank] : [],
  );
  if (short.length > 0) throw tooShort(set, needed, short);
  for (const [index, call] of set.calls.entries()) {
    const { dtype } = call;
    if (call.recv !== undefined || dtype === undefined) continue;
    const rank = set.comm.ranks[call.rank] as number;
    const length = needed[index] as number;
    const memory = session.device(rank).allocate(length * bytesOf(dtype), false, set.comm);
    call.recv = bufferOver(dtype, length, memory, { rank, session });
  }
}

/** Elements that a receiving buffer needs: up to the end of its last block. */
function receivedLength({ recvCounts = [], recvOffsets = [] }: RankCall): number {
  const ends = recvCounts.map((count, rank) =>
    count === 0 ? 0 : (recvOffsets[rank] ?? 0) + count,
  );
  return largest(ends, 0);
}

function receiveBlocks(
  check: Validator,
  args: Pick<AllToAllvArgs, "recvCounts" | "recvOffsets">,
  recv: DeviceBuffer | undefined,
): { recvCounts: readonly number[]; recvOffsets: readonly number[] } | undefined {
  if (args.recvCounts === undefined) return undefined;
  const recvCounts = check.counts("recvCounts", args.recvCounts);
  const recvOffsets = offsetsOf(check, "recvOffsets", args.recvOffsets, recvCounts);
  const placedBy = args.recvOffsets === undefined ? "recvCounts" : "recvOffsets";
  if (recv !== undefined) assertInside(check, placedBy, recvCounts, recvOffsets, recv);
  assertDisjoint(check, "recvOffsets", recvCounts, recvOffsets);
  return { recvCounts, recvOffsets };
}

function tooShort(set: CallSet, needed: readonly number[], ranks: readonly number[]): PerRankError {
  const values = set.calls.map(({ recv }, index) =>
    recv === undefined ? "allocated" : `${recv.length} of ${needed[index]} needed`,
  );
  const rows = values.map((value, at) => ({ rank: set.calls[at]?.rank ?? at, cells: [value] }));
  return new PerRankError(
    (posting) =>
      new CollectiveMismatchError(
        {
          headline: `call ${set.number} on "${set.comm.name}": ${ranksText(ranks)} cannot hold what is sent to them`,
          table: [["rank", "recv.length"], ...rankRows(rows, numbersText)],
          hint: "nothing was written; leave recv out to have it allocated at the length that arrives",
        },
        { ...postedFacts(set.comm, posting, set.collective), ranks, field: "recv.length", values },
      ),
  );
}
