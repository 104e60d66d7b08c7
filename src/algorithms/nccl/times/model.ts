/**
 * The time of one call of NCCL, as formulas over the facts of its plan; docs/design/nccl-times.md explains every term.
 *
 * A time is that of a call in a stream of equal ones, back to back: a throughput. An awaited call takes longer by a term of
 * its own. All numbers come from the profile of a machine.
 */
import type { InvalidArgumentError } from "../../../api/errors.ts";
import { invalid, textOf } from "../../../api/option-kinds.ts";
import {
  type ChannelCall,
  type ExchangeCall,
  fewestThreads,
  type MessageCalls,
  mostThreads,
  type SymmetricCall,
  type TimedCall,
} from "./call.ts";
import { mostChunk } from "./exchange.ts";
import type { LowRingNumbers, ModelNumbers } from "./numbers.ts";

/** Memory of both buffers. NCCL registers memory of its own allocator in recordings, and ordinary memory never. */
export type CallMemory = "ordinary" | "registered" | "symmetric";

/** The way in which calls are made. */
export interface CallMode {
  /** Call by call, or replayed from a recording. */
  readonly launch: "eager" | "graph";
  readonly memory: CallMemory;
  /** One process for each rank, or one for all of them. */
  readonly processes: "each" | "one";
  /** True if a program awaits each call before the next one. */
  readonly awaited: boolean;
  /** `native` for awaited calls of a loop in C++, without twinccl's own part. */
  readonly program?: "native" | undefined;
}

/** The asked fields of a way of calling. */
export type AskedMode = { readonly [Field in keyof CallMode]?: CallMode[Field] | undefined };

/** The values of a way of calling, by field. */
export const modeValues = {
  launch: ["eager", "graph"],
  memory: ["ordinary", "registered", "symmetric"],
  processes: ["each", "one"],
  awaited: [true, false],
} as const;

/**
 * A way of calling, with the fields of `usual` in place of those that it leaves out.
 *
 * @throws InvalidArgumentError with the field of an unknown value.
 */
export function modeOf(usual: AskedMode, asked: AskedMode | null | undefined): CallMode {
  const launch = asked?.launch ?? usual.launch;
  const memory = asked?.memory ?? usual.memory;
  const processes = asked?.processes ?? usual.processes;
  const awaited = asked?.awaited ?? usual.awaited;
  const program = asked?.program ?? usual.program;
  if (!isValue("launch", launch)) throw modeFault("launch", launch);
  if (!isValue("memory", memory)) throw modeFault("memory", memory);
  if (!isValue("processes", processes)) throw modeFault("processes", processes);
  if (!isValue("awaited", awaited)) throw modeFault("awaited", awaited);
  if (program !== undefined && program !== "native") {
    throw invalid("time of a call", "mode.program", textOf(program), "native, or none");
  }
  return { launch, memory, processes, awaited, program };
}

function isValue<Field extends keyof typeof modeValues>(
  field: Field,
  value: unknown,
): value is (typeof modeValues)[Field][number] {
  return (modeValues[field] as readonly unknown[]).includes(value);
}

function modeFault(field: keyof typeof modeValues, found: unknown): InvalidArgumentError {
  const value = found === undefined ? "nothing" : textOf(found);
  return invalid(
    "time of a call",
    `mode.${field}`,
    value,
    `one of ${modeValues[field].join(", ")}`,
  );
}

/**
 * The way as it takes effect: NCCL registers memory of its allocator in recordings only, so that it is ordinary memory for other
 * calls.
 */
function effectiveMode(mode: CallMode): CallMode {
  const { launch, memory } = mode;
  return launch === "eager" && memory === "registered" ? { ...mode, memory: "ordinary" } : mode;
}

/** The way of calling in words. */
export function modeText(mode: CallMode): string {
  const { launch, memory, processes, awaited } = effectiveMode(mode);
  const words = [
    launch === "graph" ? "recorded" : "call by call",
    `${memory} memory`,
    ...(processes === "one" ? ["one process"] : []),
    ...(awaited ? ["awaited"] : []),
  ];
  return words.join(", ");
}

/** Microseconds of a call, with the part of the processes that make it. */
export function callUs(numbers: ModelNumbers, call: TimedCall, mode: CallMode): number {
  const { launch, memory, processes, awaited } = effectiveMode(mode);
  const device = deviceUs(numbers, call, memory);
  if (awaited) return device + awaitUs(numbers, call, mode);
  if (launch === "graph" && processes === "each") return device;
  return longer(device, hostUs(numbers, call, mode));
}

