/** Completion times of sends and receives: messages in their ports. */
import type { LinkModel, MessageTime, MessageUse } from "../../algorithms/index.ts";
import type { PostedMessages, Transfer } from "../../api/backend-entry.ts";
import type { TransferStarts, TransferTimes } from "./trace/trace.ts";

/** Sends and receives under way that a rank posted together. */
export interface ConcurrentCalls {
  readonly batch: PostedMessages;
  /** The end of the rank's earlier calls, in picoseconds. */
  readonly beganPs: number;
  /** The end of all its calls so far. */
  readonly stream: { freePs: number };
  readonly sendPort: Port;
  readonly recvPort: Port;
  /** On a measured machine the end of the last message to each rank but for the call's part, in picoseconds. */
  readonly endsTo: Map<number, number>;
}

/** The sends and receives that each side of a transfer belongs to. */
export type Joined = (rank: number, batch: PostedMessages) => ConcurrentCalls;

/** The time of a message on a link: it holds a port for its bytes, and the sender does not wait for the receiver. */
export function linkMessage({ latency, occupancy }: LinkModel, count: number): MessageTime {
  const occupancyPs = occupancy(count);
  const none = { movedPs: 0, lastPs: 0, startPs: 0, callPs: 0, lagPs: 0 };
  return { latencyPs: latency, occupancyPs, ...none, on: undefined };
}

/**
 * Sets the completion time of each side, and of its stream: the sender's when its message has left, and the receiver's when it has
 * arrived. A message leaves after both sides have arrived (rendezvous) and completed their earlier calls; on a measured machine its
 * sender may be ahead by `lagPs`, and messages from one rank to another follow each other. Until it is set here,
 * `finishedAtPs` of each side holds its arrival time. Messages that can leave first choose their time on both ports first; later ones
 * use the remaining gaps.
 */
export function predictTransfers(
  transfers: readonly Transfer[],
  ranks: number,
  timeOf: (transfer: Transfer, use: MessageUse) => MessageTime,
  joined: Joined,
  onTransfer?: (transfer: Transfer, times: TransferTimes, began: TransferStarts) => void,
): void {
  // Messages of one batch mostly follow each other.
  let last: Transfer | undefined;
  let sender!: ConcurrentCalls;
  let receiver!: ConcurrentCalls;
  let sendPs = 0;
  let recvPs = 0;
  const arrive = (transfer: Transfer): void => {
    const { send, recv, sendBatch, recvBatch } = transfer;
    if (sendBatch !== last?.sendBatch) sender = joined(send.rank, sendBatch);
    if (recvBatch !== last?.recvBatch) receiver = joined(recv.rank, recvBatch);
    last = transfer;
    sendPs = Math.max(send.finishedAtPs, sender.beganPs);
    recvPs = Math.max(recv.finishedAtPs, receiver.beganPs);
  };
  const readyPs = (transfer: Transfer): number => {
    arrive(transfer);
    return Math.max(sendPs, recvPs);
  };
  for (const transfer of inOrder(transfers, readyPs)) {
    arrive(transfer);
    const { send, recv } = transfer;
    const time = timeOf(transfer, useOf(transfer, ranks));
    const { latencyPs, occupancyPs, startPs, lagPs } = time;
    const isMeasured = latencyPs === undefined;
    const earlierPs = isMeasured ? sender.endsTo.get(recv.rank) : undefined;
    const fromPs = Math.max(sendPs, recvPs - lagPs, earlierPs ?? 0);
    const sendStart = sender.sendPort.freeFrom(fromPs, occupancyPs);
    const arrivalPs = isMeasured ? fromPs : sendStart + latencyPs;
    let recvStart = receiver.recvPort.freeFrom(arrivalPs, occupancyPs);
    sender.sendPort.take(sendStart, occupancyPs);
    receiver.recvPort.take(recvStart, occupancyPs);
    let sendEnd = sendStart + occupancyPs;
    let recvEnd = recvStart + occupancyPs;
    if (isMeasured) {
      const portPs = Math.max(sendEnd, recvEnd);
      const movedPs = fromPs + time.movedPs;
      sendEnd = startPs + Math.max(portPs, movedPs);
      recvEnd = startPs + Math.max(portPs + time.lastPs, movedPs + lagPs);
      sender.endsTo.set(recv.rank, sendEnd - time.callPs);
      // A receiver begins with its call, and not before the message leaves.
      recvStart = Math.max(recvStart, sendStart, recvPs);
    }
    if (onTransfer !== undefined) {
      onTransfer(
        transfer,
        { sendStart, sendEnd, recvStart, recvEnd },
        { sendPs, recvPs, on: time.on },
      );
    }
    send.finishedAtPs = sendEnd;
    recv.finishedAtPs = recvEnd;
    sender.stream.freePs = Math.max(sender.stream.freePs, sendEnd);
    receiver.stream.freePs = Math.max(receiver.stream.freePs, recvEnd);
  }
}

