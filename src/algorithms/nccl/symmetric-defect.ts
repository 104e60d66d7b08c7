/**
 * Which results of the low-latency symmetric kernels NCCL does not define.
 *
 * From 2.27.3 to 2.29.7 these kernels load packs of 8 bytes wrongly from addresses that are no multiple of 4, which only
 * 1- and 2-byte elements can have: the last bytes of a pack come from a register that was never filled. What they hold
 * is an accident, so such a call is marked, and refused before it runs, and not imitated.
 */
import type { SymmetricPlace } from "../../api/symmetric.ts";
import type { NcclPlan, PlanFacts } from "./plan-shape.ts";

/** What tells the addresses that blocks are loaded from. */
export type LoadedBlocks = Pick<PlanFacts, "collective" | "ranks"> & {
  /** Bytes of a block. */
  readonly bytes: number;
};

/** Bytes that are loaded at a time. */
const packBytes = 8;
const wordBytes = 4;

/** The output blocks that a low-latency kernel computes from wrong loads. */
export function undefinedBlocks(call: LoadedBlocks, place: SymmetricPlace): number[] {
  const starts = startsOf(call, place);
  return starts.flatMap((start, block) => (loadsWrong(start, call.bytes) ? [block] : []));
}

/** Why a call through symmetric memory must not run; `undefined` when NCCL defines its result. */
export function undefinedReason(plan: NcclPlan): string | undefined {
  const { undefinedBlocks: blocks, collective, dtype, version } = plan;
  if (blocks.length === 0) return undefined;
  const where = collective === "reduceScatter" ? ` (blocks ${blocks.join(", ")})` : "";
  return `symmetric ${dtype} at an address that is no multiple of 4${where}: NCCL ${version} gives wrong bits for it; align buffers and blocks to 4 bytes, or allocate without symmetric`;
}

/** Bytes from an aligned base to what each output block is loaded from; in a gather that is the caller's own. */
function startsOf({ collective, ranks, bytes }: LoadedBlocks, { send }: SymmetricPlace): number[] {
  if (collective === "allReduce") return [send];
  const stride = collective === "reduceScatter" ? bytes : 0;
  return Array.from({ length: ranks }, (_, rank) => send + rank * stride);
}

/** The last `shift` bytes of a pack are lost, and of one that fits into a word whatever lies beyond that word. */
function loadsWrong(start: number, bytes: number): boolean {
  const shift = start % wordBytes;
  if (shift === 0 || bytes === 0) return false;
  return shift + bytes > (bytes <= wordBytes ? wordBytes : packBytes);
}
