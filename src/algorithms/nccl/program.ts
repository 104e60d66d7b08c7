/**
 * A plan in the forms that others run: its folds and their layout for executors, and its program for the verifier and for times.
 *
 * The folds follow directly from the plan's pieces; every piece of a block is one chunk, block after block. `fuse` reads the
 * same list off the plan's program; the tests prove the two equal by association.
 *
 * The program consists of NCCL's own primitives, a lane for each rank and channel. Position p of a ring is p steps from rank 0
 * along `next`. All messages of a loop travel in the same direction.
 *
 * Tree folds pieces on the way up, and results go down again. NCCL runs both directions side by side, in two halves of a
 * block of threads. Here one lane interleaves them. Their distance is the number of steps that a piece needs from a rank to
 * the root and back, so that neither direction waits for the other.
 *
 * PAT sends the values of several blocks in one message of NCCL; here each has a message of its own.
 *
 * The symmetric kernels load and store each other's memory; here a load is a send of the raw value. A sent value counts
 * as a partial. A rank takes its own contribution as a partial too, so that the fold is the same on every rank. These
 * kernels only compute plain sums, with the same bits either way.
 */

import { specifications } from "../../api/collectives/index.ts";
import { type Lane, ProgramBuilder } from "../builder.ts";
import type { FusedFold, FusedPlan, Operand, Place } from "../fuse.ts";
import type { ChunkTable, Layout } from "../layout.ts";
import { input, output, type Program, scratch } from "../program.ts";
import { type FoldOrder, ranksOf } from "./fold-order.ts";
import { patOf, patSchedule } from "./pat.ts";
import type { ChannelPlan, NcclPlan, Piece, SymmetricPlan } from "./plan-types.ts";
import { assertPlan, blocksOf } from "./rules.ts";
import { levelsOf, ringAt, type Tree } from "./topology.ts";

/** The folds of a plan: a group for each piece. */
export function ncclFused(plan: NcclPlan): FusedPlan {
  assertPlan("ncclFused", plan);
  const perBlock = piecesPerBlock(plan);
  const groups = plan.pieces.map((piece, i) => foldsOf(plan, piece, i % perBlock, perBlock));
  // In place, a fold reads no input that another fold's output overwrites.
  return { groups, inPlaceSafe: true, independent: true };
}

/** The folds of a piece: those of nested orders first, each before the one that uses it. */
function foldsOf(plan: NcclPlan, piece: Piece, index: number, perBlock: number): FusedFold[] {
  const { collective, accumulator } = plan;
  const { reduces } = specifications[collective];
  const { block, order } = piece;
  const chunk = (collective === "reduceScatter" ? block * perBlock : 0) + index;
  // Symmetric kernels exchange raw values, which count as partials of one rank.
  const later = accumulator === "float32" ? "partial" : "contribution";
  const group: FusedFold[] = [];
  const operandOf = (each: FoldOrder[number], i: number): Operand => {
    if (typeof each === "number") {
      return { kind: i === 0 ? "contribution" : later, place: { rank: each, chunk } };
    }
    const [only] = each;
    if (each.length === 1 && typeof only === "number") {
      return { kind: "partial", place: { rank: only, chunk } };
    }
    const operands = each.map(operandOf);
    return { kind: "fold", fold: group.push({ operands, final: false, reduces, targets: [] }) - 1 };
  };
  const operands = order.map(operandOf);
  group.push({
    operands,
    final: reduces,
    reduces,
    targets: targetsOf(plan, block, index, perBlock),
  });
  return group;
}

/** The output chunks of a piece. */
function targetsOf(plan: NcclPlan, block: number, index: number, perBlock: number): Place[] {
  const { collective, ranks, root } = plan;
  if (collective === "reduceScatter") return [{ rank: block, chunk: index }];
  if (collective === "reduce") return [{ rank: root, chunk: index }];
  const chunk = (collective === "allGather" ? block * perBlock : 0) + index;
  return Array.from({ length: ranks }, (_, rank) => ({ rank, chunk }));
}

/** Number of pieces of each block. */
function piecesPerBlock({ pieces, collective, ranks }: NcclPlan): number {
  return pieces.length / blocksOf(collective, ranks);
}

/** Chunk tables of every rank's buffers; equal ones are shared. */
export function ncclLayout(plan: NcclPlan): Layout {
  assertPlan("ncclLayout", plan);
  const { collective, ranks, root } = plan;
  const spec = specifications[collective];
  const tables = new Map<number, ChunkTable>();
  const table = (blocks: number): ChunkTable => {
    const known = tables.get(blocks) ?? blockTable(plan, blocks);
    tables.set(blocks, known);
    return known;
  };
  const everyRank = Array.from({ length: ranks }, (_, rank) => rank);
  return {
    in: everyRank.map((rank) => table(spec.inBlocks(ranks, rank, root))),
    out: everyRank.map((rank) => table(spec.outBlocks(ranks, rank, root))),
  };
}

