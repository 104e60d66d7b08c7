/**
 * Division of a call's elements: into parts of channels, parts into chunks, and chunks as pieces with their order of folding.
 * For a call alone in its group.
 *
 * The range is cut at multiples of a *cell*, so that each channel carries at least the minimum traffic. Parts are
 * contiguous, in the order of the channels. A small call uses fewer channels than its budget; rounding can add one.
 *
 * A chunk is the most that one message carries; its size follows from the channel's buffer. A Ring all-reduce has one
 * chunk for every rank in each loop. In the last loop it shrinks them, so that all ranks have work. No other chunks
 * are shrunk, and only there do chunks decide bits.
 *
 * All of Ring's collectives start just after the owner of an element and go round the ring to it. The owner of chunk k of
 * an all-reduce is the rank at ring position k. Tree folds up to its root, PAT up a tree to the owner of each block.
 */
import type { SymmetricPlace } from "../../api/backend-entry.ts";
import { bytesOf } from "../../api/dtype.ts";
import { UnsupportedError } from "../../api/errors.ts";
import { type FoldOrder, orderEndingAt, orderEndingAtRank, treeOrder } from "./fold-order.ts";
import { patOf, patOrders } from "./pat.ts";
import type { ChannelPlan, Part, Piece, PlannedPart, SymmetricPlan } from "./plan-types.ts";
import {
  blocksOf,
  bufferSteps,
  grains,
  type NcclAlgorithm,
  type NcclCollective,
  type NcclProtocol,
  type ResolvedSettings,
  type VersionRules,
} from "./rules.ts";
import { elementRangesOf } from "./symmetric.ts";
import { type ChannelPaths, ringAt, type Topology } from "./topology.ts";

/** The facts of a call that decide its partition. */
export interface PartitionQuestion {
  readonly rules: VersionRules;
  readonly collective: NcclCollective;
  readonly protocol: NcclProtocol;
  readonly ranks: number;
  /** Elements as passed to the call; each block of a reduce-scatter or all-gather is cut alike. */
  readonly count: number;
  readonly elementBytes: number;
  /** Channels of the communicator, and the limit for this call. */
  readonly channels: number;
  readonly budget: number;
}

/** Bytes of traffic for each byte of the count; LL carries a flag beside every word and counts more. */
function trafficFactor(collective: NcclCollective, protocol: NcclProtocol, ranks: number): number {
  return (
    (collective === "allReduce" ? 2 : blocksOf(collective, ranks)) * (protocol === "LL" ? 4 : 1)
  );
}

/** Bytes of a cell. */
function cellBytes({ rules, collective, protocol, ranks }: PartitionQuestion): number {
  const factor = trafficFactor(collective, protocol, ranks);
  return 16 * Math.ceil(Math.ceil(rules.minimumTraffic / factor) / 16);
}

/** The cut of a call over channels. All parts but the last have the same length. */
export interface Cut {
  /** Cells of a part; 0 where one channel takes all. */
  readonly cellsPerPart: number;
  /** Number of parts. */
  readonly used: number;
  /** Elements of each part but the last. */
  readonly length: number;
}

/**
 * The cut of a call. For one budget `cellsPerPart` never falls with a growing count; for one `cellsPerPart` neither does `used`.
 */
export function cutOf(question: PartitionQuestion): Cut {
  const { rules, collective, protocol, ranks, count, elementBytes, channels, budget } = question;
  if (channels === 1 || count === 0) {
    return { cellsPerPart: 0, used: Math.min(count, 1), length: count };
  }
  const factor = trafficFactor(collective, protocol, ranks);
  const cell = cellBytes(question);
  const traffic = Math.max(rules.minimumTraffic, count * elementBytes * factor);
  const step = rules.trafficStep;
  const perChannel = Math.ceil(Math.floor(traffic / Math.min(budget, channels)) / step) * step;
  const cells = Math.ceil((count * elementBytes) / cell);
  const cellsPerPart = Math.max(1, Math.ceil(perChannel / (cell * factor)));
  // Rounding can require one channel more than there are: the last one then takes that cell too.
  const used = Math.min(channels, Math.ceil(cells / cellsPerPart));
  return { cellsPerPart, used, length: (cellsPerPart * cell) / elementBytes };
}

/** The parts of a call, none empty; an empty call has none. */
export function partition(question: PartitionQuestion): Part[] {
  const { used, length } = cutOf(question);
  return Array.from({ length: used }, (_, channel) => {
    const offset = channel * length;
    return { channel, offset, length: channel === used - 1 ? question.count - offset : length };
  });
}

/** The facts of a call that decide its chunks. */
interface ChunkQuestion {
  readonly collective: NcclCollective;
  readonly algorithm: NcclAlgorithm;
  readonly protocol: NcclProtocol;
  readonly topology: Pick<Topology, "ranks" | "nodes">;
  readonly elementBytes: number;
  readonly settings: ResolvedSettings;
  /** Bytes of the call as the cost model counts them, and channels that it uses. */
  readonly size: number;
  readonly used: number;
}

