/** The measured collectives that fold: all-reduce, reduce, reduce-scatter. */
import { blockShape, type MeasuredCollective, othersShare, sameRange, wholeShape } from "./row.ts";

export const allReduce: MeasuredCollective = {
  collective: "allReduce",
  reduces: true,
  rooted: false,
  moves: true,
  busFactor: (ranks) => 2 * othersShare(ranks),
  shape: wholeShape,
  sendLength: ({ count }) => count,
  arrives: ({ count }) => [{ at: 0, length: count, from: "fold", index: 0 }],
  inPlace: sameRange,
  call: (comm, { send, recv, op }) => comm.allReduce({ send, recv, op }),
};

export const reduce: MeasuredCollective = {
  collective: "reduce",
  reduces: true,
  rooted: true,
  moves: true,
  busFactor: () => 1,
  shape: wholeShape,
  sendLength: ({ count }) => count,
  arrives: ({ count, root }, rank) =>
    rank === root ? [{ at: 0, length: count, from: "fold", index: 0 }] : [],
  inPlace: sameRange,
  call: (comm, { send, recv, op, shape: { root } }) =>
    comm.reduce(comm.rank === root ? { send, recv, op, root } : { send, op, root }),
};

export const reduceScatter: MeasuredCollective = {
  collective: "reduceScatter",
  reduces: true,
  rooted: false,
  moves: true,
  busFactor: othersShare,
  shape: blockShape,
  sendLength: ({ count, ranks }) => count * ranks,
  arrives: ({ count }, rank) => [{ at: 0, length: count, from: "fold", index: rank * count }],
  inPlace: ({ count }, rank) => ({ sendAt: 0, recvAt: rank * count }),
  call: (comm, { send, recv, op }) => comm.reduceScatter({ send, recv, op }),
};
