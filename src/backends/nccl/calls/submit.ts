/** Puts complete calls on the streams of their ranks: the NCCL calls that each consists of, in the groups that they need. */
import type { RankCall, RemoteTransfer, Transfer } from "../../../api/index.ts";
import { dataTypes } from "../memory/mapping.ts";
import { copyAlone, isCopyAlone } from "../rank/alone.ts";
import type { Member } from "../rank/member.ts";
import type { NcclCalls } from "../result/nccl.ts";
import type { NcclCommunicator } from "./communicators.ts";
import { type Part, stepsOf } from "./issue.ts";
import { ReadyCall } from "./ready-call.ts";

/**
 * Makes the NCCL calls of one call of all ranks; operators that were made for it end also when it throws. Gives what
 * makes them again with the same arguments: nothing where there are such operators, or no NCCL calls.
 */
export function submitCall(
  nccl: NcclCalls,
  comm: NcclCommunicator,
  calls: readonly RankCall[],
): ReadyCall | undefined {
  const first = calls[0] as RankCall;
  if (isCopyAlone(first, comm.size)) {
    copyAlone(first, (comm.members.get(0) as Member).local);
    return undefined;
  }
  const parts: Part[] = [];
  const endOps = (): void => {
    for (const { call, op } of parts) comm.endOp(call, op);
  };
  let ready: ReadyCall;
  try {
    for (const call of calls) parts.push(comm.part(call));
    ready = new ReadyCall(nccl, comm, stepsOf(first, comm.size), parts);
    ready.make();
  } catch (error) {
    // Operators that cannot be ended either must not hide why the call failed.
    try {
      endOps();
    } catch {}
    throw error;
  }
  endOps();
  return calls.some(({ op }) => typeof op === "object") ? undefined : ready;
}

/** One end of a message that is to be handed over. */
export type MessageEnd = Omit<RemoteTransfer, "number">;

/** Both ends of messages, and ends with their other one elsewhere. */
export function messageEnds(
  transfers: readonly Transfer[],
  halves: readonly RemoteTransfer[],
): readonly MessageEnd[] {
  return [
    ...transfers.flatMap(({ send, recv }): MessageEnd[] => [
      { direction: "send", peer: recv.rank, call: send },
      { direction: "recv", peer: send.rank, call: recv },
    ]),
    ...halves,
  ];
}

/** Makes the NCCL calls of messages, as one group. */
export function submitMessages(
  nccl: NcclCalls,
  comm: NcclCommunicator,
  ends: readonly MessageEnd[],
): void {
  nccl.group(() => {
    for (const { direction, peer, call } of ends) {
      const { handle, local } = comm.members.get(call.rank) as Member;
      const { count, dtype } = call;
      const buffer = call[direction];
      if (count === 0 || dtype === undefined || buffer === undefined) continue;
      nccl[direction](buffer.ptr, count, dataTypes[dtype], peer, handle, local.device.stream);
    }
  });
}