/**
 * The longer one of two times that overlap, and a little more where they are about equal: either one is late at times. The lower the
 * power, the less they overlap; 1 is the sum.
 */
function longer(a: number, b: number, power = 6): number {
  return (a ** power + b ** power) ** (1 / power);
}

/** Microseconds in which a process makes one call on all its ranks. */
function hostUs({ host }: ModelNumbers, call: TimedCall, { launch, processes }: CallMode): number {
  if (launch === "graph") return host.sharedGraphUs * call.ranks;
  const shared = processes === "one";
  const messages = call.kind !== "exchange" ? 0 : shared ? call.allMessages : call.messages;
  const calls = shared ? host.sharedUs * call.ranks : host.callUs + host.rankUs * call.ranks;
  return calls + host.messageUs * messages;
}

/** Microseconds from a call to its awaited end in which no device works on it. */
function awaitUs(
  { awaited }: ModelNumbers,
  { ranks }: TimedCall,
  { launch, processes, program }: CallMode,
): number {
  const eager = launch === "eager";
  const own = program === "native" ? 0 : awaited.programUs;
  if (processes === "each") {
    return own + (eager ? awaited.eagerUs : awaited.graphUs) + awaited.rankUs * ranks;
  }
  return own * ranks + (eager ? awaited.sharedEagerUs : awaited.sharedGraphUs) * ranks ** 1.2;
}

/** Microseconds that the devices take for a call. */
function deviceUs(numbers: ModelNumbers, call: TimedCall, memory: CallMemory): number {
  switch (call.kind) {
    case "ring":
      return operatorUs(numbers, call) + ringUs(numbers, call, memory);
    case "tree":
      return operatorUs(numbers, call) + treeUs(numbers, call, memory);
    case "chain":
      return operatorUs(numbers, call) + chainUs(numbers, call, memory);
    case "exchange":
      return exchangeUs(numbers, call, memory);
    case "symmetric":
      return symmetricUs(numbers, call);
  }
}

/** Nanoseconds in a microsecond, picoseconds in a nanosecond: bytes by 10⁹ bytes a second are nanoseconds. */
const thousand = 1000;

/** Microseconds more of an operator for which no kernel is compiled. */
function operatorUs({ operator }: ModelNumbers, { isSum, protocol, threads }: ChannelCall): number {
  if (isSum) return 0;
  const { startUs, threadNs } = operator;
  return protocol === "LL" ? startUs + (threadNs * threads) / thousand : startUs;
}

/** Bytes of data in a line of LL, which one thread moves. */
const lineBytes = 8;

/** Bytes that all threads of a full block move at once over LL. */
const fullPass = lineBytes * mostThreads;

/** Slices of a chunk over Simple, and the least bytes of the first. */
const slices = 2;
const leastSlice = 32_768;

/** The power of `longer` for the wait and the bytes of a step over LL128, whose lines arrive one by one. */
const lineOverlap = 1.5;

/** Microseconds of a Ring's step: the wait for the rank before, and the bytes that move meanwhile. */
function stepUs({ ring }: ModelNumbers, call: ChannelCall, bytes: number): number {
  const { protocol } = call;
  if (protocol === "LL") return lowStepUs(ring.LL, call, bytes);
  const { hopUs, hopRate, chunkUs } = ring[protocol];
  const movedUs = bytes / hopRate / thousand;
  if (protocol === "LL128") return longer(hopUs, movedUs, lineOverlap);
  if (bytes <= leastSlice) return hopUs + movedUs;
  // A rank moves its last slice while the first one travels.
  const firstUs = Math.max(movedUs / slices, leastSlice / hopRate / thousand);
  return Math.max(hopUs + firstUs, slices * chunkUs + movedUs);
}

/** Channels of a Ring: at its rate they carry all that a link does. */
const linkChannels = 24;

/** Microseconds of a step over LL: all threads move a line each, pass after pass, unless the channels together fill the link. */
function lowStepUs(
  { hopUs, hopRate, firstRate, passUs }: LowRingNumbers,
  { channels, threads }: ChannelCall,
  bytes: number,
): number {
  const pass = lineBytes * threads;
  const first = Math.min(bytes, pass);
  const firstUs = hopUs + first / firstRate / thousand;
  if (first === bytes) return firstUs;
  const linkUs = ((bytes - first) * channels) / linkChannels / hopRate / thousand;
  return firstUs + longer(passUs * (Math.ceil(bytes / pass) - 1), linkUs);
}

