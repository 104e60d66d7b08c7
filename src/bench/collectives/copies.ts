/** The measured collectives that copy blocks of one length, and the barrier, which copies nothing. */
import {
  blockShape,
  type MeasuredCollective,
  othersShare,
  ranksUpTo,
  sameRange,
  wholeShape,
} from "./row.ts";

const copies = { reduces: false, rooted: false, moves: true } as const;

export const broadcast: MeasuredCollective = {
  ...copies,
  collective: "broadcast",
  rooted: true,
  busFactor: () => 1,
  shape: wholeShape,
  sendLength: ({ count, root }, rank) => (rank === root ? count : 0),
  arrives: ({ count, root }) => [{ at: 0, length: count, from: root, index: 0 }],
  inPlace: sameRange,
  call: (comm, { send, recv, shape: { root } }) =>
    comm.broadcast(comm.rank === root ? { send, recv, root } : { recv, root }),
};

export const allGather: MeasuredCollective = {
  ...copies,
  collective: "allGather",
  busFactor: othersShare,
  shape: blockShape,
  sendLength: ({ count }) => count,
  arrives: ({ count, ranks }) =>
    ranksUpTo(ranks).map((from) => ({ at: from * count, length: count, from, index: 0 })),
  inPlace: ({ count }, rank) => ({ sendAt: rank * count, recvAt: 0 }),
  call: (comm, { send, recv }) => comm.allGather({ send, recv }),
};

export const allToAll: MeasuredCollective = {
  ...copies,
  collective: "allToAll",
  busFactor: othersShare,
  shape: blockShape,
  sendLength: ({ count, ranks }) => count * ranks,
  arrives: ({ count, ranks }, rank) =>
    ranksUpTo(ranks).map((from) => ({
      at: from * count,
      length: count,
      from,
      index: rank * count,
    })),
  call: (comm, { send, recv }) => comm.allToAll({ send, recv }),
};

export const gather: MeasuredCollective = {
  ...copies,
  collective: "gather",
  rooted: true,
  busFactor: othersShare,
  shape: blockShape,
  sendLength: ({ count }) => count,
  arrives: ({ count, ranks, root }, rank) =>
    rank === root
      ? ranksUpTo(ranks).map((from) => ({ at: from * count, length: count, from, index: 0 }))
      : [],
  inPlace: ({ count, root }, rank) => ({ sendAt: rank === root ? rank * count : 0, recvAt: 0 }),
  call: (comm, { send, recv, shape: { root } }) =>
    comm.gather(comm.rank === root ? { send, recv, root } : { send, root }),
};

export const scatter: MeasuredCollective = {
  ...copies,
  collective: "scatter",
  rooted: true,
  busFactor: othersShare,
  shape: blockShape,
  sendLength: ({ count, ranks, root }, rank) => (rank === root ? count * ranks : 0),
  arrives: ({ count, root }, rank) => [{ at: 0, length: count, from: root, index: rank * count }],
  inPlace: ({ count, root }, rank) => ({ sendAt: 0, recvAt: rank === root ? rank * count : 0 }),
  call: (comm, { send, recv, shape: { root } }) =>
    comm.scatter(comm.rank === root ? { send, recv, root } : { recv, root }),
};

/** As nccl-tests' sendrecv: every rank sends to the next one. */
export const sendRecv: MeasuredCollective = {
  ...copies,
  collective: "sendRecv",
  busFactor: () => 1,
  shape: wholeShape,
  sendLength: ({ count }) => count,
  arrives: ({ count, ranks }, rank) => [
    { at: 0, length: count, from: (rank + ranks - 1) % ranks, index: 0 },
  ],
  call: (comm, { send, recv, shape: { ranks } }) =>
    comm.sendRecv({
      send,
      recv,
      to: (comm.rank + 1) % ranks,
      from: (comm.rank + ranks - 1) % ranks,
    }),
};

export const barrier: MeasuredCollective = {
  ...copies,
  collective: "barrier",
  moves: false,
  busFactor: () => 0,
  shape: () => wholeShape(0),
  sendLength: () => 0,
  arrives: () => [],
  call: (comm) => comm.barrier(),
};
