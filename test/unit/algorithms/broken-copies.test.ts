/** Broadcasts, exchanges and barriers broken by hand, each rejected by the pass that is there for its mistake. */

import { input, output } from "twinccl/algorithms";
import { describe, test } from "vitest";
import { type Broken, expectRejected } from "./broken.ts";

const broadcast = { collective: "broadcast", ranks: 3, root: 0 } as const;
const exchange = { collective: "allToAll", ranks: 2 } as const;
const meet = { collective: "barrier", ranks: 4 } as const;

const corpus: readonly Broken[] = [
  {
    ...broadcast,
    mistake: "something is read before it was written",
    write: (program) => {
      program.lane(0).copy(input(0), output(0)).send(output(0), 1);
      program.lane(1).send(output(0), 2).recv(0, output(0));
      program.lane(2).recv(1, output(0));
    },
    pass: "hazard",
    says: /rank 1 .*before it was written$/,
  },
  {
    ...broadcast,
    mistake: "a rank reads an input that it does not have",
    write: (program) => {
      program.lane(0).copy(input(0), output(0)).send(input(0), 1);
      program.lane(1).recv(0, output(0)).send(input(0), 2);
      program.lane(2).recv(1, output(0));
    },
    pass: "hazard",
    says: /rank 1 .*does not have/,
  },
  {
    ...broadcast,
    mistake:
      "the root sends its input once it has stored its output, which is the same memory in place",
    write: (program) => {
      program.lane(0).copy(input(0), output(0)).send(input(0), 1);
      program.lane(1).recv(0, output(0)).send(output(0), 2);
      program.lane(2).recv(1, output(0));
    },
    pass: "hazard",
    says: /rank 0 .*reads chunk 0 after it was overwritten: in place, an output is the same memory/,
  },
  {
    ...broadcast,
    mistake: "an input is written",
    write: (program) => {
      program.lane(0).copy(input(0), input(0)).copy(input(0), output(0)).send(input(0), 1);
      program.lane(1).recv(0, output(0)).send(output(0), 2);
      program.lane(2).recv(1, output(0));
    },
    pass: "hazard",
    says: /none of its outputs or scratch/,
  },
  {
    ...broadcast,
    mistake: "a copy is marked as complete",
    write: (program) => {
      program.lane(0).copy(input(0), output(0), { final: true }).send(output(0), 1);
      program.lane(1).recv(0, output(0)).send(output(0), 2);
      program.lane(2).recv(1, output(0));
    },
    pass: "contribution",
    says: /nothing was folded/,
  },
  {
    ...broadcast,
    mistake: "a broadcast folds",
    ranks: 2,
    write: (program) => {
      program.lane(0).copy(input(0), output(0)).send(input(0), 1).send(input(0), 1);
      program.lane(1).recv(0, output(0)).recvReduceCopy(0, output(0), output(0));
    },
    pass: "contribution",
    says: /twice/,
  },
  {
    ...exchange,
    mistake: "blocks of an all-to-all are swapped",
    write: (program) => {
      program.everyRank((lane, rank) => {
        const peer = 1 - rank;
        lane.copy(input(rank), output(peer)).send(input(peer), peer).recv(peer, output(rank));
      });
    },
    pass: "contribution",
    says: /too many|lacks|holds/,
  },
  {
    ...exchange,
    mistake: "a rank sends its own block instead of the peer's",
    write: (program) => {
      program.everyRank((lane, rank) => {
        const peer = 1 - rank;
        lane.copy(input(rank), output(rank)).send(input(rank), peer).recv(peer, output(peer));
      });
    },
    pass: "contribution",
    says: /holds input chunk/,
  },
  {
    ...meet,
    mistake: "a barrier lets a rank leave early",
    write: (program) => {
      const { ranks } = program;
      program.everyRank((lane, rank) => {
        lane.signal((rank + 1) % ranks).wait((rank + ranks - 1) % ranks);
      });
    },
    pass: "contribution",
    says: /rank 0 may leave before every rank has entered/,
  },
  {
    ...meet,
    mistake: "a barrier in which one rank waits for no other",
    write: (program) => {
      const { ranks } = program;
      for (let peer = 1; peer < ranks; peer++) program.lane(peer).signal(0);
      for (let peer = 1; peer < ranks - 1; peer++) {
        program.lane(0).wait(peer);
      }
      program.lane(0).wait(ranks - 1);
      for (let peer = 1; peer < ranks - 1; peer++) {
        program.lane(0).signal(peer);
        program.lane(peer).wait(0);
      }
    },
    pass: "contribution",
    says: /rank 3 may leave/,
  },
];

describe("a broken copy or barrier", () => {
  test.each(corpus)("is rejected by $pass: $mistake", (each) => expectRejected(each));
});
