/** All-to-allv: an all-to-all of blocks that each have a length of their own. */
import type { RankCall } from "../backend.ts";
import type { DeviceBuffer } from "../buffer.ts";
import type { AllToAllvArgs, AllToAllvResult, Data, DTypeOf, Received } from "../calls.ts";
import type { Prepared } from "../ledger/posting.ts";
import type { Specification } from "../specification.ts";
import { sum } from "../sums.ts";
import { allToAllSpec } from "./all-to-all.ts";
import { assertDisjoint, assertInside, offsetsOf } from "./blocks.ts";
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
  assertDisjoint(check, recvCounts, recvOffsets);
  return { recvCounts, recvOffsets };
}