/** The table of equally cut blocks. */
function blockTable(plan: NcclPlan, blocks: number): ChunkTable {
  const { pieces, count } = plan;
  const perBlock = piecesPerBlock(plan);
  const offsets = new Float64Array(blocks * perBlock);
  const lengths = new Float64Array(blocks * perBlock);
  for (let block = 0, chunk = 0; block < blocks; block++) {
    for (let i = 0; i < perBlock; i++, chunk++) {
      offsets[chunk] = block * count + (pieces[i]?.offset ?? 0);
      lengths[chunk] = pieces[i]?.length ?? 0;
    }
  }
  return { offsets, lengths };
}

/** The program of a plan; its chunks are the plan's pieces. */
export function ncclProgram(plan: NcclPlan): Program {
  assertPlan("ncclProgram", plan);
  const { collective, ranks, root } = plan;
  const perBlock = piecesPerBlock(plan);
  const program = new ProgramBuilder({
    collective,
    algorithm: programName(plan),
    ranks,
    root,
    chunksPerBlock: perBlock,
    channels: "paths" in plan ? Math.max(1, plan.channels) : 1,
    scratchChunks: scratchOf(plan, perBlock),
  });
  if (perBlock === 0) return program.build();
  if (plan.algorithm === "Symmetric") writeSymmetric(program, plan, perBlock);
  else if (plan.algorithm === "Copy") {
    const reduces = plan.op !== undefined;
    program.everyRank((lane) => lane.copy(input(0), output(0), { final: reduces }));
  } else writeChannels(program, plan, perBlock);
  return program.build();
}

/** Chunks of scratch: on a tree one for each piece of a block. */
function scratchOf(plan: NcclPlan, perBlock: number): number {
  if (plan.algorithm === "Symmetric") return isDealt(plan) ? perBlock : plan.ranks;
  if (plan.algorithm === "PAT") return plan.collective === "reduceScatter" ? perBlock : 0;
  if (plan.algorithm !== "Tree") return 0;
  return plan.paths.some(({ tree }) => tree.children.some(({ length }) => length > 1))
    ? perBlock
    : 0;
}

function isDealt({ collective, protocol }: SymmetricPlan): boolean {
  return collective === "allReduce" && protocol === "LD";
}

/** `Ring LL128`, `Symmetric LD`, `Copy`. */
export function programName(plan: NcclPlan): string {
  assertPlan("programName", plan);
  const { algorithm, protocol } = plan;
  return protocol === undefined ? algorithm : `${algorithm} ${protocol}`;
}

function writeChannels(program: ProgramBuilder, plan: ChannelPlan, perBlock: number): void {
  const { collective, algorithm, ranks, paths, parts, pieces } = plan;
  const firsts = new Map<number, number>();
  const lasts = new Map<number, number>();
  for (let i = 0; i < perBlock; i++) {
    const channel = pieces[i]?.channel ?? 0;
    if (!firsts.has(channel)) firsts.set(channel, i);
    lasts.set(channel, i + 1);
  }
  for (const part of parts) {
    const { channel } = part;
    const first = firsts.get(channel) ?? 0;
    const path = paths[channel];
    if (path === undefined) continue;
    const range = { program, ranks, perBlock, channel, first, end: lasts.get(channel) ?? first };
    if (algorithm === "Tree") writeTree({ ...range, tree: path.tree });
    else if (algorithm === "PAT") writePat({ ...range, tree: patOf(plan, part) });
    else ringWriters[collective]({ ...range, ring: path.ring });
  }
}

/** One channel of a program: its pieces `first` to `end` of each block. */
interface ChannelRange {
  readonly program: ProgramBuilder;
  readonly ranks: number;
  /** Pieces of a block. */
  readonly perBlock: number;
  readonly channel: number;
  readonly first: number;
  readonly end: number;
}

/** One channel of a program with its tree: of ranks, or of distances for PAT. */
interface TreeChannel extends ChannelRange {
  readonly tree: Tree;
}

const ringWriters: { readonly [C in ChannelPlan["collective"]]: (ring: RingChannel) => void } = {
  allReduce: writeRingAllReduce,
  reduceScatter: writeRingReduceScatter,
  reduce: writeRingReduce,
  allGather: writeRingAllGather,
  broadcast: writeRingBroadcast,
};

/** One channel of a program with its ring. */
interface RingChannel extends ChannelRange {
  readonly ring: readonly number[];
}

/** A rank of the ring with its neighbours. */
interface RingRank {
  readonly lane: Lane;
  readonly rank: number;
  readonly position: number;
  readonly previous: number;
  readonly next: number;
}

