/**
 * Which symmetric kernel runs, and on how many blocks, when both buffers lie in symmetric windows.
 *
 * In the low-latency kernel (LL) every rank sends everything and the receiver folds; in the direct one (LD) a rank
 * loads from all others what it folds. NCCL models the time of both and charges a little for every block.
 */
import type { DType } from "../../api/dtype.ts";
import type { ReduceOp } from "../../api/reduce-op.ts";
import type { NcclCollective } from "./protocol.ts";
import { mostChannels, type ResolvedSettings } from "./settings.ts";

/** The two symmetric kernels that do without multicast. */
export type SymmetricKernel = "LL" | "LD";

/** Collectives that have symmetric kernels which fold. */
export type SymmetricCollective = Extract<NcclCollective, "allReduce" | "reduceScatter">;

/** Bytes of a cell; blocks share whole cells. */
const symmetricCell = 1024;

/** Bytes a microsecond, for each GiB/s. */
const gibPerSecond = 2 ** 30 / 1e6;
const peak = 320 * gibPerSecond;

const types: readonly DType[] = ["float32", "float16", "bfloat16", "float8e4m3", "float8e5m2"];

/** True for calls that take a symmetric kernel once their buffers allow it: plain sums of floats up to 4 bytes. */
export function hasSymmetricKernel(
  collective: NcclCollective,
  dtype: DType,
  op: ReduceOp | undefined,
): collective is SymmetricCollective {
  const folds = collective === "allReduce" || collective === "reduceScatter";
  return folds && op === "sum" && types.includes(dtype);
}

/** The kernel NCCL takes for a lone call, and the blocks it runs on. */
export function chooseSymmetric(
  collective: SymmetricCollective,
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

/** The fewest blocks that come close to the time of the most. */
function enoughBlocks(
  time: (blocks: number) => number,
  { minChannels, maxChannels }: ResolvedSettings,
): number {
  const most = Math.min(mostChannels, maxChannels);
  const limit = 1.025 * Math.fround(time(most));
  let blocks = minChannels;
  while (blocks < most && time(blocks) > limit) blocks++;
  return blocks;
}

/** NCCL's model, in microseconds. */
function predictedTime(
  collective: SymmetricCollective,
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
  collective: SymmetricCollective,
  kernel: SymmetricKernel,
  ranks: number,
  bytes: number,
): number {
  if (kernel === "LL") return 9 * ranks * bytes;
  if (collective === "reduceScatter") return (ranks - 1) * bytes;
  return Math.floor((2 * bytes * (ranks - 1)) / ranks);
}

function softplus(z: number): number {
  return z >= 100 ? z : Math.log1p(Math.exp(z));
}
