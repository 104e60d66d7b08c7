/**
 * The facts of sends and receives in one group, as NCCL divides them among channels.
 *
 * Every rank meets its peers in rounds, and every round has a first channel of its own. A message takes as many channels from there
 * as all peers can have at once, and more where it is large: then it shares those of other rounds.
 */
import {
  type ChannelLoad,
  type ExchangeCall,
  type MessageCalls,
  type MessageKind,
  type MessageUse,
  packBytes,
} from "./call.ts";

/** Channels of sends and receives. */
const exchangeChannels = 32;

/** Bytes of a message up to which it goes over LL: 16 KiB for each channel. */
const mostLow = 16_384 * exchangeChannels;

/** Bytes for which a message gets a channel, by protocol: an eighth of a step. Over Simple, parts above `mostPart` get further ones. */
const firstPart = { LL: 8192, Simple: 65_536 } as const;
const mostPart = 16_777_216;

/** Parts end at multiples of this. */
const partGrain = 4096;

/** Most bytes of a chunk over Simple: a receiver copies one from its channel's buffer while the sender fills the next. */
export const mostChunk = 524_288;

/** Bytes from each rank to each rank; a row may be short. */
type Traffic = readonly (readonly number[])[];

/** A part of a message on its channel. */
interface Part {
  readonly bytes: number;
  readonly isLow: boolean;
  readonly isOwn: boolean;
  readonly isMutual: boolean;
  /** True where the address is a multiple of 16. */
  readonly isSendAligned: boolean;
  readonly isRecvAligned: boolean;
}

/** The parts that a rank sends and receives on one channel. */
interface ChannelParts {
  readonly sent: Part[];
  readonly received: Part[];
}

/**
 * The facts of messages in one group: row i of `traffic` holds the bytes that rank i sends to each rank. `undefined` for no
 * messages. Blocks lie one after another in their buffers; with `sameBlock` a rank sends one block to all.
 */
export function timedExchange(traffic: Traffic, sameBlock = false): ExchangeCall | undefined {
  const ranks = traffic.length;
  const bytesOf = (from: number, to: number): number => traffic[from]?.[to] ?? 0;
  const used: ChannelParts[] = [];
  const offsets = offsetsOf(ranks, bytesOf);
  const mutual = mutualRanks(ranks, bytesOf);
  const messages = new Array<number>(ranks).fill(0);
  let partBytes = 0;
  let hasSimple = false;
  shifts(ranks).forEach((shift, round) => {
    for (let from = 0; from < ranks; from++) {
      const to = (from + shift) % ranks;
      const bytes = bytesOf(from, to);
      if (bytes === 0) continue;
      messages[from] = (messages[from] as number) + 1;
      const parts = partsOf(bytes, ranks, from === to);
      const part: Part = {
        bytes: partBytesOf(bytes, parts),
        isLow: isLow(bytes, from === to),
        isOwn: from === to,
        isMutual: mutual.has(from) && mutual.has(to),
        isSendAligned: sameBlock || (offsets.send[from]?.[to] as number) % packBytes === 0,
        isRecvAligned: (offsets.recv[from]?.[to] as number) % packBytes === 0,
      };
      partBytes = Math.max(partBytes, part.bytes);
      if (!part.isLow && !part.isOwn) hasSimple = true;
      for (let i = 0; i < parts; i++) {
        const channel = (firstChannel(round) + i) % exchangeChannels;
        partsOn(used, from, channel).sent.push(part);
        if (!part.isOwn) partsOn(used, to, channel).received.push(part);
      }
    }
  });
  const allMessages = messages.reduce((sum, each) => sum + each, 0);
  if (allMessages === 0) return undefined;
  const sending = new Array<number>(ranks).fill(0);
  const loads: ChannelLoad[] = [];
  used.forEach(({ sent, received }, at) => {
    const rank = Math.floor(at / exchangeChannels);
    if (sent.length > 0) sending[rank] = (sending[rank] as number) + 1;
    loads.push(loadOf(sent, received));
  });
  return {
    ...{ kind: "exchange", ranks, messages: Math.max(...messages), allMessages, partBytes },
    ...{ hasSimple, isMutual: mutual.size > 0, channels: Math.max(...sending) },
    loads: largestLoads(loads),
    ...portsOf(ranks, bytesOf),
  };
}