/** Each loop has a chunk for every position; chunk p is folded up to position p and distributed from there. */
function writeRingAllReduce(channel: RingChannel): void {
  const { ranks, first, end } = channel;
  forEachRank(channel, ({ lane, position, previous, next }) => {
    for (let loop = first; loop < end; loop += ranks) {
      const chunk = (back: number): number => loop + ((position + 2 * ranks - back) % ranks);
      lane.send(input(chunk(1)), next);
      for (let back = 2; back < ranks; back++) {
        lane.recvReduceSend(previous, input(chunk(back)), next);
      }
      lane.recvReduceCopySend(previous, input(chunk(0)), output(chunk(0)), next, { final: true });
      for (let back = 1; back < ranks - 1; back++) {
        lane.recvCopySend(previous, output(chunk(back)), next);
      }
      lane.recv(previous, output(chunk(ranks - 1)));
    }
  });
}

/** In each loop the blocks of all ranks go round once, and end at their ranks. */
function writeRingReduceScatter(channel: RingChannel): void {
  const { ranks, perBlock, first, end, ring } = channel;
  forEachRank(channel, ({ lane, position, previous, next }) => {
    for (let piece = first; piece < end; piece++) {
      const block = (back: number): number =>
        input(ringAt(ring, position - back) * perBlock + piece);
      lane.send(block(1), next);
      for (let back = 2; back < ranks; back++) lane.recvReduceSend(previous, block(back), next);
      lane.recvReduceCopy(previous, block(ranks), output(piece), { final: true });
    }
  });
}

/** From the rank after the root round to the root. */
function writeRingReduce(channel: RingChannel): void {
  const { ranks, first, end, ring, program } = channel;
  const root = ring.indexOf(program.root);
  forEachRank(channel, ({ lane, position, previous, next }) => {
    const place = (position - root + ranks) % ranks;
    for (let piece = first; piece < end; piece++) {
      if (place === 1) lane.send(input(piece), next);
      else if (place > 1) lane.recvReduceSend(previous, input(piece), next);
      else lane.recvReduceCopy(previous, input(piece), output(piece), { final: true });
    }
  });
}

/** In each loop every rank's block goes round once. */
function writeRingAllGather(channel: RingChannel): void {
  const { ranks, perBlock, first, end, ring } = channel;
  forEachRank(channel, ({ lane, rank, position, previous, next }) => {
    for (let piece = first; piece < end; piece++) {
      const block = (back: number): number =>
        output(ringAt(ring, position - back) * perBlock + piece);
      // In place the copy has equal source and target, so the input is sent first.
      lane.send(input(piece), next).copy(input(piece), output(rank * perBlock + piece));
      for (let back = 1; back < ranks - 1; back++) lane.recvCopySend(previous, block(back), next);
      lane.recv(previous, block(ranks - 1));
    }
  });
}

/** From the root round to the rank before it. */
function writeRingBroadcast(channel: RingChannel): void {
  const { ranks, first, end, ring, program } = channel;
  const root = ring.indexOf(program.root);
  forEachRank(channel, ({ lane, position, previous, next }) => {
    const place = (position - root + ranks) % ranks;
    for (let piece = first; piece < end; piece++) {
      if (place === 0) lane.send(input(piece), next).copy(input(piece), output(piece));
      else if (place < ranks - 1) lane.recvCopySend(previous, output(piece), next);
      else lane.recv(previous, output(piece));
    }
  });
}

function forEachRank(
  { program, ring, channel }: RingChannel,
  write: (rank: RingRank) => void,
): void {
  ring.forEach((rank, position) => {
    const lane = program.lane(rank, channel);
    const previous = ringAt(ring, position - 1);
    write({ lane, rank, position, previous, next: ringAt(ring, position + 1) });
  });
}

/** All pieces of a channel up and down its tree. */
function writeTree({ program, channel, first, end, tree }: TreeChannel): void {
  const parents = new Map<number, number>();
  for (const { rank, depth } of levelsOf(tree)) {
    const lane = program.lane(rank, channel);
    const children = tree.children[rank] ?? [];
    for (const child of children) parents.set(child, rank);
    const parent = parents.get(rank);
    const delay = 2 * depth;
    for (let piece = first; piece < end + delay; piece++) {
      if (piece < end) {
        const up = { children, parent, held: scratch(piece) };
        foldChildren(lane, up, input(piece), output(piece));
      }
      const back = piece - delay;
      if (back < first || parent === undefined) continue;
      const [child, ...others] = children;
      if (child === undefined) lane.recv(parent, output(back));
      else lane.recvCopySend(parent, output(back), child);
      for (const other of others) lane.send(output(back), other);
    }
  }
}

