/** Point to point in the simulation: when sends and receives are done, and how their bytes move. */
import { type FusedPlan, packed } from "../../algorithms/index.ts";
import { bytesOf, type DeviceBuffer, type Transfer } from "../../api/index.ts";
import type { BoundBuffer, BoundCall } from "./executor.ts";
import { type Link, linkModel } from "./link.ts";
import type { HostMemory } from "./memory.ts";

/** When a message takes the sender's port and the receiver's, in picoseconds. */
export interface TransferTimes {
  readonly sendStart: number;
  readonly sendEnd: number;
  readonly recvStart: number;
  readonly recvEnd: number;
}

/**
 * Sets when each side is done: the sender when its message has left, the receiver when it is there. Messages take
 * ports in the order given, and none leaves before both sides have come (rendezvous): `finishedAtPs` of either holds
 * that time until it is set here.
 */
export function predictTransfers(
  transfers: readonly Transfer[],
  link: Link,
  onTransfer: (transfer: Transfer, times: TransferTimes) => void,
): void {
  const sendPort = new Map<number, number>();
  const recvPort = new Map<number, number>();
  for (const transfer of transfers) {
    const { send, recv } = transfer;
    const model = linkModel(link, send.dtype === undefined ? 0 : bytesOf(send.dtype));
    const length = model.occupancy(send.count);
    const ready = Math.max(send.finishedAtPs, recv.finishedAtPs);
    const sendStart = Math.max(ready, sendPort.get(send.rank) ?? 0);
    const sendEnd = sendStart + length;
    const recvStart = Math.max(sendStart + model.latency, recvPort.get(recv.rank) ?? 0);
    const recvEnd = recvStart + length;
    sendPort.set(send.rank, sendEnd);
    recvPort.set(recv.rank, recvEnd);
    send.finishedAtPs = sendEnd;
    recv.finishedAtPs = recvEnd;
    onTransfer(transfer, { sendStart, sendEnd, recvStart, recvEnd });
  }
}

/** All transfers as one bound call of bytes: transfer i copies the only chunk of input i to output i. */
export function bindTransfers(transfers: readonly Transfer[]): BoundCall {
  const plan: FusedPlan = {
    groups: transfers.map((_, rank) => [
      {
        operands: [{ kind: "contribution", place: { rank, chunk: 0 } }],
        final: false,
        reduces: false,
        targets: [{ rank, chunk: 0 }],
      },
    ]),
    inPlaceSafe: true,
  };
  const tables = transfers.map(({ send }) => {
    const { counts, offsets } = packed([send.send?.byteLength ?? 0]);
    return { lengths: Float64Array.from(counts), offsets: Float64Array.from(offsets) };
  });
  return {
    dtype: "uint8",
    plan,
    layout: { in: tables, out: tables },
    inputs: transfers.map(({ send }) => bound(send.send)),
    outputs: transfers.map(({ recv }) => bound(recv.recv)),
    folds: [],
    separate: undefined,
    inPlace: false,
  };
}

function bound(buffer: DeviceBuffer | undefined): BoundBuffer | undefined {
  if (buffer === undefined) return undefined;
  const { allocation, byteOffset, byteLength } = buffer;
  return { memory: allocation.memory as HostMemory, byteOffset, byteLength };
}