/** Transfers by their times; mostly they are in that order. */
function inOrder(
  transfers: readonly Transfer[],
  timePs: (transfer: Transfer) => number,
): readonly Transfer[] {
  let lastPs = 0;
  for (const transfer of transfers) {
    const atPs = timePs(transfer);
    if (atPs < lastPs) return transfers.toSorted((a, b) => timePs(a) - timePs(b));
    lastPs = atPs;
  }
  return transfers;
}

/** The use of a message by the other messages of its ends. Messages share channels where their ranks are the same distance apart. */
function useOf({ send, recv, sendBatch, recvBatch }: Transfer, ranks: number): MessageUse {
  const [from, to] = [send.rank, recv.rank];
  if (from === to) return ownUse;
  const before = (2 * from - to + ranks) % ranks;
  const behind = (2 * to - from + ranks) % ranks;
  const isShared = sendBatch.hasPeer("recv", before) || recvBatch.hasPeer("send", behind);
  return {
    kind: isShared ? "both ways" : "one way",
    isCrossing: othersOf(sendBatch, "send", from) > 1 && othersOf(recvBatch, "recv", to) > 1,
  };
}

/** Number of other ranks among the peers of a rank's messages. */
function othersOf(batch: PostedMessages, direction: "send" | "recv", rank: number): number {
  return batch.peerCount(direction) - (batch.hasPeer(direction, rank) ? 1 : 0);
}

const ownUse: MessageUse = { kind: "own", isCrossing: false };

/** The times at which one direction of a rank's connection is in use, in picoseconds: it carries one message at a time. */
export class Port {
  /** Starts and ends alternate, ascending; adjacent spans are merged. */
  readonly #busy: number[] = [];

  /** The first time from `fromPs` on at which the port is free for that duration; a message without bytes needs no port. */
  freeFrom(fromPs: number, durationPs: number): number {
    if (durationPs === 0) return fromPs;
    let start = fromPs;
    for (let i = 0; i < this.#busy.length; i += 2) {
      if (start + durationPs <= (this.#busy[i] as number)) break;
      start = Math.max(start, this.#busy[i + 1] as number);
    }
    return start;
  }

  /** Occupies the port at a time at which it is free. */
  take(startPs: number, durationPs: number): void {
    if (durationPs === 0) return;
    const busy = this.#busy;
    let at = 0;
    while (at < busy.length && (busy[at] as number) < startPs) at += 2;
    const joinsBefore = at > 0 && busy[at - 1] === startPs;
    const joinsAfter = busy[at] === startPs + durationPs;
    if (joinsBefore && joinsAfter) busy.splice(at - 1, 2);
    else if (joinsBefore) busy[at - 1] = startPs + durationPs;
    else if (joinsAfter) busy[at] = startPs;
    else busy.splice(at, 0, startPs, startPs + durationPs);
  }
}
