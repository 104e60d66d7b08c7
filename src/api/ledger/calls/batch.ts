/** Sends and receives of one rank that may meet their counterparts in any order: one call, or those of a group. */
import type { CommInfo } from "../../backend.ts";
import type { TransferPosting } from "./posting.ts";

/** A send and the receive it meets. */
export interface Meeting {
  readonly send: TransferPosting;
  readonly recv: TransferPosting;
  readonly sendBatch: Batch;
  readonly recvBatch: Batch;
}

/** What one rank posted together. */
export class Batch {
  readonly rank: number;
  readonly transfers: readonly TransferPosting[];
  /** Those that have not met their counterpart. */
  open: TransferPosting[];

  constructor(rank: number, transfers: readonly TransferPosting[]) {
    this.rank = rank;
    this.transfers = transfers;
    this.open = [...transfers];
  }
}

/** The open sends and receives whose other end lives in another process: nothing here can tell when they meet. */
export function openHalves(
  { local, ranks }: CommInfo,
  batches: readonly (Batch | undefined)[],
): TransferPosting[] {
  if (local.length === ranks.length) return [];
  return batches.flatMap((batch) => batch?.open.filter(({ peer }) => !local.includes(peer)) ?? []);
}

/** Takes them. */
export function takeHalves(
  comm: CommInfo,
  batches: readonly (Batch | undefined)[],
): TransferPosting[] {
  const halves = openHalves(comm, batches);
  if (halves.length === 0) return halves;
  for (const batch of batches) {
    if (batch === undefined) continue;
    batch.open = batch.open.filter(({ peer }) => comm.local.includes(peer));
  }
  return halves;
}

/** Takes every send that meets a receive out of the batches that stand first in their ranks' lines. */
export function takeMeetings(batches: readonly (Batch | undefined)[]): Meeting[] {
  const meetings: Meeting[] = [];
  for (const batch of batches) {
    if (batch === undefined) continue;
    for (const send of [...batch.open]) {
      if (send.direction !== "send") continue;
      const peer = batches[send.peer];
      const recv = peer?.open.find(
        (other) => other.direction === "recv" && other.peer === batch.rank,
      );
      if (peer === undefined || recv === undefined) continue;
      batch.open = batch.open.filter((other) => other !== send);
      peer.open = peer.open.filter((other) => other !== recv);
      meetings.push({ send, recv, sendBatch: batch, recvBatch: peer });
    }
  }
  return meetings;
}
