/** The measured v-forms: blocks of different lengths, skewed by the benchmark's spread. */
import { largest } from "../../api/largest.ts";
import { heaviestRank, skewedCounts, skewedTraffic, transposed } from "../traffic.ts";
import { type MeasuredCollective, othersShare, type Skew, sum } from "./row.ts";

const before = (counts: readonly number[], rank: number): number => sum(counts.slice(0, rank));

function unevenShape(
  elements: number,
  ranks: number,
  { spread, seed }: Skew,
): { count: number; sizeElements: number; counts: readonly number[] } {
  const counts = skewedCounts(elements, ranks, spread, seed);
  return { count: largest(counts), sizeElements: sum(counts), counts };
}

export const allGatherv: MeasuredCollective = {
  collective: "allGatherv",
  reduces: false,
  rooted: false,
  moves: true,
  busFactor: othersShare,
  shape: unevenShape,
  sendLength: ({ counts = [] }, rank) => counts[rank] ?? 0,
  arrives: ({ counts = [] }) =>
    counts.map((length, from) => ({ at: before(counts, from), length, from, index: 0 })),
  inPlace: ({ counts = [] }, rank) => ({ sendAt: before(counts, rank), recvAt: 0 }),
  call: (comm, { send, recv, shape: { counts = [] } }) =>
    comm.allGatherv({ send, recv, recvCounts: counts }),
};

export const reduceScatterv: MeasuredCollective = {
  collective: "reduceScatterv",
  reduces: true,
  rooted: false,
  moves: true,
  busFactor: othersShare,
  shape: unevenShape,
  sendLength: ({ counts = [] }) => sum(counts),
  arrives: ({ counts = [] }, rank) => [
    { at: 0, length: counts[rank] ?? 0, from: "fold", index: before(counts, rank) },
  ],
  inPlace: ({ counts = [] }, rank) => ({ sendAt: 0, recvAt: before(counts, rank) }),
  call: (comm, { send, recv, op, shape: { counts = [] } }) =>
    comm.reduceScatterv({ send, recv, op, sendCounts: counts }),
};

/** The size is what the heaviest rank sends or receives, its own block included. */
export const allToAllv: MeasuredCollective = {
  collective: "allToAllv",
  reduces: false,
  rooted: false,
  moves: true,
  busFactor: othersShare,
  shape: (elements, ranks, { spread, seed }) => {
    const traffic = skewedTraffic(elements, ranks, spread, seed);
    const heaviest = heaviestRank(traffic);
    return { count: heaviest, sizeElements: heaviest, traffic };
  },
  sendLength: ({ traffic = [] }, rank) => sum(traffic[rank] ?? []),
  arrives: ({ traffic = [] }, rank) => {
    const lengths = transposed(traffic)[rank] ?? [];
    return lengths.map((length, from) => ({
      at: before(lengths, from),
      length,
      from,
      index: before(traffic[from] ?? [], rank),
    }));
  },
  call: (comm, { send, recv, shape: { traffic = [] } }) =>
    comm.allToAllv({
      send,
      recv,
      sendCounts: traffic[comm.rank] ?? [],
      recvCounts: transposed(traffic)[comm.rank] ?? [],
    }),
};