function ringUs(numbers: ModelNumbers, call: ChannelCall, memory: CallMemory): number {
  const { ring, registered } = numbers;
  const { collective, protocol, ranks, channels, partBytes, chunks, threads } = call;
  const { startUs, channelUs, chunkUs, ownRate } = ring[protocol];
  const isAllReduce = collective === "allReduce";
  const hops = isAllReduce ? 2 * ranks - 2 : ranks - 1;
  const bytes = isAllReduce ? partBytes / ranks : partBytes;
  const further = isAllReduce ? chunks - 1 : (ranks - 1) / 2;
  const isDirect = memory === "registered" && collective === "allGather" && protocol === "Simple";
  const own = bytes / (isDirect ? registered.ownRate : ownRate);
  // Chunks of a small block cost nothing over Simple: on 4 H200 8 bytes and 4 KiB take 29 and 30 µs, and 11 KiB take 33.
  const counted = protocol === "Simple" && threads === fewestThreads ? 0 : further;
  const fixed = startUs + channelUs * (channels - 1) + chunkUs * counted;
  const singleUs = call.singleBlocks * singleBlockUs(numbers, call, bytes);
  return fixed + hops * stepUs(numbers, call, bytes) + own / thousand + singleUs;
}

/** Microseconds that a block of a Ring takes longer whose elements move one by one. */
function singleBlockUs(
  { ring, elementRate }: ModelNumbers,
  { collective, protocol, elementBytes, chunkBytes }: ChannelCall,
  bytes: number,
): number {
  if (protocol !== "Simple") return bytes / (elementRate * elementBytes) / thousand;
  const { hopUs, singleRate } = ring.Simple;
  // Slices of packs hide the wait of a step behind bytes.
  const waited = collective === "allGather" && bytes <= chunkBytes ? hopUs : 0;
  return waited + bytes / (singleRate * elementBytes) / thousand;
}

function treeUs(numbers: ModelNumbers, call: ChannelCall, memory: CallMemory): number {
  const { ring, tree } = numbers;
  const { protocol, ranks, channels, partBytes, chunkBytes } = call;
  const { hopUs } = tree[protocol];
  const { startUs } = protocol === "LL" ? tree.LL : ring[protocol];
  // A rank between two others sends everything twice, up and down; over LL128 its threads are slower than its port.
  const rate = protocol === "LL128" ? tree.LL128.rate : ring[protocol].hopRate / 2;
  const further = Math.max(0, partBytes - chunkBytes);
  // Over Simple the first chunk has arrived everywhere before ranks work at the same time.
  const together = protocol === "Simple" ? further : partBytes;
  const togetherUs = together / (ranks === 2 ? rate * tree.pairGain : rate) / thousand;
  const hops = 2 * ranks - 2;
  const fixed = startUs + ring[protocol].channelUs * (channels - 1);
  const waits = hops + further / chunkBytes;
  return fixed + hopUs * waits + hops * firstChunkUs(numbers, call, memory) + togetherUs;
}

/** Microseconds that the bytes of a first chunk add to each hop of a Tree. */
function firstChunkUs(
  { ring, tree }: ModelNumbers,
  { protocol, channels, partBytes, chunkBytes }: ChannelCall,
  memory: CallMemory,
): number {
  // Ranks pass on lines as they arrive: those of LL128 cost no more than a hop, those of LL up to half of a chunk, chosen by the errors.
  if (protocol === "LL128") return 0;
  if (protocol === "LL") {
    return Math.min(partBytes, chunkBytes / 2) / tree.LL.chunkRate / thousand;
  }
  const bytes = Math.min(partBytes, chunkBytes);
  const channelUs = bytes / tree.Simple.chunkRate / thousand;
  const linkUs = (bytes * channels) / linkChannels / ring.Simple.hopRate / thousand;
  const ordinaryUs = Math.max(channelUs, linkUs);
  // As if half of the hops between registered buffers, those down the Tree, waited for their channel alone: chosen by the errors.
  return memory === "registered" ? (ordinaryUs + channelUs) / 2 : ordinaryUs;
}

