/**
 * How the elements of a call are cut over its channels, when it is the only collective of its group.
 *
 * The range is cut at multiples of a *cell*, so that each channel carries at least the minimum traffic. Parts are
 * contiguous, in the order of the channels. A small call uses fewer channels than its budget, and rounding can make
 * it one more.
 */
import type { NcclCollective, NcclProtocol } from "./protocol.ts";
import type { VersionRules } from "./version.ts";

/** The elements of one channel. */
export interface Part {
  readonly channel: number;
  readonly offset: number;
  readonly length: number;
}

/** The call as far as its partition depends on it. */
export interface PartitionQuestion {
  readonly rules: VersionRules;
  readonly collective: NcclCollective;
  readonly protocol: NcclProtocol;
  readonly ranks: number;
  /** Elements as passed to the call; each block of a reduce-scatter or all-gather is cut alike. */
  readonly count: number;
  readonly elementBytes: number;
  /** Channels of the communicator, and how many of them the call may use. */
  readonly channels: number;
  readonly budget: number;
}

/** Bytes that cross the wires for each byte of the count; LL carries a flag beside every word and counts more. */
function trafficFactor(collective: NcclCollective, protocol: NcclProtocol, ranks: number): number {
  const blocks = collective === "allGather" || collective === "reduceScatter" ? ranks : 1;
  return (collective === "allReduce" ? 2 : blocks) * (protocol === "LL" ? 4 : 1);
}

/** Bytes of a cell. */
function cellBytes({ rules, collective, protocol, ranks }: PartitionQuestion): number {
  const factor = trafficFactor(collective, protocol, ranks);
  return 16 * Math.ceil(Math.ceil(rules.minimumTraffic / factor) / 16);
}

/** The parts of a call, none empty; an empty call has none. */
export function partition(question: PartitionQuestion): Part[] {
  const { rules, collective, protocol, ranks, count, elementBytes, channels, budget } = question;
  if (count === 0) return [];
  if (channels === 1) return [{ channel: 0, offset: 0, length: count }];
  const factor = trafficFactor(collective, protocol, ranks);
  const cell = cellBytes(question);
  const traffic = Math.max(rules.minimumTraffic, count * elementBytes * factor);
  const perChannel = Math.floor(traffic / Math.min(budget, channels));
  const cells = Math.ceil((count * elementBytes) / cell);
  const cellsPerPart = Math.max(1, Math.ceil(perChannel / (cell * factor)));
  // Rounding can ask for one channel more than there are: the last one then takes that cell too.
  const used = Math.min(channels, Math.ceil(cells / cellsPerPart));
  const length = (cellsPerPart * cell) / elementBytes;
  return Array.from({ length: used }, (_, channel) => {
    const offset = channel * length;
    return { channel, offset, length: channel === used - 1 ? count - offset : length };
  });
}
