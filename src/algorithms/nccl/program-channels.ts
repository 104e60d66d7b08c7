/**
 * One channel of a program: Ring's five collectives, and Tree, as in NCCL's device code.
 *
 * Position p of the ring is p steps from rank 0 along `next`. All messages of a loop travel in the same direction.
 *
 * Tree on one node is a chain of ranks: pieces are folded up the chain, and results go down again. NCCL runs both
 * directions side by side, in two halves of a block of threads. Here one lane interleaves them. Their distance is the
 * number of steps that a piece needs to the root and back, so that neither direction waits for the other.
 */
import type { Lane, ProgramBuilder } from "../builder.ts";
import { input, output } from "../program.ts";
import { ringAt } from "./topology.ts";

/** One channel of a program: its ring and its pieces `first` to `end` of each block. */
export interface RingChannel {
  readonly program: ProgramBuilder;
  readonly ranks: number;
  /** Pieces of a block. */
  readonly perBlock: number;
  readonly channel: number;
  readonly first: number;
  readonly end: number;
  readonly ring: readonly number[];
}

/** A rank of the ring with its neighbours. */
interface RingRank {
  readonly lane: Lane;
  readonly rank: number;
  readonly position: number;
  readonly previous: number;
  readonly next: number;
}

/** Each loop has a chunk for every position; chunk p is folded up to position p and distributed from there. */
export function writeRingAllReduce(channel: RingChannel): void {
  const { ranks, first, end } = channel;
  forEachRank(channel, ({ lane, position, previous, next }) => {
    for (let loop = first; loop < end; loop += ranks) {
      const chunk = (back: number): number => loop + ((position + 2 * ranks - back) % ranks);
      lane.send(input(chunk(1)), next);
      for (let back = 2; back < ranks; back++) {
        lane.recvReduceSend(previous, input(chunk(back)), next);
      }
      lane.recvReduceCopySend(previous, input(chunk(0)), output(chunk(0)), next, { final: true });
      for (let back = 1; back < ranks - 1; back++) {
        lane.recvCopySend(previous, output(chunk(back)), next);
      }
      lane.recv(previous, output(chunk(ranks - 1)));
    }
  });
}

/** In each loop the blocks of all ranks go round once, and end at their ranks. */
export function writeRingReduceScatter(channel: RingChannel): void {
  const { ranks, perBlock, first, end, ring } = channel;
  forEachRank(channel, ({ lane, position, previous, next }) => {
    for (let piece = first; piece < end; piece++) {
      const block = (back: number): number =>
        input(ringAt(ring, position - back) * perBlock + piece);
      lane.send(block(1), next);
      for (let back = 2; back < ranks; back++) lane.recvReduceSend(previous, block(back), next);
      lane.recvReduceCopy(previous, block(ranks), output(piece), { final: true });
    }
  });
}

/** From the rank after the root round to the root. */
export function writeRingReduce(channel: RingChannel): void {
  const { ranks, first, end, ring, program } = channel;
  const root = ring.indexOf(program.root);
  forEachRank(channel, ({ lane, position, previous, next }) => {
    const place = (position - root + ranks) % ranks;
    for (let piece = first; piece < end; piece++) {
      if (place === 1) lane.send(input(piece), next);
      else if (place > 1) lane.recvReduceSend(previous, input(piece), next);
      else lane.recvReduceCopy(previous, input(piece), output(piece), { final: true });
    }
  });
}

/** In each loop every rank's block goes round once. */
export function writeRingAllGather(channel: RingChannel): void {
  const { ranks, perBlock, first, end, ring } = channel;
  forEachRank(channel, ({ lane, rank, position, previous, next }) => {
    for (let piece = first; piece < end; piece++) {
      const block = (back: number): number =>
        output(ringAt(ring, position - back) * perBlock + piece);
      // In place the copy has equal source and target, so the input is sent first.
      lane.send(input(piece), next).copy(input(piece), output(rank * perBlock + piece));
      for (let back = 1; back < ranks - 1; back++) lane.recvCopySend(previous, block(back), next);
      lane.recv(previous, block(ranks - 1));
    }
  });
}

/** From the root round to the rank before it. */
export function writeRingBroadcast(channel: RingChannel): void {
  const { ranks, first, end, ring, program } = channel;
  const root = ring.indexOf(program.root);
  forEachRank(channel, ({ lane, position, previous, next }) => {
    const place = (position - root + ranks) % ranks;
    for (let piece = first; piece < end; piece++) {
      if (place === 0) lane.send(input(piece), next).copy(input(piece), output(piece));
      else if (place < ranks - 1) lane.recvCopySend(previous, output(piece), next);
      else lane.recv(previous, output(piece));
    }
  });
}

function forEachRank(
  { program, ring, channel }: RingChannel,
  write: (rank: RingRank) => void,
): void {
  ring.forEach((rank, position) => {
    const lane = program.lane(rank, channel);
    const previous = ringAt(ring, position - 1);
    write({ lane, rank, position, previous, next: ringAt(ring, position + 1) });
  });
}

/** One channel of a program: its chain, leaf first, and its pieces. */
interface ChainChannel extends Omit<RingChannel, "ring"> {
  readonly chain: readonly number[];
}

/** All pieces of a channel up and down its chain. */
export function writeTree({ program, channel, first, end, chain }: ChainChannel): void {
  const root = chain.length - 1;
  chain.forEach((rank, place) => {
    const lane = program.lane(rank, channel);
    const child = chain[place - 1] ?? -1;
    const parent = chain[place + 1] ?? -1;
    const delay = 2 * (root - place);
    for (let piece = first; piece < end + delay; piece++) {
      if (piece < end) {
        if (place === 0) lane.send(input(piece), parent);
        else if (place < root) lane.recvReduceSend(child, input(piece), parent);
        else lane.recvReduceCopySend(child, input(piece), output(piece), child, { final: true });
      }
      const back = piece - delay;
      if (back < first || place === root) continue;
      if (place > 0) lane.recvCopySend(parent, output(back), child);
      else lane.recv(parent, output(back));
    }
  });
}