/** One chunk of a part; `offset` counts from the part's start. */
interface Chunk {
  readonly loop: number;
  readonly chunk: number;
  readonly offset: number;
  readonly length: number;
}

/** Elements of a full chunk in a part of `partLength` elements. */
export function chunkElements(question: ChunkQuestion, partLength: number): number {
  const { protocol, elementBytes } = question;
  const grain = grains[protocol];
  return (shrunkBytes(question, partLength) / grain) * Math.floor(grain / elementBytes);
}

/** Bytes of a full chunk; some algorithms take smaller ones for small calls. */
function shrunkBytes(question: ChunkQuestion, partLength: number): number {
  const { algorithm, protocol, elementBytes } = question;
  if (algorithm === "PAT") return patChunkBytes(question);
  if (algorithm !== "Tree" || protocol !== "LL128") return chunkBytes(question);
  return treeChunkBytes(question, partLength * elementBytes);
}

/** Bytes of a full chunk: the capacity of the buffer slots that a message takes. */
function chunkBytes({ collective, algorithm, protocol, settings }: ChunkQuestion): number {
  const grain = grains[protocol];
  const pipelined = collective !== "reduce" && collective !== "broadcast";
  const slots = algorithm === "Ring" && protocol === "Simple" && pipelined ? 4 : 1;
  const base = Math.floor(bufferOf(protocol, settings) / bufferSteps) * slots;
  // LL spends half of its buffer on flags, LL128 one word of 16.
  const data =
    protocol === "LL" ? base / 2 : protocol === "LL128" ? Math.floor(base / 16) * 15 : base;
  return Math.max(1, Math.floor(data / grain)) * grain;
}

/** Small parts of a Tree over LL128 take smaller chunks, so that it is a pipeline. */
function treeChunkBytes(question: ChunkQuestion, partBytes: number): number {
  const { ranks, nodes } = question.topology;
  const perNode = ranks / nodes;
  const depth = 1 + Math.floor(Math.log2(nodes)) + 0.1 * perNode;
  let bytes = chunkBytes(question);
  const chunks = (): number => Math.floor(partBytes / bytes);
  while (chunks() < (64 * depth) / perNode && bytes > 131_072) bytes /= 2;
  while (chunks() < (16 * depth) / perNode && bytes > 32_768) bytes /= 2;
  return Math.max(1, Math.floor(bytes / grains.LL128)) * grains.LL128;
}

/** Small calls of PAT take smaller chunks. */
function patChunkBytes(question: ChunkQuestion): number {
  const { collective, size, used } = question;
  const chunks = used * (collective === "allGather" ? 32 : 16);
  let bytes = chunkBytes(question);
  while (bytes * chunks > size && bytes > 65_536) bytes /= 2;
  return Math.max(1, Math.floor(bytes / grains.Simple)) * grains.Simple;
}

/**
 * Chunks of a part of a Ring all-reduce: `ranks` in every loop; the last ones may be empty.
 *
 * @internal
 */
export function ringAllReduceChunks(
  partLength: number,
  chunk: number,
  ranks: number,
  elementBytes: number,
): Chunk[] {
  const chunks: Chunk[] = [];
  for (let loop = 0, start = 0; start < partLength; loop++, start += ranks * chunk) {
    const rest = partLength - start;
    const full = rest >= ranks * chunk;
    const size = full ? chunk : lastChunk(rest, ranks, elementBytes);
    for (let index = 0; index < ranks; index++) {
      const offset = Math.min(index * size, rest);
      const length = Math.min(size, rest - offset);
      chunks.push({ loop, chunk: index, offset: start + offset, length });
    }
  }
  return chunks;
}

/** Elements of a chunk of a Ring all-reduce in a loop of `rest` elements that is not full. */
export function lastChunk(rest: number, ranks: number, elementBytes: number): number {
  const step = 16 / elementBytes;
  return Math.ceil(Math.ceil(rest / ranks) / step) * step;
}

/** Chunks of a part where each loop carries one chunk. */
function plainChunks(partLength: number, chunk: number): Chunk[] {
  const loops = Math.ceil(partLength / chunk);
  return Array.from({ length: loops }, (_, loop) => {
    const offset = loop * chunk;
    return { loop, chunk: 0, offset, length: Math.min(chunk, partLength - offset) };
  });
}

function bufferOf(protocol: NcclProtocol, settings: ResolvedSettings): number {
  if (protocol === "LL") return settings.llBuffSize;
  return protocol === "LL128" ? settings.ll128BuffSize : settings.buffSize;
}

/** The facts that decide the pieces of a plan on channels. */
type ChannelFacts = Omit<ChannelPlan, "accumulator" | "undefinedBlocks" | "pieces">;

/** Limit of pieces of a plan: each is an object. */
const maxPieces = 2 ** 21;

/** Throws for a plan of more pieces than the limit. */
function assertPieces(what: string, pieces: number): void {
  if (pieces <= maxPieces) return;
  const counted = `${pieces.toLocaleString("en")} pieces, the limit is ${maxPieces.toLocaleString("en")}`;
  throw new UnsupportedError(
    { headline: `plan of ${what}: at least ${counted}`, hint: "take a smaller count" },
    { field: "program" },
  );
}

