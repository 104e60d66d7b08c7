/**
 * The call of every collective: the lengths of a rank's buffers, their overlap in place, and the arguments.
 *
 * All of it follows from the specifications and the names of arguments, so a new collective needs no row here. It says
 * nothing of results: oracles that use these lengths stay independent of the specifications' `expected`.
 */

import { argumentNames } from "../argument-names.ts";
import type { Communicator } from "../communicator.ts";
import type { Operation } from "../op.ts";
import type { CollectiveName } from "../specification.ts";
import { runningSum, sum } from "../sums.ts";
import { type SpecifiedCollective, specifications } from "./index.ts";

/** The counts of one call, in elements. */
export interface CallCounts {
  readonly ranks: number;
  /** Any number where the collective has no root. */
  readonly root: number;
  /** Length of a block where all blocks are alike. */
  readonly count: number;
  /** Lengths of the ranks' blocks, where they differ. */
  readonly counts?: readonly number[] | undefined;
  /** Row i: the lengths that rank i sends to each rank. */
  readonly traffic?: readonly (readonly number[])[] | undefined;
}

/** The lengths of the blocks of one rank's buffers; empty where it has none. */
export interface BlockLengths {
  readonly send: readonly number[];
  readonly recv: readonly number[];
}

/** Arguments of any collective. */
export interface CallArguments {
  readonly send?: unknown;
  readonly recv?: unknown;
  readonly op?: unknown;
  readonly root?: number | undefined;
  readonly sendCounts?: readonly number[] | undefined;
  readonly sendOffsets?: readonly number[] | undefined;
  readonly recvCounts?: readonly number[] | undefined;
  readonly recvOffsets?: readonly number[] | undefined;
}

type ArgumentName = keyof CallArguments;

/** Every collective with a specification. */
export const specifiedCollectives = Object.keys(specifications) as readonly SpecifiedCollective[];

/** True when calls of the collective have the argument. */
export function takesArgument(collective: CollectiveName, name: ArgumentName): boolean {
  return Object.hasOwn(argumentNames[collective], name);
}

/** True when the blocks of one call may differ in length. */
export function hasUnevenBlocks(collective: CollectiveName): boolean {
  return takesArgument(collective, "sendCounts") || takesArgument(collective, "recvCounts");
}

/** True when `send` and `recv` of a rank may overlap. */
export function hasInPlaceForm(collective: SpecifiedCollective): boolean {
  return specifications[collective].inPlace(1, 0, 0, 0) !== undefined;
}

/** The blocks of a rank's buffers in a call. */
export function blockLengths(
  collective: SpecifiedCollective,
  call: CallCounts,
  rank: number,
): BlockLengths {
  const { ranks, root, count, counts, traffic } = call;
  const { inBlocks, outBlocks } = specifications[collective];
  if (traffic !== undefined) {
    return { send: traffic[rank] ?? [], recv: traffic.map((row) => row[rank] ?? 0) };
  }
  // As many blocks as ranks are one for every rank; a single one is the rank's own.
  const lengths = (blocks: number): readonly number[] => {
    if (counts === undefined) return new Array<number>(blocks).fill(count);
    if (blocks === ranks) return counts;
    return blocks === 0 ? [] : [counts[rank] ?? 0];
  };
  return {
    send: lengths(inBlocks(ranks, rank, root)),
    recv: lengths(outBlocks(ranks, rank, root)),
  };
}

/** The lengths of a rank's buffers in a call; 0 where it has none. */
export function bufferLengths(
  collective: SpecifiedCollective,
  call: CallCounts,
  rank: number,
): { readonly send: number; readonly recv: number } {
  const { send, recv } = blockLengths(collective, call, rank);
  return { send: sum(send), recv: sum(recv) };
}

/**
 * Where `send` starts in place, counted from the start of `recv`; `undefined` where the rank has no such form. The offsets
 * of blocks are given where blocks do not follow one another.
 */
export function inPlaceOffset(
  collective: SpecifiedCollective,
  call: CallCounts,
  rank: number,
  {
    send = runningSum(blockLengths(collective, call, rank).send),
    recv = runningSum(blockLengths(collective, call, rank).recv),
  }: Partial<BlockLengths> = {},
): number | undefined {
  const { inPlace } = specifications[collective];
  for (const [block, start] of send.entries()) {
    const over = recv[inPlace(call.ranks, rank, block, call.root) ?? -1];
    if (over !== undefined) return over - start;
  }
  return undefined;
}

/** The arguments among `given` that the collective takes from this rank. Field by field, because benchmarks time it. */
function argumentsOf(
  { rank, size }: Communicator,
  collective: SpecifiedCollective,
  given: CallArguments,
): CallArguments {
  const { inBlocks, outBlocks, reduces, rooted } = specifications[collective];
  const { root = -1, sendCounts, sendOffsets, recvCounts, recvOffsets } = given;
  const takes = argumentNames[collective] as Partial<Readonly<Record<ArgumentName, true>>>;
  const args: { -readonly [N in ArgumentName]?: CallArguments[N] } = {};
  if (given.send !== undefined && inBlocks(size, rank, root) > 0) {
    args.send = given.send;
    if (sendCounts !== undefined && takes.sendCounts) args.sendCounts = sendCounts;
    if (sendOffsets !== undefined && takes.sendOffsets) args.sendOffsets = sendOffsets;
  }
  if (outBlocks(size, rank, root) > 0) {
    if (given.recv !== undefined) args.recv = given.recv;
    if (recvCounts !== undefined && takes.recvCounts) args.recvCounts = recvCounts;
    if (recvOffsets !== undefined && takes.recvOffsets) args.recvOffsets = recvOffsets;
  }
  if (reduces) args.op = given.op;
  if (rooted) args.root = root;
  return args;
}

/** Makes the call on one rank, with those of the given arguments that the collective takes from it. */
export function postCall(
  comm: Communicator,
  collective: SpecifiedCollective,
  given: CallArguments,
): Operation<unknown> {
  const methods = comm as unknown as Readonly<
    Record<SpecifiedCollective, (args: CallArguments) => Operation<unknown>>
  >;
  return methods[collective](argumentsOf(comm, collective, given));
}
