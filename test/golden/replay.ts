/**
 * Replays recorded NCCL results: plans each call, folds its pieces in plan order, and compares hashes.
 *
 * This is the planner and the arithmetic alone, without the simulator around them.
 */
import { createHash } from "node:crypto";
import { readFileSync } from "node:fs";
import {
  type Fold,
  type Lanes,
  lanesOf,
  lanesPerElement,
} from "../../src/algorithms/arithmetic/index.ts";
import type { FoldOrder } from "../../src/algorithms/nccl/fold-order.ts";
import { machineOf, type TopologyOption } from "../../src/algorithms/nccl/machines.ts";
import { planFolds, takeSeparate } from "../../src/algorithms/nccl/plan.ts";
import type { NcclPlan } from "../../src/algorithms/nccl/plan-types.ts";
import { ncclPlan } from "../../src/algorithms/nccl/request.ts";
import { bytesOf, dtypeInfo, type ReduceOp } from "../../src/api/index.ts";
import { environments, isSymmetric, operatorOf, sentBlocks } from "../../src/golden/case.ts";
import type { GoldenRecord } from "../../src/golden/format.ts";
import { inputOf } from "../../src/golden/inputs.ts";
import { canonicalForm } from "../../src/golden/outputs.ts";
import { type GoldenFile, readRecords } from "../../src/golden/read.ts";

/** A file of records beside this one. */
export function recordsOf(name: string): GoldenFile<GoldenRecord> {
  return readRecords(readFileSync(new URL(name, import.meta.url), "utf8"), name);
}

/** The plan of a recorded call on a machine. */
function planOf(golden: GoldenRecord, machine: TopologyOption): NcclPlan {
  const { ranks, forced, collective, dtype, count, root, offset, environment = "plain" } = golden;
  const bytes = offset * bytesOf(dtype);
  return ncclPlan({
    version: "2.28.9",
    topology: machineOf(machine)(ranks),
    collective,
    dtype,
    op: operatorOf(golden),
    count,
    root,
    settings: environments[environment],
    forced,
    symmetric: isSymmetric(golden) ? { send: bytes, recv: bytes } : undefined,
  });
}

/** Replays cases in memory that is kept from one to the next. */
export class Replay {
  #output = new ArrayBuffer(0);
  readonly #machine: TopologyOption;

  constructor(machine: TopologyOption) {
    this.#machine = machine;
  }

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
    this.#fold(
      planOf(golden, this.#machine),
      operatorOf(golden),
      inputs,
      lanesOf(dtype, this.#output, 0, bytes),
    );
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
      for (let done = 0; done < length; done += blockElements) {
        const size = Math.min(blockElements, length - done);
        const at = block * count + offset + done;
        const value = foldedBlock(fold, order, inputs, at, size);
        if (separate !== undefined) {
          const apart = foldedBlock(separate, order, inputs, at, size);
          takeSeparate(value, apart, size, bytesOf(plan.dtype), done);
        }
        fold.finish(value, 0, size);
        output.set(value, at * lanesPerElement(plan.dtype));
      }
    }
  }
}

const blockElements = 2048;

/** Elements `at` to `at + count` of all inputs, folded in an order. */
function foldedBlock(
  fold: Fold,
  order: FoldOrder,
  inputs: readonly Lanes[],
  at: number,
  count: number,
): Lanes {
  const bytes = count * bytesOf(fold.dtype);
  const value = lanesOf(fold.dtype, new ArrayBuffer(bytes), 0, bytes);
  const nested = order.findIndex((each) => typeof each !== "number");
  const ranks = (nested < 0 ? order : order.slice(0, nested)) as readonly number[];
  const starts = ranks.map(() => at);
  fold.chain(
    value,
    0,
    ranks.map((rank) => inputs[rank] as Lanes),
    starts,
    count,
  );
  for (const each of order.slice(ranks.length)) {
    if (typeof each === "number") {
      fold.addContribution(value, 0, inputs[each] as Lanes, at, count);
    } else fold.addPartial(value, 0, foldedBlock(fold, each, inputs, at, count), 0, count);
  }
  return value;
}

function grown(memory: ArrayBuffer, bytes: number): ArrayBuffer {
  return memory.byteLength >= bytes ? memory : new ArrayBuffer(bytes);
}