/** The facts of one message by its use among others, on a communicator of `ranks`; `undefined` for no bytes. */
export function timedMessage(
  bytes: number,
  ranks: number,
  { kind, isCrossing }: MessageUse,
): MessageCalls | undefined {
  if (bytes === 0) return undefined;
  const isOwn = kind === "own";
  const channels = partsOf(bytes, ranks, isOwn);
  const partBytes = partBytesOf(bytes, channels);
  const low = isLow(bytes, isOwn);
  const callOf = (isMutual: boolean): ExchangeCall => {
    const aligned = { isSendAligned: true, isRecvAligned: true };
    const part = { bytes: partBytes, isLow: low, isOwn, isMutual, ...aligned };
    const load = loadOf([part], kind === "both ways" ? [part] : []);
    return {
      ...{ kind: "exchange", ranks, messages: 1, allMessages: 1, partBytes, channels },
      ...{ hasSimple: !low && !isOwn, isMutual, loads: [load] },
      ...{ portBytes: isCrossing ? bytes : 0, linkBytes: isOwn ? 0 : bytes, fedBytes: 0 },
    };
  };
  return { sent: callOf(false), received: callOf(!isOwn) };
}

/** The ranks that wait for each other: those left when ranks without a sender, or without a receiver, are taken away in turn. */
function mutualRanks(
  ranks: number,
  bytesOf: (from: number, to: number) => number,
): ReadonlySet<number> {
  const left = new Set(Array.from({ length: ranks }, (_, rank) => rank));
  let before: number;
  do {
    before = left.size;
    for (const rank of left) {
      const others = [...left].filter((other) => other !== rank);
      const isSending = others.some((other) => bytesOf(rank, other) > 0);
      const isReceiving = others.some((other) => bytesOf(other, rank) > 0);
      if (!(isSending && isReceiving)) left.delete(rank);
    }
  } while (left.size < before);
  return left;
}

/** The parts on a channel of a rank, in a sparse list of those in use by rank and channel. */
function partsOn(used: ChannelParts[], rank: number, channel: number): ChannelParts {
  const at = rank * exchangeChannels + channel;
  used[at] ??= { sent: [], received: [] };
  return used[at];
}

/** Distances to the peers of the rounds: those of NCCL's schedule, which go round a power of two. */
function shifts(ranks: number): readonly number[] {
  const around = 2 ** Math.ceil(Math.log2(ranks));
  const found: number[] = [];
  for (let step = 0, shift = 0; step < around; step++, shift = (shift + step) % around) {
    if (shift < ranks) found.push(shift);
  }
  return found;
}

/** The first channel of a round: its bits in reverse, so that the first rounds are far apart. */
function firstChannel(round: number): number {
  let channel = 0;
  for (let bit = 1; bit < exchangeChannels; bit *= 2) {
    if ((round & bit) !== 0) channel += exchangeChannels / 2 / bit;
  }
  return channel;
}

/** True where a message goes over LL; one from a rank to itself is a copy. */
function isLow(bytes: number, isOwn: boolean): boolean {
  return !isOwn && bytes <= mostLow;
}

/** Channels that carry a message: fewer for a small one, and more for a large one, which then shares them. */
function partsOf(bytes: number, ranks: number, isOwn: boolean): number {
  const shared = Math.max(1, exchangeChannels / 2 ** Math.ceil(Math.log2(ranks)));
  const least = firstPart[isLow(bytes, isOwn) ? "LL" : "Simple"];
  let parts = Math.min(shared, Math.ceil(bytes / least));
  while (bytes / parts > mostPart && parts < exchangeChannels) parts *= 2;
  return parts;
}

/** Bytes of the parts of a message but the last: multiples of `partGrain`. */
function partBytesOf(bytes: number, parts: number): number {
  return Math.min(bytes, Math.ceil(bytes / parts / partGrain) * partGrain);
}

/** Offsets of the blocks in the senders' and the receivers' buffers, by sender and receiver. */
function offsetsOf(
  ranks: number,
  bytesOf: (from: number, to: number) => number,
): { readonly send: readonly number[][]; readonly recv: readonly number[][] } {
  const every = Array.from({ length: ranks }, (_, rank) => rank);
  const arrived = new Array<number>(ranks).fill(0);
  const send = every.map((from) => {
    let sent = 0;
    return every.map((to) => {
      sent += bytesOf(from, to);
      return sent - bytesOf(from, to);
    });
  });
  const recv = every.map((from) =>
    every.map((to) => {
      const at = arrived[to] as number;
      arrived[to] = at + bytesOf(from, to);
      return at;
    }),
  );
  return { send, recv };
}

/** The load of a channel on one rank. */
function loadOf(sent: readonly Part[], received: readonly Part[]): ChannelLoad {
  const kind = kindOf(sent, received);
  const leaving = directionOf(sent, (part) => part.isSendAligned);
  const arriving = directionOf(received, (part) => part.isRecvAligned);
  const direct = directionOf(sent, isAlignedAtBoth);
  const chunks = kind === "both ways" ? Math.min : Math.max;
  const packedBytes = leaving.packedBytes + arriving.packedBytes;
  const singleBytes = leaving.singleBytes + arriving.singleBytes;
  // Several parts of one direction divide its threads: packs of one are as slow as the single bytes of another.
  const isShared = sent.length > 1 || received.length > 1;
  const isSingle = isShared && singleBytes > 0;
  return {
    kind,
    lowBytes: leaving.lowBytes + arriving.lowBytes,
    packedBytes: isSingle ? 0 : packedBytes,
    singleBytes: isSingle ? singleBytes + packedBytes : singleBytes,
    sentPackedBytes: direct.packedBytes,
    sentSingleBytes: direct.singleBytes,
    chunkBytes: chunks(leaving.chunkBytes, arriving.chunkBytes),
    singleChunkBytes: chunks(leaving.singleChunkBytes, arriving.singleChunkBytes),
  };
}