function chainUs(numbers: ModelNumbers, call: ChannelCall, memory: CallMemory): number {
  const { ring, chain, registered, elementRate } = numbers;
  const { collective, protocol, ranks, channels, partBytes, chunkBytes, threads } = call;
  const { startUs, channelUs, hopUs, hopRate } = ring[protocol];
  if (protocol === "LL") {
    const full = Math.ceil(partBytes / (lineBytes * threads)) * fullPass;
    const bytes = partBytes + chain.passShare * (full - partBytes);
    // A rank between two others receives and sends.
    const ways = ranks === 2 ? 1 : 2;
    const channel =
      (ways * bytes) / ring.LL.firstRate + partBytes / (elementRate * call.elementBytes);
    // Half of a line of LL is data.
    const link = (2 * channels * partBytes) / (linkChannels * ring.Simple.hopRate);
    return startUs + channelUs * (channels - 1) + Math.max(channel, link) / thousand;
  }
  const chunks = partBytes / chunkBytes;
  const movedUs = startUs + partBytes / hopRate / thousand;
  const isDirect = memory === "registered" && collective === "broadcast" && protocol === "Simple";
  if (!isDirect) return ranks === 2 ? movedUs : movedUs + hopUs * chunks;
  // Ranks that write into each other's buffers wait for each other. A call of many chunks begins while the one before is still under way.
  const waited = Math.min(partBytes, chunkBytes / chunks);
  const passedUs = ((ranks - 2) * waited) / registered.chunkRate / thousand;
  return movedUs + channelUs * (channels - 1) + hopUs * chunks + passedUs;
}

/** Gain of threads whose channel moves bytes in one direction alone: measured on H100. */
const oneWayGain = 1.7;

/** The same over Simple while a chunk has its place in the channel's buffer: measured on H100 and H200. */
const quickGain = 2.2;

/** The same within a rank: measured on H200. */
const ownGain = 2.5;

/** Microseconds of sends and receives: until their bytes move, while they move, their last chunk, and while those to one rank arrive. */
interface ExchangeTimes {
  readonly startUs: number;
  readonly movedUs: number;
  readonly lastUs: number;
  readonly fedUs: number;
}

function exchangeUs(numbers: ModelNumbers, call: ExchangeCall, memory: CallMemory): number {
  const { startUs, movedUs, fedUs } = exchangeTimes(numbers, call, memory);
  const us = startUs + movedUs;
  return fedUs === 0 ? us : longer(us, fedUs);
}

function exchangeTimes(
  { exchange, ring, elementRate }: ModelNumbers,
  call: ExchangeCall,
  memory: CallMemory,
): ExchangeTimes {
  const { partBytes, hasSimple, isMutual, loads, portBytes, linkBytes, fedBytes } = call;
  const { firstRate, lowRate, messageRate, portRate } = exchange;
  const oneWayRate = messageRate * oneWayGain;
  const quickRate = messageRate * quickGain;
  const firstUs = Math.min(partBytes, fullPass) / firstRate / thousand;
  // A sender writes into registered memory itself, so that no receiver copies.
  const isDirect = memory === "registered";
  const simpleHops = isDirect ? 2 : 1;
  const hopUs = hasSimple ? simpleHops * ring.Simple.hopUs : 0;
  const linkRate = linkChannels * ring.Simple.hopRate;
  const port = hasSimple ? Math.max(portBytes / portRate, linkBytes / linkRate) : 0;
  // Over LL nothing but a peer that waits as well keeps a rank from the next call.
  const aloneUs = ring.LL.startUs + ring.LL.hopUs;
  const beganUs = (isMutual || hasSimple ? exchange.startUs : aloneUs) + hopUs;
  let [channel, last] = [0, 0];
  for (const load of loads) {
    const { kind, lowBytes, packedBytes, singleBytes, chunkBytes, singleChunkBytes } = load;
    // Messages are bytes. Both directions share a multiprocessor.
    const single = singleBytes / elementRate;
    if (kind === "own") {
      // A copy of a rank's own block waits for no other rank.
      const own = single + packedBytes / (messageRate * ownGain);
      channel = Math.max(channel, own - (beganUs - aloneUs) * thousand);
      continue;
    }
    const isBothWays = kind === "both ways";
    const low = isBothWays
      ? Math.max(0, lowBytes / 2 - fullPass) / lowRate
      : Math.max(0, lowBytes - fullPass) / lowRate / oneWayGain;
    if (isDirect) {
      const { sentPackedBytes, sentSingleBytes } = load;
      const sent = sentSingleBytes / elementRate + sentPackedBytes / oneWayRate;
      channel = Math.max(channel, low + sent);
      continue;
    }
    const hasSingle = singleBytes > 0;
    const lastSingle = singleChunkBytes / elementRate;
    let [packed, apart] = [0, 0];
    if (isBothWays) {
      packed = packedBytes / (hasSingle ? oneWayRate : 2 * messageRate);
      // The first chunk leaves before others arrive, and the last one arrives when all have left: packs alone are as quick as beside others.
      if (hasSingle) apart = (2 * chunkBytes) / oneWayRate - chunkBytes / messageRate;
    } else {
      // Threads of one direction wait a hop for the place of each chunk but the first.
      const waited = Math.max(0, packedBytes / mostChunk - 1) * ring.Simple.hopUs * thousand;
      packed = packedBytes / quickRate + waited;
      apart = chunkBytes / (hasSingle ? oneWayRate : quickRate);
    }
    channel = Math.max(channel, low + single + packed + Math.max(apart, lastSingle));
    last = Math.max(last, chunkBytes / oneWayRate, lastSingle);
  }
  const moved = port === 0 ? channel : longer(channel, port + last);
  const fedUs = hasSimple ? fedBytes / linkRate / thousand : 0;
  const startUs = beganUs + firstUs;
  return { startUs, movedUs: moved / thousand, lastUs: last / thousand, fedUs };
}

