/**
 * Calls with both buffers in symmetric windows: choice of the kernel and its blocks, fold orders, and a defect.
 *
 * In the low-latency kernel (LL) every rank sends everything and the receiver folds. In the direct one (LD) a rank loads
 * the elements that it folds from all others. NCCL models the time of both and adds a small penalty for every block.
 *
 * The direct all-reduce deals the buffer to the ranks. Most of it goes out in ranges, long ones first, one to each
 * rank in turn. A range is folded by its rank, which begins with its own contribution. The rest at both ends goes out
 * in runs of 32 elements.
 *
 * Defect, from 2.27.3 to 2.29.7: the low-latency kernels load packs of 8 bytes wrongly from addresses that are not
 * multiples of 4. Only 1- and 2-byte elements can have such addresses. The last bytes of a pack then come from a register
 * that was never filled. Such a call is marked and refused before it runs, not imitated.
 *
 * Defect of 2.28.3, gone in 2.28.7: in a reduce-scatter or all-gather, the parts of the ranks lie one after another. A block
 * that moves whole packs of 8 bytes takes their distance for a multiple of 8. Where several blocks share the call and
 * the distance is no such multiple, it reads, or writes, beside the parts.
 */

import type { SymmetricPlace } from "../../api/backend-entry.ts";
import { bytesOf, type DType } from "../../api/dtype.ts";
import type { ReduceOp } from "../../api/reduce-op.ts";
import type { NcclPlan, PlanFacts, SymmetricKernel } from "./plan-types.ts";
import {
  assertPlan,
  channelLimit,
  type NcclCollective,
  type ResolvedSettings,
  rulesOf,
} from "./rules.ts";

/** Collectives with symmetric kernels that fold. */
export type SymmetricCollective = Extract<NcclCollective, "allReduce" | "reduceScatter">;

/** Collectives with symmetric kernels. An all-gather stores what a reduce-scatter loads, at the same modelled cost. */
type KernelCollective = SymmetricCollective | "allGather";

/** Bytes of a cell; blocks share whole cells. */
const symmetricCell = 1024;

/** Bytes a microsecond, for each GiB/s. */
const gibPerSecond = 2 ** 30 / 1e6;
const peak = 320 * gibPerSecond;

const types: readonly DType[] = ["float32", "float16", "bfloat16", "float8e4m3", "float8e5m2"];

/** True for calls that take a symmetric kernel if their buffers allow it: plain sums of floats up to 4 bytes. */
export function hasSymmetricKernel(
  collective: NcclCollective,
  dtype: DType,
  op: ReduceOp | undefined,
): collective is SymmetricCollective {
  const folds = collective === "allReduce" || collective === "reduceScatter";
  return folds && op === "sum" && types.includes(dtype);
}

/** NCCL's kernel for a call that is alone in its group, and the number of blocks. */
export function chooseSymmetric(
  collective: KernelCollective,
  ranks: number,
  bytes: number,
  settings: ResolvedSettings,
): { readonly kernel: SymmetricKernel; readonly blocks: number } {
  const cells = Math.ceil(bytes / symmetricCell);
  const score = (kernel: SymmetricKernel): { budget: number; score: number } => {
    const time = (blocks: number): number =>
      predictedTime(collective, kernel, ranks, cells * symmetricCell, blocks);
    const budget = enoughBlocks(time, settings);
    const penalty = Math.fround(1 + 0.025 * budget);
    return { budget, score: Math.fround(Math.fround(time(budget)) * penalty) };
  };
  const ll = score("LL");
  const ld = score("LD");
  const direct = ld.score < ll.score;
  const budget = direct ? ld.budget : ll.budget;
  const blocks = Math.ceil(cells / Math.ceil(cells / budget));
  return { kernel: direct ? "LD" : "LL", blocks };
}

/** The least number of blocks with a time within 2.5 % of the time at the limit. */
function enoughBlocks(
  time: (blocks: number) => number,
  { minChannels, maxChannels }: ResolvedSettings,
): number {
  const most = Math.min(channelLimit, maxChannels);
  const limit = 1.025 * Math.fround(time(most));
  let blocks = minChannels;
  while (blocks < most && time(blocks) > limit) blocks++;
  return blocks;
}

