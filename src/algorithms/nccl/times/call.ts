/**
 * The facts of a call that decide its time: of a plan of NCCL, or of sends and receives in one group.
 *
 * Everything that follows from counts is computed here, once, so that the model evaluates a call in a few operations.
 */
import type { SymmetricPlace } from "../../../api/backend-entry.ts";
import { specifications } from "../../../api/collectives/index.ts";
import { bytesOf } from "../../../api/dtype.ts";
import { modelBytes, threadThreshold } from "../choice.ts";
import type { ChannelPlan, NcclPlan, SymmetricKernel } from "../plan-types.ts";
import {
  grains,
  type NcclCollective,
  type NcclProtocol,
  type NcclSettings,
  resolveSettings,
} from "../rules.ts";
import { chooseSymmetric, loadsOf, movesPacks, warpRounds } from "../symmetric.ts";

/** Multiples of these bytes move in one load or store. */
export const packBytes = 16;

/** Bytes of a buffer that a GPU's cache of 50 MB keeps from one call to the next, and those of which it keeps nothing. */
const cachedBytes = 25e6;
const evictedBytes = 37.5e6;

/** Threads of a block that move data, at the most and at the least. */
export const mostThreads = 512;
export const fewestThreads = 64;

/** Threads of the smallest block, and of every block of a Tree. Over Simple a warp of the smallest moves no data. */
const leastBlock = 96;
const treeThreads = 640;

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
  /**
   * Blocks of a Ring that take the time of moving element by element: over LL those that steps write to the caller's buffer, over
   * Simple those at addresses that are no multiple of 16.
   */
  readonly singleBlocks: number;
  /** Chunks of a Ring all-reduce that hold data. */
  readonly chunks: number;
  /** Threads of a block that move data. */
  readonly threads: number;
  /** True for a sum, and for a call that folds nothing. */
  readonly isSum: boolean;
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
  /** Times that a warp of a direct kernel waits for loads from other ranks; of an all-gather, for words of its own block. */
  readonly loads: number;
  /** Rounds of a warp of a direct reduce-scatter whose loads miss the cache of the GPU. */
  readonly misses: number;
  /** False for a direct kernel that moves words or elements in place of packs of 16 bytes. */
  readonly movesPacks: boolean;
  /** True for a direct all-gather in place, which stores nothing on its own rank. */
  readonly skipsOwnRank: boolean;
}

/** The use of a channel by a rank: it only copies its own block, only sends or only receives, or does both. */
export type MessageKind = "own" | "one way" | "both ways";

/** The place of a message among those of its group. */
export interface MessageUse {
  /** The use of its channels at its ends. */
  readonly kind: MessageKind;
  /** True where the sender has several receivers, and the receiver several senders. */
  readonly isCrossing: boolean;
}

/** Bytes that one channel carries on one rank, sent and received together. */
export interface ChannelLoad {
  readonly kind: MessageKind;
  /** Bytes of messages over LL. */
  readonly lowBytes: number;
  /** Bytes over Simple that move in packs of 16 bytes, and those that move byte by byte. */
  readonly packedBytes: number;
  readonly singleBytes: number;
  /** Those that the rank sends, or copies within itself: into registered memory single ones have such an address at one end or both. */
  readonly sentPackedBytes: number;
  readonly sentSingleBytes: number;
  /** Bytes of a chunk of mutual messages, the lesser one of both directions; those that move byte by byte at both ends. */
  readonly chunkBytes: number;
  readonly singleChunkBytes: number;
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
  /** True where a message to another rank goes over Simple. */
  readonly hasSimple: boolean;
  /** True where some ranks wait for each other. */
  readonly isMutual: boolean;
  /** Bytes of the largest part that one channel carries of a message. */
  readonly partBytes: number;
  /** Those channels of all ranks that no other one exceeds in everything. */
  readonly loads: readonly ChannelLoad[];
  /** Bytes of the busiest port: with crossing messages; with others. */
  readonly portBytes: number;
  readonly linkBytes: number;
  /** Bytes that reach a rank which sends none, from several: their senders begin the next call while they arrive. */
  readonly fedBytes: number;
}

/** Facts of one message of a group, for the time at its sender and at its receiver, which ends later. */
export interface MessageCalls {
  readonly sent: ExchangeCall;
  readonly received: ExchangeCall;
}

/** The facts of a call that decide its time. */
export type TimedCall = ChannelCall | SymmetricCall | ExchangeCall;

/**
 * The facts of a planned call, whose buffers lie at `place` of symmetric memory if any; `undefined` for one that moves nothing
 * between GPUs, or between nodes.
 */
