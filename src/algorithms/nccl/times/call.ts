/**
 * The facts of a call that decide its time: of a plan of NCCL, or of sends and receives in one group.
 *
 * Everything that follows from counts is computed here, once, so that the model evaluates a call in a few operations.
 */
import { bytesOf } from "../../../api/dtype.ts";
import type { ChannelPlan, NcclPlan, SymmetricKernel } from "../plan-types.ts";
import { grains, type NcclCollective, type NcclProtocol, resolveSettings } from "../rules.ts";
import { chooseSymmetric, singleBytesOf } from "../symmetric.ts";

/** Facts of a call on channels: by Ring, by Tree, or along a chain from or to a root. */
export interface ChannelCall {
  readonly kind: "ring" | "tree" | "chain";
  readonly collective: NcclCollective;
  readonly protocol: NcclProtocol;
  readonly ranks: number;
  readonly channels: number;
  /** Bytes of the largest part, and of its full chunks. */
  readonly partBytes: number;
  readonly chunkBytes: number;
  /** Bytes of an element as the kernel copies it: all-gathers and broadcasts copy bytes. */
  readonly elementBytes: number;
  /** Chunks of a Ring all-reduce that hold data. */
  readonly chunks: number;
  /** Bytes that all threads of a block move at once over LL. */
  readonly passBytes: number;
}

/** Facts of a call through a symmetric kernel. */
export interface SymmetricCall {
  readonly kind: "symmetric";
  readonly collective: "allReduce" | "reduceScatter" | "allGather";
  readonly kernel: SymmetricKernel;
  readonly ranks: number;
  readonly blocks: number;
  /** Bytes of the count for LL; for a direct kernel those that a rank folds or stores. */
  readonly bytes: number;
  /** Those of them that move element by element. */
  readonly singleBytes: number;
}

/** Facts of sends and receives in one group. */
export interface ExchangeCall {
  readonly kind: "exchange";
  readonly ranks: number;
  /** Messages from the rank with most of them, and from all ranks; those to the rank itself included. */
  readonly messages: number;
  readonly allMessages: number;
  /** Channels in use on the busiest rank. */
  readonly channels: number;
  /** Bytes of the largest part that one channel carries of a message. */
  readonly partBytes: number;
  /** The same, of messages with an address that is no multiple of 16 at either end. */
  readonly misalignedBytes: number;
  /** Bytes that the busiest port carries, in its busier direction. */
  readonly portBytes: number;
}

/** The facts of a call that decide its time. */
export type TimedCall = ChannelCall | SymmetricCall | ExchangeCall;

/** The facts of a planned call; `undefined` for one that moves nothing between GPUs, or between nodes. */
export function timedPlan(plan: NcclPlan, symmetric: boolean): TimedCall | undefined {
  const { collective, ranks, nodes, count, dtype } = plan;
  if (plan.algorithm === "Copy" || count === 0 || nodes > 1) return undefined;
  const bytes = count * bytesOf(dtype);
  if (plan.algorithm === "Symmetric") {
    const folding = collective === "allReduce" ? collective : "reduceScatter";
    return symmetricCall(folding, ranks, bytes, plan.protocol, plan.channels);
  }
  if (symmetric && collective === "allGather") {
    const { kernel, blocks } = chooseSymmetric(collective, ranks, bytes, resolveSettings());
    return symmetricCall(collective, ranks, bytes, kernel, blocks);
  }
  return channelCall(plan);
}

function symmetricCall(
  collective: SymmetricCall["collective"],
  ranks: number,
  bytes: number,
  kernel: SymmetricKernel,
  blocks: number,
): SymmetricCall {
  const call = { kind: "symmetric", collective, kernel, ranks, blocks } as const;
  if (kernel === "LL") return { ...call, bytes, singleBytes: 0 };
  const owners = collective === "allReduce" ? ranks : 1;
  const single = singleBytesOf(bytes, owners * blocks);
  return { ...call, bytes: bytes / owners, singleBytes: single / owners };
}

