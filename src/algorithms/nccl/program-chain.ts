/**
 * Tree on one node: up a chain of ranks to be folded, and down again.
 *
 * NCCL runs the two ways side by side, in two halves of a block of threads. Here one lane does both and interleaves
 * them at the distance that a piece needs to reach the root and come back, so that neither way waits for the other.
 */
import { input, output } from "../program.ts";
import type { RingChannel } from "./program-ring.ts";

/** One channel of a program: its chain, leaf first, and its pieces. */
export interface ChainChannel extends Omit<RingChannel, "ring"> {
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
