/**
 * Replays recorded NCCL results: plans each call, folds its pieces in plan order, and compares hashes.
 *
 * This is the planner and the arithmetic alone, without the simulator around them.
 */
import { createHash } from "node:crypto";
import { readFileSync } from "node:fs";
import { type Fold, type Lanes, lanesOf } from "../../src/algorithms/arithmetic/index.ts";
import { ncclPlan, planFolds, takeSeparate } from "../../src/algorithms/nccl/plan.ts";
import type { NcclPlan } from "../../src/algorithms/nccl/plan-types.ts";
import { h200x8 } from "../../src/algorithms/nccl/topology.ts";
import { bytesOf, dtypeInfo, type ReduceOp } from "../../src/api/index.ts";
import { isSymmetric, operatorOf, sentBlocks, setupOf } from "../../src/golden/case.ts";
import type { GoldenRecord } from "../../src/golden/format.ts";
import { inputOf } from "../../src/golden/inputs.ts";
import { canonicalForm } from "../../src/golden/outputs.ts";
import { readRecords } from "../../src/golden/read.ts";

/** The records of a file beside this one. */
export function recordsOf(name: string): readonly GoldenRecord[] {
  return readRecords(readFileSync(new URL(name, import.meta.url), "utf8"), name).cases;
}

/** The plan of a recorded call. */
function planOf(golden: GoldenRecord): NcclPlan {
  const { ranks, forced, collective, dtype, count, root, offset } = golden;
  const bytes = offset * bytesOf(dtype);
  return ncclPlan({
    version: "2.28.9",
    topology: h200x8(ranks),
    collective,
    dtype,
    op: operatorOf(golden),
    count,
    root,
    settings: setupOf(golden),
    forced,
    symmetric: isSymmetric(golden) ? { send: bytes, recv: bytes } : undefined,
  });
}

/** Replays cases in memory that is kept from one to the next. */
export class Replay {
  #output = new ArrayBuffer(0);
  #block = new ArrayBuffer(blockElements * 8);

  /** True when every hash of the case comes out. */
  agrees(golden: GoldenRecord): boolean {
    const found = this.hashes(golden);
    const expected = typeof golden.hashes === "string" ? [golden.hashes] : golden.hashes;
    return found.length === expected.length && found.every((hash, i) => hash === expected[i]);
  }

  /** Hashes of a case's output blocks. */
  hashes(golden: GoldenRecord): string[] {
    const { ranks, dtype, op, count } = golden;
    const blocks = sentBlocks(golden);
    const blockBytes = count * bytesOf(dtype);
    const bytes = blocks * blockBytes;
    const inputs = Array.from({ length: ranks }, (_, rank) =>
      lanesOf(dtype, inputOf(golden, rank).buffer as ArrayBuffer, 0, bytes),
    );
    this.#output = grown(this.#output, bytes);
    this.#fold(planOf(golden), operatorOf(golden), inputs, lanesOf(dtype, this.#output, 0, bytes));
    return Array.from({ length: blocks }, (_, block) => {
      canonicalForm(dtypeInfo[dtype].view(this.#output, block * blockBytes, count), dtype, op);
      const view = new Uint8Array(this.#output, block * blockBytes, blockBytes);
      return createHash("sha256").update(view).digest("hex").slice(0, 16);
    });
  }

  #fold(plan: NcclPlan, op: ReduceOp, inputs: readonly Lanes[], output: Lanes): void {
    const { count } = plan;
    const { fold, separate } = planFolds(plan, op);
    for (const { block, offset, length, order } of plan.pieces) {
      if (length === 0) continue;
      const at = block * count + offset;
      const sources = order.map((rank) => inputs[rank] as Lanes);
      if (separate !== undefined) this.#foldByPosition(fold, separate, sources, output, at, length);
      else
        fold.chain(
          output,
          at,
          sources,
          sources.map(() => at),
          length,
        );
      fold.finish(output, at, length);
    }
  }

  #foldByPosition(
    fused: Fold,
    apart: Fold,
    sources: readonly Lanes[],
    output: Lanes,
    at: number,
    length: number,
  ): void {
    const elementBytes = bytesOf(fused.dtype);
    const block = lanesOf(fused.dtype, this.#block, 0, blockElements * elementBytes);
    for (let done = 0; done < length; done += blockElements) {
      const count = Math.min(blockElements, length - done);
      const ats = sources.map(() => at + done);
      fused.chain(output, at + done, sources, ats, count);
      apart.chain(block, 0, sources, ats, count);
      const target = output.subarray(at + done, at + done + count);
      takeSeparate(target, block, count, elementBytes, done);
    }
  }
}

const blockElements = 2048;

function grown(memory: ArrayBuffer, bytes: number): ArrayBuffer {
  return memory.byteLength >= bytes ? memory : new ArrayBuffer(bytes);
}
