/**
 * All-reduces broken by hand: each must be rejected, by the pass that is there for this kind of mistake.
 *
 * All are right but for one step, so that nothing but the planted mistake can be found.
 */

import {
  catalogue,
  type Folds,
  input,
  type Lane,
  output,
  type ProgramBuilder,
  scratch,
} from "twinccl/algorithms";
import { describe, test } from "vitest";
import { type Broken, expectRejected } from "./broken.ts";

const ring = catalogue.allReduce.ring;

/** The ring of `ranks`, with the chance to change any rank's step, or to leave it out. */
function brokenRing(change: (lane: Lane, rank: number, step: number) => boolean) {
  return (program: ProgramBuilder): void => {
    const { ranks } = program;
    program.everyRank((lane, rank) => {
      const next = (rank + 1) % ranks;
      const previous = (rank + ranks - 1) % ranks;
      const chunk = (back: number): number => (rank + 2 * ranks - back) % ranks;
      let step = 0;
      const unchanged = (): boolean => !change(lane, rank, step++);
      if (unchanged()) lane.send(input(chunk(1)), next);
      for (let back = 2; back < ranks; back++) {
        if (unchanged()) lane.recvReduceSend(previous, input(chunk(back)), next);
      }
      if (unchanged()) {
        lane.recvReduceCopySend(previous, input(rank), output(rank), next, { final: true });
      }
      for (let back = 1; back < ranks - 1; back++) {
        if (unchanged()) lane.recvCopySend(previous, output(chunk(back)), next);
      }
      if (unchanged()) lane.recv(previous, output(chunk(ranks - 1)));
    });
  };
}

/** Rank 0 folds and sends back, in the order and with the steps that `fold` gives it. */
function star(fold: (root: Lane, ranks: number) => void) {
  return (program: ProgramBuilder): void => {
    const { ranks } = program;
    program.everyRank((lane, rank) => {
      if (rank > 0) return lane.send(input(0), 0).recv(0, output(0));
      fold(lane, ranks);
      for (let peer = 1; peer < ranks; peer++) lane.send(output(0), peer);
      return lane;
    });
  };
}

const ringReduce = { collective: "allReduce", ranks: 4, chunks: 4 } as const;
const reduce = { collective: "allReduce", ranks: 4 } as const;