/** The bytes of one direction. `isAligned` is true for messages that move in packs; a rank's copy of its own block needs both ends aligned. */
function directionOf(
  parts: readonly Part[],
  isAligned: (part: Part) => boolean,
): Omit<ChannelLoad, "kind" | "sentPackedBytes" | "sentSingleBytes"> {
  let [lowBytes, packedBytes, singleBytes, chunkBytes, singleChunkBytes] = [0, 0, 0, 0, 0];
  for (const part of parts) {
    const { bytes, isOwn, isMutual, isSendAligned, isRecvAligned } = part;
    if (part.isLow) {
      lowBytes += bytes;
      continue;
    }
    if (isOwn ? isAlignedAtBoth(part) : isAligned(part)) packedBytes += bytes;
    else singleBytes += bytes;
    if (isOwn || !isMutual) continue;
    const chunk = Math.min(bytes, mostChunk);
    chunkBytes = Math.max(chunkBytes, chunk);
    if (!isSendAligned && !isRecvAligned) singleChunkBytes = Math.max(singleChunkBytes, chunk);
  }
  return { lowBytes, packedBytes, singleBytes, chunkBytes, singleChunkBytes };
}

function isAlignedAtBoth({ isSendAligned, isRecvAligned }: Part): boolean {
  return isSendAligned && isRecvAligned;
}

/** The use of a channel by a rank. */
function kindOf(sent: readonly Part[], received: readonly Part[]): MessageKind {
  const isSending = sent.some(({ isOwn }) => !isOwn);
  const isReceiving = received.length > 0;
  if (isSending && isReceiving) return "both ways";
  return isSending || isReceiving ? "one way" : "own";
}

/** The loads that no other one exceeds in everything. */
function largestLoads(loads: readonly ChannelLoad[]): readonly ChannelLoad[] {
  const found: ChannelLoad[] = [];
  for (const load of loads) {
    if (found.some((other) => covers(other, load))) continue;
    const kept = found.filter((other) => !covers(load, other));
    found.splice(0, found.length, ...kept, load);
  }
  return found;
}

/** True where `a` takes no less time than `b`, in memory of any kind: copies of own blocks are the quickest. */
function covers(a: ChannelLoad, b: ChannelLoad): boolean {
  return (
    (a.kind === b.kind || b.kind === "own") &&
    a.lowBytes >= b.lowBytes &&
    a.packedBytes >= b.packedBytes &&
    a.singleBytes >= b.singleBytes &&
    a.sentPackedBytes >= b.sentPackedBytes &&
    a.sentSingleBytes >= b.sentSingleBytes &&
    a.chunkBytes >= b.chunkBytes &&
    a.singleChunkBytes >= b.singleChunkBytes
  );
}

/** Bytes of the busiest ports: those with crossing messages, those that only receive from several ranks, and the others. */
function portsOf(
  ranks: number,
  bytesOf: (from: number, to: number) => number,
): Pick<ExchangeCall, "portBytes" | "linkBytes" | "fedBytes"> {
  const every = Array.from({ length: ranks }, (_, rank) => rank);
  const receivers = every.map((from) => every.filter((to) => to !== from && bytesOf(from, to) > 0));
  const senders = every.map((to) => every.filter((from) => receivers[from]?.includes(to)));
  const count = (list: readonly number[] | undefined): number => list?.length ?? 0;
  let [portBytes, linkBytes, fedBytes] = [0, 0, 0];
  for (const rank of every) {
    const to = receivers[rank] as number[];
    const from = senders[rank] as number[];
    const leaving = to.reduce((sum, peer) => sum + bytesOf(rank, peer), 0);
    const arriving = from.reduce((sum, peer) => sum + bytesOf(peer, rank), 0);
    const isOutCrossing = to.length > 1 && to.some((peer) => count(senders[peer]) > 1);
    const isInCrossing = from.length > 1 && from.some((peer) => count(receivers[peer]) > 1);
    if (isOutCrossing) portBytes = Math.max(portBytes, leaving);
    if (isInCrossing) portBytes = Math.max(portBytes, arriving);
    const isFed = to.length === 0 && from.length > 1;
    if (isFed) fedBytes = Math.max(fedBytes, arriving);
    linkBytes = Math.max(linkBytes, leaving, isFed ? 0 : arriving);
  }
  return { portBytes, linkBytes, fedBytes };
}