/**
 * Pieces of a call on channels.
 *
 * @throws UnsupportedError for a call with more pieces than the limit.
 */
export function channelPieces(plan: ChannelFacts): Piece[] {
  const { collective, ranks, parts, paths } = plan;
  const chunks = parts.reduce((sum, { length, chunk }) => sum + Math.ceil(length / chunk), 0);
  const blocks = blocksOf(collective, ranks);
  assertPieces(`${collective} by ${plan.algorithm} ${plan.protocol}`, chunks * blocks);
  if (collective === "allReduce" && plan.algorithm === "Ring") {
    return parts.flatMap((part) => ringPieces(plan, part, paths[part.channel] as ChannelPaths));
  }
  const chunksOf = parts.map((part) => plainChunks(part.length, part.chunk));
  const orders = parts.map((part) => ordersOf(plan, part));
  return Array.from({ length: blocks }, (_, block) =>
    parts.flatMap((part, at) =>
      (chunksOf[at] as Chunk[]).map(({ loop, chunk, offset, length }) => ({
        loop,
        chunk,
        offset: part.offset + offset,
        length,
        block,
        channel: part.channel,
        order: orders[at]?.(block) as FoldOrder,
      })),
    ),
  ).flat();
}

function ringPieces(plan: ChannelFacts, part: PlannedPart, { ring }: ChannelPaths): Piece[] {
  const { ranks, dtype } = plan;
  const { channel, offset, length, chunk: full } = part;
  const elementBytes = bytesOf(dtype);
  return ringAllReduceChunks(length, full, ranks, elementBytes).map((each) => ({
    loop: each.loop,
    chunk: each.chunk,
    offset: offset + each.offset,
    length: each.length,
    block: 0,
    channel,
    order: orderEndingAt(ring, each.chunk),
  }));
}

/** The order of each block in a part, where it does not depend on the chunk. */
function ordersOf(plan: ChannelFacts, part: PlannedPart): (block: number) => FoldOrder {
  const { collective, algorithm, root } = plan;
  const { ring, tree } = plan.paths[part.channel] as ChannelPaths;
  switch (collective) {
    case "allReduce":
      return () => treeOrder(tree);
    case "reduceScatter":
      if (algorithm === "PAT") return patOrders(patOf(plan, part));
      return (block) => orderEndingAtRank(ring, block);
    case "reduce":
      return () => orderEndingAtRank(ring, root);
    case "allGather":
      return (block) => [block];
    case "broadcast":
      return () => [root];
  }
}

/** Every order that pieces of a block may have on a channel; those of PAT follow from its parts too. */
export function channelOrders(
  { collective, algorithm, root }: Pick<ChannelFacts, "collective" | "algorithm" | "root">,
  { ring, tree }: ChannelPaths,
  block: number,
): readonly FoldOrder[] {
  if (collective === "allReduce") {
    if (algorithm === "Tree") return [treeOrder(tree)];
    return ring.map((_, position) => orderEndingAt(ring, position));
  }
  if (collective === "reduceScatter") return [orderEndingAtRank(ring, block)];
  if (collective === "reduce") return [orderEndingAtRank(ring, root)];
  return [[collective === "allGather" ? block : root]];
}

/** Pieces of a call through a symmetric kernel. */
export function symmetricPieces(
  plan: Pick<SymmetricPlan, "ranks" | "collective" | "protocol" | "dtype" | "count" | "channels">,
  { send, recv }: SymmetricPlace,
): Piece[] {
  const { ranks, collective, protocol, dtype, count } = plan;
  if (count === 0) return [];
  const ascending = Array.from({ length: ranks }, (_, rank) => rank);
  const orders = ascending.map((first) => ascending.map((step) => ringAt(ascending, first + step)));
  const piece = { channel: 0, loop: 0, chunk: 0 };
  if (collective === "allReduce" && protocol === "LD") {
    const elementBytes = bytesOf(dtype);
    // Most ranges have 2048 bytes.
    assertPieces("allReduce in symmetric memory", Math.floor((count * elementBytes) / 2048));
    const blocks = plan.channels;
    const question = { ranks, blocks, count, elementBytes, sendOffset: send, recvOffset: recv };
    return elementRangesOf(question).map(({ offset, length, first }, chunk) => {
      return { ...piece, block: 0, chunk, offset, length, order: orders[first] as FoldOrder };
    });
  }
  const blocks = collective === "reduceScatter" ? ranks : 1;
  return ascending.slice(0, blocks).map((block) => {
    const order = orders[protocol === "LD" ? block : 0] as FoldOrder;
    return { ...piece, block, offset: 0, length: count, order };
  });
}

/** The piece of a single rank. */
export function copyPieces(count: number): Piece[] {
  if (count === 0) return [];
  return [{ block: 0, channel: 0, loop: 0, chunk: 0, offset: 0, length: count, order: [0] }];
}
