/**
 * The pieces of a plan: ranges of elements and their orders of folding.
 *
 * All of Ring's collectives start just after the owner of an element and go round the ring to it. The owner of chunk k of
 * an all-reduce is the rank at ring position k. A tree on one node is a chain, folded from its leaf to its root.
 */
import type { SymmetricPlace } from "../../api/backend-entry.ts";
import { bytesOf } from "../../api/dtype.ts";
import { UnsupportedError } from "../../api/errors.ts";
import { plainChunks, ringAllReduceChunks } from "./chunks.ts";
import type { ChannelPlan, FoldOrder, Piece, PlannedPart, SymmetricPlan } from "./plan-types.ts";
import { elementRangesOf } from "./symmetric.ts";
import { type ChannelPaths, ringAt } from "./topology.ts";

/** The facts that decide the pieces of a plan on channels. */
type ChannelFacts = Pick<
  ChannelPlan,
  "ranks" | "collective" | "algorithm" | "protocol" | "dtype" | "root" | "parts" | "paths"
>;

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
 * Pieces of a call by Ring or Tree.
 *
 * @throws UnsupportedError for a call with more pieces than the limit.
 */
export function channelPieces(plan: ChannelFacts): Piece[] {
  const { collective, ranks, parts, paths } = plan;
  const chunks = parts.reduce((sum, { length, chunk }) => sum + Math.ceil(length / chunk), 0);
  const copies = collective === "reduceScatter" || collective === "allGather" ? ranks : 1;
  assertPieces(`${collective} by ${plan.algorithm} ${plan.protocol}`, chunks * copies);
  if (collective === "allReduce" && plan.algorithm === "Ring") {
    return parts.flatMap((part) => ringPieces(plan, part, paths[part.channel] as ChannelPaths));
  }
  const blocks = collective === "reduceScatter" || collective === "allGather" ? ranks : 1;
  return Array.from({ length: blocks }, (_, block) =>
    parts.flatMap((part) => {
      const order = orderOf(plan, paths[part.channel] as ChannelPaths, block);
      return plainChunks(part.length, part.chunk).map((chunk) => ({
        ...chunk,
        block,
        channel: part.channel,
        offset: part.offset + chunk.offset,
        order,
      }));
    }),
  ).flat();
}

function ringPieces(plan: ChannelFacts, part: PlannedPart, { ring }: ChannelPaths): Piece[] {
  const { ranks, dtype } = plan;
  const { channel, offset, length, chunk: full } = part;
  const elementBytes = bytesOf(dtype);
  return ringAllReduceChunks(length, full, ranks, elementBytes).map((chunk) => ({
    ...chunk,
    block: 0,
    channel,
    offset: offset + chunk.offset,
    order: orderEndingAt(ring, chunk.chunk),
  }));
}

/** The order of a block where it does not depend on the chunk. */
function orderOf(
  { collective, root }: ChannelFacts,
  paths: ChannelPaths,
  block: number,
): FoldOrder {
  switch (collective) {
    case "allReduce":
      return treeOrder(paths);
    case "reduceScatter":
      return orderEndingAtRank(paths.ring, block);
    case "reduce":
      return orderEndingAtRank(paths.ring, root);
    case "allGather":
      return [block];
    case "broadcast":
      return [root];
  }
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

/** Orders of each ring, computed once and shared. */
const rotations = new WeakMap<readonly number[], readonly FoldOrder[]>();

/** The order that ends at ring position `position`. */
function orderEndingAt(ring: readonly number[], position: number): FoldOrder {
  let known = rotations.get(ring);
  if (known === undefined) {
    known = ring.map((_, end) => ring.map((_, step) => ringAt(ring, end + 1 + step)));
    rotations.set(ring, known);
  }
  return known[position] as FoldOrder;
}

/** The order that ends at a rank. */
function orderEndingAtRank(ring: readonly number[], rank: number): FoldOrder {
  return orderEndingAt(ring, ring.indexOf(rank));
}

/** The order of a tree on one node. */
function treeOrder({ chain }: ChannelPaths): FoldOrder {
  return chain;
}