const corpus: readonly Broken[] = [
  {
    ...ringReduce,
    mistake: "a send is missing",
    write: brokenRing((_, rank, step) => rank === 2 && step === 0),
    pass: "match",
    says: /never sent/,
  },
  {
    ...ringReduce,
    mistake: "a receive is missing",
    write: brokenRing((_, rank, step) => rank === 1 && step === 6),
    pass: "match",
    says: /never received/,
  },
  {
    ...ringReduce,
    mistake: "a receive too many",
    write: (program) => {
      ring.write(program);
      program.lane(3).recv(2, output(0));
    },
    pass: "match",
    says: /rank 3 .*never sent/,
  },
  {
    ...ringReduce,
    mistake: "a send too many",
    write: (program) => {
      ring.write(program);
      program.lane(0).send(output(0), 2);
    },
    pass: "match",
    says: /rank 0 \(take out\[0\], send to 2\): sends a message that is never received/,
  },
  {
    ...ringReduce,
    mistake: "a rank sends to the wrong peer",
    write: brokenRing((lane, rank, step) => {
      if (rank !== 0 || step !== 0) return false;
      lane.send(input(3), 2);
      return true;
    }),
    pass: "match",
    says: /never/,
  },
  {
    ...ringReduce,
    mistake: "a rank receives from the wrong peer",
    write: brokenRing((lane, rank, step) => {
      if (rank !== 0 || step !== 6) return false;
      lane.recv(1, output(1));
      return true;
    }),
    pass: "match",
    says: /rank 0 .*never sent/,
  },
  {
    ...reduce,
    mistake: "a message has another span than its receive",
    write: (program) => {
      program.everyRank((lane, rank) => {
        if (rank === 0) lane.recv(1, output(0), { span: 2 });
        if (rank === 1) lane.send(input(0), 0);
      });
    },
    pass: "match",
    says: /receives 1 chunks, expects 2/,
  },
  {
    ...ringReduce,
    mistake: "a step folds the wrong chunk",
    write: brokenRing((lane, rank, step) => {
      if (rank !== 1 || step !== 1) return false;
      lane.recvReduceSend(0, input(0), 2);
      return true;
    }),
    pass: "contribution",
    says: /folds chunk 3 with chunk 0/,
  },
  {
    ...ringReduce,
    mistake: "a result lands in the wrong chunk",
    write: brokenRing((lane, rank, step) => {
      if (rank !== 2 || step !== 6) return false;
      lane.recv(1, output(0));
      return true;
    }),
    pass: "contribution",
    says: /out\[0\] of rank 2 holds input chunk 3, needs 0/,
  },
  {
    ...reduce,
    mistake: "a contribution is counted twice",
    write: star((root, ranks) => {
      root.copy(input(0), output(0));
      for (let peer = 1; peer < ranks; peer++) root.recvReduceCopy(peer, output(0), output(0));
      root.reduce(output(0), input(0), output(0), { final: true });
    }),
    pass: "contribution",
    says: /counts the contribution of rank 0 twice/,
  },
  {
    ...reduce,
    mistake: "a contribution is missing",
    write: star((root, ranks) => {
      root.recv(1, output(0));
      for (let peer = 2; peer < ranks; peer++) {
        root.recvReduceCopy(peer, output(0), output(0), { final: peer === ranks - 1 });
      }
    }),
    pass: "contribution",
    says: /out\[0\] of rank 0 lacks the contribution of rank 0/,
  },
  {
    ...reduce,
    mistake: "the result is never completed",
    write: star((root, ranks) => {
      root.copy(input(0), output(0));
      for (let peer = 1; peer < ranks; peer++) root.recvReduceCopy(peer, output(0), output(0));
    }),
    pass: "contribution",
    says: /was never completed/,
  },
  {
    ...reduce,
    mistake: "a value is completed, then folded on",
    write: star((root, ranks) => {
      root.copy(input(0), output(0), { final: true });
      for (let peer = 1; peer < ranks; peer++) {
        root.recvReduceCopy(peer, output(0), output(0), { final: peer === ranks - 1 });
      }
    }),
    pass: "contribution",
    says: /already complete/,
  },
  {
    ...reduce,
    mistake: "a value is completed twice",
    write: star((root, ranks) => {
      root.copy(input(0), output(0));
      for (let peer = 1; peer < ranks; peer++) {
        root.recvReduceCopy(peer, output(0), output(0), { final: peer === ranks - 1 });
      }
      root.copy(output(0), output(0), { final: true });
    }),
    pass: "contribution",
    says: /complete/,
  },
  {
    ...reduce,
    mistake: "one rank folds in another order than the others",
    write: (program) => {
      const { ranks } = program;
      program.everyRank((lane, rank) => {
        for (let peer = 0; peer < ranks; peer++) if (peer !== rank) lane.send(input(0), peer);
        const order = rank === 3 ? [0, 2, 1, 3] : [0, 1, 2, 3];
        order.forEach((peer, at) => {
          const final = at === ranks - 1;
          if (at === 0 && peer !== rank) lane.recv(peer, output(0));
          else if (at === 0) lane.copy(input(0), output(0));
          else if (peer === rank) lane.reduce(output(0), input(0), output(0), { final });
          else lane.recvReduceCopy(peer, output(0), output(0), { final });
        });
      });
    },
    pass: "contribution",
    says: /rank \d was folded in another order than on another rank/,
  },
  {
    ...ringReduce,
    mistake: "an output chunk is never written",
    write: brokenRing((lane, rank, step) => {
      if (rank !== 1 || step !== 6) return false;
      lane.recv(0, scratch(0));
      return true;
    }),
    header: { scratchChunks: () => 1 },
    pass: "contribution",
    says: /out\[2\] of rank 1 was never written/,
  },
  {
    ...reduce,
    mistake: "an input is read after an output was written over it, in place",
    write: star((root, ranks) => {
      root.recv(1, output(0));
      for (let peer = 2; peer < ranks; peer++) root.recvReduceCopy(peer, output(0), output(0));
      root.reduce(output(0), input(0), output(0), { final: true });
    }),
    pass: "hazard",
    says: /overwritten/,
  },
  {
    ...ringReduce,
    mistake: "the header declares too few credits",
    write: (program) => ring.write(program),
    header: { credits: () => 0 },
    pass: "deadlock",
    says: /rank 0 waits for rank 1 .*rank 1 waits for rank 2 .*rank 3 waits for rank 0/,
  },
  {
    ...ringReduce,
    mistake: "the header declares more credits than are needed",
    write: (program) => ring.write(program),
    header: { credits: () => 2 },
    pass: "deadlock",
    says: /declares 2 credits, 1 are enough/,
  },
  {
    ...ringReduce,
    mistake: "the header lies about elements",
    write: (program) => ring.write(program),
    header: {
      cost: ({ ranks, count }) => ({ steps: 6, sentElements: (2 * 3 * count) / ranks + 1 }),
    },
    pass: "cost",
    says: /sentElements: the header says/,
  },
  {
    ...ringReduce,
    mistake: "the header lies about steps",
    write: (program) => ring.write(program),
    header: { cost: (shape) => ({ ...ring.cost(shape), steps: 5 }) },
    pass: "cost",
    says: /steps: the header says 5, the program takes 6/,
  },
  {
    ...ringReduce,
    mistake: "the header states another order than the program folds in",
    write: (program) => ring.write(program),
    header: { order: (folds, { ranks }) => acrossLoop(folds, ranks) },
    pass: "association",
    says: /out\[0\] of rank 0 was folded in another order than the header states: found into\(into\(into\(own\(1\), 2\), 3\), 0\), stated into\(into\(into\(own\(0\), 1\), 2\), 3\)/,
  },
  {
    ...ringReduce,
    mistake: "the header's order has a rank twice",
    write: (program) => ring.write(program),
    header: { order: (folds) => folds.into(folds.own(0), 0) },
    pass: "association",
    says: /the header's order counts the contribution of rank 0 twice/,
  },
];

/** The order of a loop over ranks. */
function acrossLoop<V>(folds: Folds<V>, ranks: number): V {
  let folded = folds.own(0);
  for (let rank = 1; rank < ranks; rank++) folded = folds.into(folded, rank);
  return folded;
}

describe("a broken reduction", () => {
  test.each(corpus)("is rejected by $pass: $mistake", (each) => expectRejected(each));
});