/** A message among others of its group. */
export interface MessageTimes {
  readonly startUs: number;
  /** The part of the processes in the start, which messages of one group share. */
  readonly callUs: number;
  readonly movedUs: number;
  /** Microseconds in which it holds the ports of both ranks, as messages with several peers do, and of its last chunk behind them. */
  readonly portUs: number;
  readonly lastUs: number;
  /** Microseconds by which its receiver ends behind its sender. */
  readonly lagUs: number;
}

/**
 * The times of a message; together they are those of the call with that message alone. Its part of the processes is in the start.
 *
 * Ranks that wait for each other take `lagUs` longer for each call than others do.
 */
export function messageTimes(
  numbers: ModelNumbers,
  { sent, received }: MessageCalls,
  mode: CallMode,
): MessageTimes {
  const { memory } = effectiveMode(mode);
  const { movedUs } = exchangeTimes(numbers, sent, memory);
  const { lastUs } = exchangeTimes(numbers, received, memory);
  const { portBytes, linkBytes } = sent;
  const linkRate = linkChannels * numbers.ring.Simple.hopRate;
  const port = Math.max(portBytes / numbers.exchange.portRate, linkBytes / linkRate);
  const sentUs = callUs(numbers, sent, mode);
  return {
    ...{ startUs: sentUs - movedUs, movedUs, lastUs, portUs: Math.min(movedUs, port / thousand) },
    callUs: sentUs - deviceUs(numbers, sent, memory),
    lagUs: Math.max(0, callUs(numbers, received, mode) - sentUs),
  };
}

function symmetricUs({ symmetric }: ModelNumbers, call: SymmetricCall): number {
  const { collective, kernel, ranks, blocks, bytes, loads, misses } = call;
  if (kernel === "LL") {
    const { startUs, rankPs, passUs } = symmetric.low;
    const own = bytes / blocks;
    const passes = Math.ceil(own / fullPass);
    return startUs + passUs * (passes - 1) + (own * rankPs * ranks) / thousand ** 2;
  }
  const peers = ranks - 1;
  if (collective === "allGather") {
    const { startUs, storePs, crowdPs, remotePs, wordUs } = symmetric.allGather;
    const storesPs = call.skipsOwnRank ? peers * remotePs : ranks * storePs;
    const crowdedPs = ranks * crowdPs * peers * (peers - 1);
    const stored = bytes * (storesPs + crowdedPs);
    return startUs + wordUs * loads + stored / blocks / thousand ** 2;
  }
  const { startUs, peerPs } = symmetric[collective];
  const waited = symmetric.loadUs * loads + symmetric.missUs * misses;
  return startUs + waited + (bytes * peerPs * peers) / blocks / thousand ** 2;
}