/** NCCL's model, in microseconds. */
function predictedTime(
  collective: KernelCollective,
  kernel: SymmetricKernel,
  ranks: number,
  bytes: number,
  blocks: number,
): number {
  const softness = (collective === "allReduce" ? 65 : 44) * gibPerSecond;
  const bandwidth =
    peak - softness * Math.log1p((Math.exp(peak / softness) - 1) * Math.exp(-blocks));
  const base = kernel === "LL" ? 4.5 : 7.8;
  return base + softplus(busBytes(collective, kernel, ranks, bytes) / bandwidth - 1);
}

function busBytes(
  collective: KernelCollective,
  kernel: SymmetricKernel,
  ranks: number,
  bytes: number,
): number {
  if (kernel === "LL") return 9 * ranks * bytes;
  if (collective !== "allReduce") return (ranks - 1) * bytes;
  return Math.floor((2 * bytes * (ranks - 1)) / ranks);
}

function softplus(z: number): number {
  return z >= 100 ? z : Math.log1p(Math.exp(z));
}

/** A range of elements with folds that begin at one rank. */
interface ElementRange {
  readonly offset: number;
  readonly length: number;
  /** The rank that folds them, beginning with its own contribution. */
  readonly first: number;
}

/** The facts of a call that decide its ranges. */
interface RangeQuestion {
  readonly ranks: number;
  readonly blocks: number;
  readonly count: number;
  readonly elementBytes: number;
  /** Bytes from the start of its window to each buffer. */
  readonly sendOffset: number;
  readonly recvOffset: number;
}

/** Bytes of the ranges of both stages; they are dealt in fours. */
const spans = [2048, 512] as const;
const together = 4;
const runElements = 32;

/** The ranges of a call, in the order of their elements. */
export function elementRangesOf(question: RangeQuestion): ElementRange[] {
  const { ranks, blocks, count, elementBytes, sendOffset, recvOffset } = question;
  const bytes = count * elementBytes;
  const prefix = Math.min((16 - (sendOffset % 16)) % 16, bytes);
  const dealt: ElementRange[] = [];
  let at = prefix;
  for (const span of spans) {
    if (!isStageAligned(span, elementBytes, [sendOffset - recvOffset])) continue;
    let quads = Math.floor((bytes - at) / (together * span));
    quads -= quads % (ranks * blocks);
    for (let number = 0; number < together * quads; number++, at += span) {
      const offset = at / elementBytes;
      dealt.push({ offset, length: span / elementBytes, first: number % ranks });
    }
  }
  const head = prefix / elementBytes;
  const tail = at / elementBytes;
  return [...runsOf(0, head, 0, ranks), ...dealt, ...runsOf(tail, count, head, ranks)];
}

/** Peers that a warp loads from at once, by stage and for runs of elements; a stage loads from its first peer alone. */
const peersAtOnce = [2, 4] as const;
const peersOfRuns = 8;

/** Warps of a block, and threads of a warp. */
const warps = 16;
const lanes = 32;

/** A call of a direct kernel. */
interface DirectCall {
  readonly collective: KernelCollective;
  readonly ranks: number;
  readonly blocks: number;
  /** Bytes of the count. */
  readonly bytes: number;
  readonly elementBytes: number;
  readonly place: SymmetricPlace;
}

/** Times that a warp of a direct kernel that folds waits for loads from other ranks, one after another. */
export function loadsOf(call: DirectCall): number {
  const { ranks } = call;
  const { stages, runs } = roundsOf(call);
  let loads = runs * Math.ceil((ranks - 1) / peersOfRuns);
  stages.forEach((rounds, stage) => {
    loads += rounds * (1 + Math.ceil((ranks - 2) / (peersAtOnce[stage] as number)));
  });
  return loads;
}

/** Rounds of a warp of a direct kernel, one after another: each begins with loads of its rank's own buffer. */
export function warpRounds(call: DirectCall): number {
  const { stages, runs } = roundsOf(call);
  return stages.reduce((all, rounds) => all + rounds, runs);
}

/** True where packs of 16 bytes line up at source and target on every rank. */
export function movesPacks(call: DirectCall): boolean {
  return isStageAligned(spans[0], call.elementBytes, distancesOf(call));
}

/** Rounds of a warp: in each stage, and of runs of elements. */
function roundsOf(call: DirectCall): { readonly stages: readonly number[]; readonly runs: number } {
  const { collective, ranks, blocks, bytes, elementBytes } = call;
  const sharing = warps * blocks * (collective === "allReduce" ? ranks : 1);
  const distances = distancesOf(call);
  let rest = bytes;
  const stages = spans.map((span) => {
    if (!isStageAligned(span, elementBytes, distances)) return 0;
    const left = rest % (ranks * blocks * together * span);
    const rounds = Math.ceil((rest - left) / (sharing * span));
    rest = left;
    return rounds;
  });
  return { stages, runs: Math.ceil(rest / (sharing * lanes * elementBytes)) };
}