function channelCall(plan: ChannelPlan): ChannelCall {
  const { algorithm, protocol, collective, ranks, count, dtype, parts } = plan;
  const elementBytes = bytesOf(dtype);
  const bytes = count * elementBytes;
  const rooted = collective === "reduce" || collective === "broadcast";
  const copies = collective === "allGather" || collective === "broadcast";
  let [length, chunk] = [0, 0];
  for (const part of parts) {
    if (part.length > length) [length, chunk] = [part.length, part.chunk];
  }
  return {
    kind: algorithm === "Tree" ? "tree" : rooted ? "chain" : "ring",
    ...{ collective, protocol, ranks, channels: parts.length },
    partBytes: length * elementBytes,
    chunkBytes: chunk * elementBytes,
    elementBytes: copies ? 1 : elementBytes,
    chunks: Math.min(ranks, Math.ceil(bytes / grains.LL)),
    passBytes: lineBytes * threadsOf(plan, bytes),
  };
}

/** Bytes of data in a line of LL, which one thread moves. */
const lineBytes = 8;

/** Threads of a block over LL: NCCL halves them until a call keeps all busy. */
function threadsOf({ collective, ranks }: ChannelPlan, bytes: number): number {
  const blocks = collective === "allGather" || collective === "reduceScatter" ? ranks : 1;
  let threads = 512;
  while (bytes * blocks < threads * lineBytes * ranks && threads % 128 === 0) threads /= 2;
  return threads;
}

/** Channels of sends and receives. */
const exchangeChannels = 32;

/** Bytes of a message up to which one channel carries it, and bytes of a part up to which it gets no more channels. */
export const exchangePart = 65_536;
const mostPart = 16_777_216;

/** Multiples of these bytes move in one load or store. */
const packBytes = 16;

/**
 * The facts of messages in one group: row i of `traffic` holds the bytes that rank i sends to each rank. `undefined` for no
 * messages. Blocks lie one after another in their buffers; with blocks of one length their addresses do not matter.
 */
export function timedExchange(
  traffic: readonly (readonly number[])[],
  oneLength: boolean,
): ExchangeCall | undefined {
  const ranks = traffic.length;
  const offsets = new Array<number>(ranks).fill(0);
  const arriving = new Array<number>(ranks).fill(0);
  let [partBytes, misalignedBytes, portBytes] = [0, 0, 0];
  let [messages, allMessages, channels] = [0, 0, 0];
  for (let from = 0; from < ranks; from++) {
    let [sent, leaving, own, used] = [0, 0, 0, 0];
    for (let to = 0; to < ranks; to++) {
      const bytes = traffic[from]?.[to] ?? 0;
      if (bytes === 0) continue;
      const parts = partsOf(bytes, ranks);
      const isAligned = sent % packBytes === 0 && (offsets[to] as number) % packBytes === 0;
      partBytes = Math.max(partBytes, bytes / parts);
      if (!isAligned && !oneLength) {
        misalignedBytes = Math.max(misalignedBytes, bytes / Math.min(parts, sharedParts(ranks)));
      }
      own++;
      used += parts;
      sent += bytes;
      offsets[to] = (offsets[to] as number) + bytes;
      if (from === to) continue;
      leaving += bytes;
      arriving[to] = (arriving[to] as number) + bytes;
    }
    // Channels that several messages share carry the parts of all of them.
    partBytes = Math.max(partBytes, sent / exchangeChannels);
    messages = Math.max(messages, own);
    allMessages += own;
    channels = Math.max(channels, Math.min(exchangeChannels, used));
    portBytes = Math.max(portBytes, leaving);
  }
  if (allMessages === 0) return undefined;
  for (const bytes of arriving) portBytes = Math.max(portBytes, bytes);
  const parts = { channels, partBytes, misalignedBytes, portBytes };
  return { kind: "exchange", ranks, messages, allMessages, ...parts };
}

/** Channels that a message to every rank can have at once. */
function sharedParts(ranks: number): number {
  return Math.max(1, exchangeChannels / 2 ** Math.ceil(Math.log2(ranks)));
}

/** Channels that carry a message: fewer for a small one, and more for a large one, which then shares them. */
function partsOf(bytes: number, ranks: number): number {
  let parts = Math.min(sharedParts(ranks), Math.ceil(bytes / exchangePart));
  while (bytes / parts > mostPart && parts < exchangeChannels) parts *= 2;
  return parts;
}