/** A rank's part in one fold up a tree. */
interface Upward {
  readonly children: readonly number[];
  /** `undefined` for the root, which keeps the result. */
  readonly parent: number | undefined;
  /** Scratch for the value between two children. */
  readonly held: number;
}

/**
 * Folds a rank's contribution with its children's values and sends the result to its parent. The root stores it, and sends it
 * down to its children where `down` says so.
 */
function foldChildren(
  lane: Lane,
  { children, parent, held }: Upward,
  own: number,
  result: number,
  down: readonly number[] = parent === undefined ? children : [],
): void {
  if (children.length === 0 && parent !== undefined) lane.send(own, parent);
  children.forEach((child, i) => {
    const read = i === 0 ? own : held;
    if (i < children.length - 1) lane.recvReduceCopy(child, read, held);
    else if (parent !== undefined) lane.recvReduceSend(child, read, parent);
    else if (down[0] === undefined) lane.recvReduceCopy(child, read, result, { final: true });
    else lane.recvReduceCopySend(child, read, result, down[0], { final: true });
  });
  for (const child of down.slice(1)) lane.send(result, child);
}

/** Every block of a reduce-scatter up its tree to its owner, every block of an all-gather down to all. */
function writePat({ program, ranks, perBlock, channel, first, end, tree }: TreeChannel): void {
  const gathers = program.frame.collective === "allGather";
  const schedule = patSchedule(ranks);
  if (gathers) schedule.reverse();
  for (let rank = 0; rank < ranks; rank++) {
    const lane = program.lane(rank, channel);
    const behind = (steps: number): number => (rank - steps + ranks) % ranks;
    const ahead = (steps: number): number => (rank + steps) % ranks;
    for (let piece = first; piece < end; piece++) {
      for (const distance of schedule) {
        const block = ahead(distance) * perBlock + piece;
        const steps = (tree.children[distance] ?? []).map((child) => child - distance);
        const toParent = distance & -distance;
        if (gathers) {
          const result = output(block);
          const [next, ...others] = steps.map(behind).reverse();
          if (distance === 0) {
            if (next !== undefined) lane.send(input(piece), next);
            lane.copy(input(piece), result);
          } else if (next === undefined) lane.recv(ahead(toParent), result);
          else lane.recvCopySend(ahead(toParent), result, next);
          for (const other of others) lane.send(result, other);
        } else {
          const parent = distance === 0 ? undefined : ahead(toParent);
          const up = { children: steps.map(behind), parent, held: scratch(piece) };
          foldChildren(lane, up, input(block), output(piece), []);
        }
      }
    }
  }
}

/** Writes the program of a symmetric plan. */
function writeSymmetric(program: ProgramBuilder, plan: SymmetricPlan, perBlock: number): void {
  if (isDealt(plan)) writeDealt(program, plan);
  else writeDirect(program, plan, perBlock);
}

/** Every rank sends its contributions to the ranks that need them, and folds its own output. */
function writeDirect(program: ProgramBuilder, plan: SymmetricPlan, perBlock: number): void {
  const { ranks, collective, pieces } = plan;
  const blockOf = (rank: number): number => (collective === "reduceScatter" ? rank : 0);
  program.everyRank((lane, rank) => {
    const own = blockOf(rank);
    lane.copy(input(own * perBlock), scratch(rank));
    for (let step = 1; step < ranks; step++) {
      const to = (rank + step) % ranks;
      const from = (rank + ranks - step) % ranks;
      lane.send(input(blockOf(to) * perBlock), to).recv(from, scratch(from));
    }
    foldScratch(lane, ranksOf(pieces[own]?.order ?? []));
  });
}

function foldScratch(lane: Lane, order: readonly number[]): void {
  const [first = 0, ...rest] = order;
  rest.forEach((rank, i) => {
    const last = i === rest.length - 1;
    const target = last ? output(0) : scratch(first);
    lane.reduce(scratch(first), scratch(rank), target, { final: last });
  });
}

/** Each range is folded by its owner, which then stores the result on every rank. */
function writeDealt(program: ProgramBuilder, { pieces }: SymmetricPlan): void {
  program.everyRank((lane, rank) => {
    pieces.forEach(({ order }, piece) => {
      const [owner = 0, ...others] = ranksOf(order);
      if (rank !== owner) {
        lane.send(input(piece), owner);
        return;
      }
      lane.copy(input(piece), scratch(piece));
      others.forEach((from, i) => {
        const last = i === others.length - 1;
        const target = last ? output(piece) : scratch(piece);
        lane.recvReduceCopy(from, scratch(piece), target, { final: last });
      });
    });
    pieces.forEach(({ order }, piece) => {
      const [owner = 0, ...others] = ranksOf(order);
      if (rank !== owner) lane.recv(owner, output(piece));
      else for (const other of others) lane.send(output(piece), other);
    });
  });
}
