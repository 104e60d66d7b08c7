/** Sends and receives of one rank that match their counterparts in any order: one call, or those of a group. */
import type { CommInfo } from "../backend.ts";
import { memoryOf } from "../buffer.ts";
import type { Memory } from "../memory.ts";
import type { Operation } from "../op.ts";
import { Fifo } from "./fifo.ts";
import type { TransferPosting } from "./posting.ts";

/** A send and the matching receive. */
export interface MatchedPair {
  readonly send: TransferPosting;
  readonly recv: TransferPosting;
  readonly sendBatch: MessageBatch;
  readonly recvBatch: MessageBatch;
}

type Direction = TransferPosting["direction"];

/** The messages that one rank posted together. */
export class MessageBatch {
  readonly rank: number;
  readonly transfers: readonly TransferPosting[];
  /** Transfers that are not matched, in the order posted. */
  readonly #open: Map<Operation, TransferPosting>;
  /** By direction and peer, in the order posted; a transfer that is no longer open is skipped. */
  readonly #queues = {
    send: new Map<number, Fifo<TransferPosting>>(),
    recv: new Map<number, Fifo<TransferPosting>>(),
  };
  #hostMemories: ReadonlySet<Memory> | undefined;

  constructor(rank: number, transfers: readonly TransferPosting[]) {
    this.rank = rank;
    this.transfers = transfers;
    this.#open = new Map(transfers.map((transfer) => [transfer.op, transfer]));
    for (const transfer of transfers) {
      const queues = this.#queues[transfer.direction];
      let queue = queues.get(transfer.peer);
      if (queue === undefined) {
        queue = new Fifo();
        queues.set(transfer.peer, queue);
      }
      queue.push(transfer);
    }
  }

  /** Transfers that are not matched. */
  get open(): readonly TransferPosting[] {
    return [...this.#open.values()];
  }

  /** True when none is open. */
  get isDone(): boolean {
    return this.#open.size === 0;
  }

  /** The caller's own host memory that it uses. */
  get hostMemories(): ReadonlySet<Memory> {
    this.#hostMemories ??= hostMemoriesOf(this.transfers);
    return this.#hostMemories;
  }

  /** The peers of its sends, or of its receives. */
  peers(direction: Direction): Iterable<number> {
    return this.#queues[direction].keys();
  }

  /** The oldest open send to a peer, or receive from it. */
  next(direction: Direction, peer: number): TransferPosting | undefined {
    const queue = this.#queues[direction].get(peer);
    while (queue?.first !== undefined && !this.#open.has(queue.first.op)) queue.shift();
    return queue?.first;
  }

  /** A transfer is no longer open: it was matched or cancelled. False where it was not open. */
  close(op: Operation): boolean {
    return this.#open.delete(op);
  }

  /** Closes those that have settled. */
  closeSettled(): void {
    for (const op of this.#open.keys()) if (!op.pending) this.#open.delete(op);
  }
}

const noMemories: ReadonlySet<Memory> = new Set();

function hostMemoriesOf(transfers: readonly TransferPosting[]): ReadonlySet<Memory> {
  let found: Set<Memory> | undefined;
  for (const { call } of transfers) {
    const buffer = call.send ?? call.recv;
    if (buffer === undefined || !memoryOf(buffer).borrowed) continue;
    found ??= new Set();
    found.add(memoryOf(buffer));
  }
  return found ?? noMemories;
}

/** The open sends and receives with their other end in another process: their pairs are unknown here. */
export function remoteEnds(
  { local, ranks }: CommInfo,
  batches: () => readonly MessageBatch[],
): TransferPosting[] {
  if (local.length === ranks.length) return [];
  return batches().flatMap(({ open }) => open.filter(({ peer }) => !local.includes(peer)));
}

/**
 * Takes every matching send and receive out of the batches at the heads of their ranks' queues, in the order of ranks
 * and sends. `arrived` are those that were not compared before: two of the others have nothing left that matches.
 */
export function takePairs(
  arrived: readonly MessageBatch[],
  batchOf: (rank: number) => MessageBatch | undefined,
): MatchedPair[] {
  const pairs: MatchedPair[] = [];
  for (const batch of arrived) {
    for (const peer of batch.peers("send")) takePairsBetween(batch, batchOf(peer), pairs);
    for (const peer of batch.peers("recv")) takePairsBetween(batchOf(peer), batch, pairs);
  }
  // Messages of a rank are numbered in the order posted.
  return pairs.sort(
    (a, b) => a.sendBatch.rank - b.sendBatch.rank || a.send.op.call - b.send.op.call,
  );
}

/** Takes the sends of one batch that match receives of the other. */
function takePairsBetween(
  sendBatch: MessageBatch | undefined,
  recvBatch: MessageBatch | undefined,
  pairs: MatchedPair[],
): void {
  if (sendBatch === undefined || recvBatch === undefined) return;
  for (;;) {
    const send = sendBatch.next("send", recvBatch.rank);
    const recv = recvBatch.next("recv", sendBatch.rank);
    if (send === undefined || recv === undefined) return;
    sendBatch.close(send.op);
    recvBatch.close(recv.op);
    pairs.push({ send, recv, sendBatch, recvBatch });
  }
}
