/** Sends and receives of one rank that may meet their counterparts in any order: one call, or those of a group. */
import type { TransferPosting } from "./posting.ts";

/** A send and the receive it meets. */
export interface Meeting {
  readonly send: TransferPosting;
  readonly recv: TransferPosting;
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
      meetings.push({ send, recv });
    }
  }
  return meetings;
}