export function timedPlan(
  plan: NcclPlan,
  place?: SymmetricPlace,
  settings: NcclSettings = {},
): TimedCall | undefined {
  const { collective, ranks, nodes, count, dtype } = plan;
  if (plan.algorithm === "Copy" || count === 0 || nodes > 1) return undefined;
  const bytes = count * bytesOf(dtype);
  if (plan.algorithm === "Symmetric") {
    const folding = collective === "allReduce" ? collective : "reduceScatter";
    return symmetricCall(folding, plan, { kernel: plan.protocol, blocks: plan.channels }, place);
  }
  if (place !== undefined && collective === "allGather") {
    const chosen = chooseSymmetric(collective, ranks, bytes, resolveSettings(settings));
    return symmetricCall(collective, plan, chosen, place);
  }
  return channelCall(plan);
}

/** Buffers at the start of symmetric memory. */
const atStart: SymmetricPlace = { send: 0, recv: 0 };

/**
 * The facts of an all-gather in symmetric memory, whose kernel copies the blocks of the plan's Ring; `undefined` for other calls.
 * The kernel does not depend on the place of the buffers.
 */
export function copiedGather(plan: NcclPlan, settings: NcclSettings): SymmetricCall | undefined {
  const call = plan.collective === "allGather" ? timedPlan(plan, atStart, settings) : undefined;
  return call?.kind === "symmetric" ? call : undefined;
}

function symmetricCall(
  collective: SymmetricCall["collective"],
  { ranks, count, dtype }: NcclPlan,
  { kernel, blocks }: Pick<SymmetricCall, "kernel" | "blocks">,
  place = atStart,
): SymmetricCall {
  const bytes = count * bytesOf(dtype);
  const skipsOwnRank = collective === "allGather" && kernel !== "LL" && place.inPlace === true;
  const call = { kind: "symmetric", collective, kernel, ranks, blocks, skipsOwnRank } as const;
  if (kernel === "LL") return { ...call, bytes, loads: 0, misses: 0, movesPacks: true };
  // An all-gather copies bytes.
  const elementBytes = collective === "allGather" ? 1 : bytesOf(dtype);
  const direct = { collective, ranks, blocks, bytes, place, elementBytes };
  const facts = { ...call, movesPacks: movesPacks(direct) };
  const rounds = warpRounds(direct);
  if (collective === "allGather") {
    return { ...facts, bytes, loads: facts.movesPacks ? 0 : rounds, misses: 0 };
  }
  if (collective === "allReduce") {
    return { ...facts, bytes: bytes / ranks, loads: loadsOf(direct), misses: 0 };
  }
  const misses = rounds * evictedShare(ranks * bytes);
  return { ...facts, bytes, loads: loadsOf(direct), misses };
}

/** The share of a buffer that the cache of a GPU loses before the next call. */
function evictedShare(bytes: number): number {
  return Math.min(1, Math.max(0, (bytes - cachedBytes) / (evictedBytes - cachedBytes)));
}

function channelCall(plan: ChannelPlan): ChannelCall {
  const { algorithm, protocol, collective, ranks, count, dtype, op, parts } = plan;
  const elementBytes = bytesOf(dtype);
  const bytes = count * elementBytes;
  const { rooted, reduces } = specifications[collective];
  let [length, chunk] = [0, 0];
  for (const part of parts) {
    if (part.length > length) [length, chunk] = [part.length, part.chunk];
  }
  return {
    kind: algorithm === "Tree" ? "tree" : rooted ? "chain" : "ring",
    ...{ collective, protocol, ranks, channels: parts.length },
    partBytes: length * elementBytes,
    chunkBytes: chunk * elementBytes,
    elementBytes: reduces ? elementBytes : 1,
    singleBlocks: singleBlocks(plan, bytes),
    chunks: Math.min(ranks, Math.ceil(bytes / grains.LL)),
    threads: threadsOf(plan, bytes),
    isSum: op === undefined || op === "sum",
  };
}

/** Of blocks of `bytes`, one for each rank, those that move element by element. */
function singleBlocks({ collective, protocol, ranks }: ChannelPlan, bytes: number): number {
  if (protocol === "LL") return collective === "reduceScatter" ? 0 : ranks - 1;
  if (protocol === "LL128") return 0;
  if (collective !== "allGather" && collective !== "reduceScatter") return 0;
  let misaligned = 0;
  for (let block = 0; block < ranks; block++) if ((block * bytes) % packBytes !== 0) misaligned++;
  // Whole elements of a reduce-scatter move as quickly as the links, but for the block of the last step.
  return collective === "allGather" ? misaligned : Math.min(1, misaligned);
}

/** Threads of a block that move data: a Tree takes all, and otherwise NCCL halves them until a call keeps them busy. */
function threadsOf({ algorithm, protocol, collective, ranks }: ChannelPlan, bytes: number): number {
  if (algorithm === "Tree") return treeThreads;
  const busy = modelBytes(collective, ranks, bytes) / threadThreshold(algorithm, protocol, ranks);
  let threads = mostThreads;
  while (busy < threads && threads > fewestThreads) threads /= 2;
  return protocol === "Simple" ? threads : Math.max(threads, leastBlock);
}