/** Bytes between source and target of each rank, from an aligned base; none in place. */
function distancesOf({ collective, ranks, bytes, place }: DirectCall): number[] {
  if (place.inPlace) return [];
  const apart = place.send - place.recv;
  if (collective === "allReduce") return [apart];
  const step = collective === "allGather" ? -bytes : bytes;
  return Array.from({ length: ranks }, (_, rank) => apart + rank * step);
}

/** The wide stage moves packs of 16 bytes on both sides, the narrow one words of 4. */
function isStageAligned(
  span: (typeof spans)[number],
  elementBytes: number,
  distances: readonly number[],
): boolean {
  if (span === 2048) return distances.every((bytes) => bytes % 16 === 0);
  return elementBytes === 4 || distances.every((bytes) => bytes % 4 === 0);
}

/** Elements `from` to `to` as runs; `number` counts the remaining elements before them. */
function runsOf(from: number, to: number, number: number, ranks: number): ElementRange[] {
  const found: ElementRange[] = [];
  for (let offset = from, index = number; offset < to; ) {
    const length = Math.min(runElements - (index % runElements), to - offset);
    found.push({ offset, length, first: Math.floor(index / runElements) % ranks });
    offset += length;
    index += length;
  }
  return found;
}

/** The facts that decide the addresses from which blocks are loaded. */
type LoadedBlocks = Pick<PlanFacts, "collective" | "ranks"> & {
  /** Bytes of a block. */
  readonly bytes: number;
};

/** Bytes of one load. */
const packBytes = 8;
const wordBytes = 4;

/** The output blocks that a low-latency kernel computes from wrong loads. */
export function undefinedBlocks(call: LoadedBlocks, place: SymmetricPlace): number[] {
  const starts = startsOf(call, place);
  return starts.flatMap((start, block) => (losesBytes(start, call.bytes) ? [block] : []));
}

/**
 * The output blocks that a low-latency kernel takes from, or writes to, a wrong place, where `channels` share the call. From
 * buffers that begin between packs it moves elements, and rightly.
 */
export function misplacedBlocks(
  { collective, ranks, bytes }: LoadedBlocks,
  { send, recv }: SymmetricPlace,
  channels: number,
): number[] {
  const isPacked = send % packBytes === 0 && recv % packBytes === 0;
  if (collective === "allReduce" || channels < 2 || !isPacked || bytes % packBytes === 0) return [];
  return Array.from({ length: ranks - 1 }, (_, block) => block + 1);
}

/** The reason to refuse a call through symmetric memory; `undefined` when NCCL defines its result. */
export function undefinedReason(plan: NcclPlan): string | undefined {
  assertPlan("undefinedReason", plan);
  const { undefinedBlocks: blocks, collective, dtype, version, count } = plan;
  if (blocks.length === 0) return undefined;
  const bytes = count * bytesOf(dtype);
  const isMisplaced = rulesOf(version).misplaces && collective !== "allReduce";
  if (isMisplaced && bytes % packBytes !== 0 && bytes % wordBytes === 0) {
    return `symmetric ${dtype} in blocks of ${bytes} bytes, no multiple of 8: NCCL ${version} moves them between wrong places; take blocks of a multiple of 8 bytes, allocate without symmetric, or use NCCL from 2.28.7 on`;
  }
  const where = collective === "reduceScatter" ? ` (blocks ${blocks.join(", ")})` : "";
  return `symmetric ${dtype} at an address that is no multiple of 4${where}: NCCL ${version} gives wrong bits for it; align buffers and blocks to 4 bytes, or allocate without symmetric`;
}

/** Bytes from an aligned base to the source of each output block; a gather uses the caller's own block. */
function startsOf({ collective, ranks, bytes }: LoadedBlocks, { send }: SymmetricPlace): number[] {
  if (collective === "allReduce") return [send];
  const stride = collective === "reduceScatter" ? bytes : 0;
  return Array.from({ length: ranks }, (_, rank) => send + rank * stride);
}

/** True if bytes are lost: the last `shift` bytes of a pack or, in a block up to a word, those beyond that word. */
function losesBytes(start: number, bytes: number): boolean {
  const shift = start % wordBytes;
  if (shift === 0 || bytes === 0) return false;
  return shift + bytes > (bytes <= wordBytes ? wordBytes : packBytes);
}
