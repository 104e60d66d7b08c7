/** Point to point in the simulation: completion times of sends and receives, and the copies of their bytes. */
import type { FusedPlan, LinkModel, MessageTime } from "../../algorithms/index.ts";
import type { Transfer } from "../../api/backend-entry.ts";
import { boundBuffer } from "./bind.ts";
import type { BoundCall } from "./executor.ts";
import type { TransferStarts, TransferTimes } from "./trace.ts";

/** Sends and receives under way that a rank posted together. */
export interface ConcurrentCalls {
  /** The end of the rank's earlier calls, in picoseconds. */
  readonly beganPs: number;
  readonly sendPort: Port;
  readonly recvPort: Port;
  /** Channels of the messages that the rank sends. */
  channels: number;
  /** On a measured machine the end of the last message to each rank, in picoseconds. */
  readonly endsTo: Map<number, number>;
}

/** The sends and receives that each side of a transfer belongs to. */
export type Joined = (rank: number, batch: object) => ConcurrentCalls;

/** A message on a link has nothing before it moves. */
const noStart = (): number => 0;

/** The time of a message on a link: it holds a port for its bytes, and the sender does not wait for the receiver. */
export function linkMessage({ latency, occupancy }: LinkModel, count: number): MessageTime {
  const occupancyPs = occupancy(count);
  return { latencyPs: latency, occupancyPs, movedPs: 0, channels: 0, startPs: noStart };
}

/**
 * Sets the completion time of each side: on a link the sender's when its message has left, and the receiver's when it has arrived;
 * on a measured machine both when the bytes have moved, and messages from one rank to another follow each other. A message leaves
 * after both sides have arrived (rendezvous) and completed their earlier calls. Until it is set here, `finishedAtPs` of each side
 * holds its arrival time. Messages that can leave first choose their time on both ports first; later ones use the remaining gaps.
 */
export function predictTransfers(
  transfers: readonly Transfer[],
  timeOf: (transfer: Transfer) => MessageTime,
  joined: Joined,
  onTransfer: (transfer: Transfer, times: TransferTimes, began: TransferStarts) => void,
): void {
  const ready = transfers.map((transfer) => {
    const { send, recv, sendBatch, recvBatch } = transfer;
    const sender = joined(send.rank, sendBatch);
    const receiver = joined(recv.rank, recvBatch);
    const began = {
      sendPs: Math.max(send.finishedAtPs, sender.beganPs),
      recvPs: Math.max(recv.finishedAtPs, receiver.beganPs),
    };
    const readyPs = Math.max(began.sendPs, began.recvPs);
    return { transfer, readyPs, began, sender, receiver };
  });
  ready.sort((a, b) => a.readyPs - b.readyPs);
  for (const { transfer, readyPs, began, sender, receiver } of ready) {
    const { send, recv } = transfer;
    const time = timeOf(transfer);
    const { latencyPs, occupancyPs } = time;
    const isMeasured = latencyPs === undefined;
    const earlierPs = isMeasured ? sender.endsTo.get(recv.rank) : undefined;
    const fromPs = Math.max(readyPs, earlierPs ?? 0);
    const sendStart = sender.sendPort.freeFrom(fromPs, occupancyPs);
    const arrivalPs = isMeasured ? fromPs : sendStart + latencyPs;
    const recvStart = receiver.recvPort.freeFrom(arrivalPs, occupancyPs);
    sender.sendPort.take(sendStart, occupancyPs);
    receiver.recvPort.take(recvStart, occupancyPs);
    // Messages that follow each other have the same channels.
    const startPs = time.startPs(earlierPs === undefined ? sender.channels : 0);
    if (earlierPs === undefined) sender.channels += time.channels;
    const ends = [sendStart + occupancyPs, recvStart + occupancyPs] as const;
    const bothPs = startPs + Math.max(...ends, fromPs + time.movedPs);
    const [sendEnd, recvEnd] = isMeasured ? [bothPs, bothPs] : ends;
    if (isMeasured) sender.endsTo.set(recv.rank, bothPs);
    send.finishedAtPs = sendEnd;
    recv.finishedAtPs = recvEnd;
    onTransfer(transfer, { sendStart, sendEnd, recvStart, recvEnd }, began);
  }
}

/** All transfers as one bound call of bytes: transfer i copies the only chunk of input i to output i. */
export function bindTransfers(transfers: readonly Transfer[]): BoundCall {
  const plan: FusedPlan = {
    groups: transfers.map((_, rank) => {
      const place = { rank, chunk: 0 };
      const operands = [{ kind: "contribution" as const, place }];
      return [{ operands, final: false, reduces: false, targets: [place] }];
    }),
    inPlaceSafe: true,
    independent: true,
  };
  const offsets = Float64Array.of(0);
  // Messages of one length share a table: a group has thousands of them.
  const known = new Map<number, { lengths: Float64Array; offsets: Float64Array }>();
  const tables = transfers.map(({ send }) => {
    const bytes = send.send?.byteLength ?? 0;
    const table = known.get(bytes) ?? { lengths: Float64Array.of(bytes), offsets };
    known.set(bytes, table);
    return table;
  });
  return {
    dtype: "uint8",
    plan,
    layout: { in: tables, out: tables },
    inputs: transfers.map(({ send }) => boundBuffer(send.send)),
    outputs: transfers.map(({ recv }) => boundBuffer(recv.recv)),
    folds: [],
    separate: undefined,
    inPlace: false,
  };
}

/** The times at which one direction of a rank's connection is in use, in picoseconds: it carries one message at a time. */
export class Port {
  /** Starts and ends alternate, ascending; adjacent spans are merged. */
  readonly #busy: number[] = [];

  /** The first time from `fromPs` on at which the port is free for that duration. */
  freeFrom(fromPs: number, durationPs: number): number {
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
