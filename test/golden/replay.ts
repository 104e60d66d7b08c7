/**
 * Replays recorded NCCL results: plans each call, folds its pieces in plan order, and compares hashes.
 *
 * This is the planner and the arithmetic alone, without the simulator around them.
 */
import { createHash } from "node:crypto";
import { readFileSync } from "node:fs";
import {
  bitsToNumber,
  type Fold,
  type Lanes,
  lanesOf,
} from "../../src/algorithms/arithmetic/index.ts";
import { planFolds } from "../../src/algorithms/nccl/folds.ts";
import { ncclPlan } from "../../src/algorithms/nccl/plan.ts";
import type { NcclPlan } from "../../src/algorithms/nccl/plan-shape.ts";
import type { NcclAlgorithm, NcclProtocol } from "../../src/algorithms/nccl/protocol.ts";
import { takeSeparate } from "../../src/algorithms/nccl/select.ts";
import type { NcclSettings } from "../../src/algorithms/nccl/settings.ts";
import { h200x8 } from "../../src/algorithms/nccl/topology.ts";
import { bytesOf, type DType, type NamedReduceOp, type ReduceOp } from "../../src/api/index.ts";
import { canonicalise } from "./canonical.ts";
import { fillInput, type GoldenDType, type InputClass } from "./inputs.ts";

/** One recorded call. */
export interface GoldenCase {
  readonly n: number;
  readonly ap: string;
  readonly coll: "allReduce" | "reduceScatter" | "reduce";
  readonly dt: GoldenDType;
  readonly op: NamedReduceOp | "preMul";
  readonly count: number;
  readonly cls: "norm" | "wild";
  readonly root?: number;
  readonly h: string | readonly string[];
  readonly env?: string;
  readonly inplace?: boolean;
  readonly offset?: number;
}

export const dtypeNames: { readonly [D in GoldenDType]: DType } = {
  i8: "int8",
  u8: "uint8",
  i32: "int32",
  u32: "uint32",
  i64: "int64",
  u64: "uint64",
  f16: "float16",
  f32: "float32",
  f64: "float64",
  bf16: "bfloat16",
  e4m3: "float8e4m3",
  e5m2: "float8e5m2",
};

const scalars: { readonly [D in GoldenDType]: number | bigint } = {
  i8: 3,
  u8: 3,
  i32: 3,
  u32: 3,
  i64: 3,
  u64: 3,
  f16: bitsToNumber("float16", 0x34cd),
  f32: 0.3,
  f64: 0.3,
  bf16: bitsToNumber("bfloat16", 0x3e9a),
  e4m3: bitsToNumber("float8e4m3", 0x2a),
  e5m2: bitsToNumber("float8e5m2", 0x35),
};

export const environments: { readonly [env: string]: NcclSettings } = {
  plain: {},
  sym: {},
  ch1: { maxChannels: 1 },
  ch5: { maxChannels: 5, buffSize: 262_144 },
  smallbuf: { buffSize: 65_536, llBuffSize: 32_768, ll128BuffSize: 122_880 },
};

/** The cases of a file beside this one. */
export function readCases(name: string): GoldenCase[] {
  const text = readFileSync(new URL(name, import.meta.url), "utf8");
  return text
    .split("\n")
    .filter((line) => line !== "")
    .map((line) => JSON.parse(line) as GoldenCase);
}

/** The name that a case's inputs are drawn from. */
export function idOf({
  env,
  n,
  ap,
  coll,
  dt,
  op,
  count,
  cls,
  inplace,
  offset,
}: GoldenCase): string {
  const id = `${n}/${ap}/${coll}/${dt}/${op}/${count}/${cls}`;
  return env === undefined ? id : `${env}/${id}/${inplace === true ? 1 : 0}/${offset ?? 0}`;
}

/** The plan of a recorded call. */
function planOf({ n, ap, coll, dt, op, count, root, env, offset = 0 }: GoldenCase): NcclPlan {
  const dtype = dtypeNames[dt];
  const [algorithm, protocol] = ap.split("-") as [NcclAlgorithm, NcclProtocol];
  const bytes = offset * bytesOf(dtype);
  return ncclPlan({
    version: "2.28.9",
    topology: h200x8(n),
    collective: coll,
    dtype,
    op: opOf(op, dt),
    count,
    root,
    settings: env === undefined ? {} : environments[env],
    forced: ap === "default" ? undefined : { algorithm, protocol },
    symmetric: env === "sym" ? { send: bytes, recv: bytes } : undefined,
  });
}

/** Replays cases in memory that is kept from one to the next. */
export class Replay {
  readonly #inputs: ArrayBuffer[] = [];
  #output = new ArrayBuffer(0);
  #block = new ArrayBuffer(blockElements * 8);

  /** True when every hash of the case comes out. */
  agrees(golden: GoldenCase): boolean {
    const found = this.hashes(golden);
    const expected = typeof golden.h === "string" ? [golden.h] : golden.h;
    return found.length === expected.length && found.every((hash, i) => hash === expected[i]);
  }

  /** Hashes of a case's output blocks. */
  hashes(golden: GoldenCase): string[] {
    const { n, coll, dt, op, count, cls } = golden;
    const dtype = dtypeNames[dt];
    const blocks = coll === "reduceScatter" ? n : 1;
    const bytes = blocks * count * bytesOf(dtype);
    const drawn: InputClass = cls === "wild" ? "wild" : op === "prod" ? "narrow" : "norm";
    const id = idOf(golden);
    const inputs = Array.from({ length: n }, (_, rank) => {
      const memory = grown(this.#inputs[rank], bytes);
      this.#inputs[rank] = memory;
      fillInput(memory, blocks * count, dt, drawn, id, rank);
      return lanesOf(dtype, memory, 0, bytes);
    });
    this.#output = grown(this.#output, bytes);
    const output = lanesOf(dtype, this.#output, 0, bytes);
    const plan = planOf(golden);
    this.#fold(plan, opOf(op, dt), inputs, output);
    const dropsSignOfZero = op === "min" || op === "max";
    return Array.from({ length: blocks }, (_, block) => {
      canonicalise(this.#output, block * count, count, dt, dropsSignOfZero);
      const blockBytes = count * bytesOf(dtype);
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

export function opOf(op: GoldenCase["op"], dt: GoldenDType): ReduceOp {
  return op === "preMul" ? { preMul: scalars[dt] } : op;
}

function grown(memory: ArrayBuffer | undefined, bytes: number): ArrayBuffer {
  return memory !== undefined && memory.byteLength >= bytes ? memory : new ArrayBuffer(bytes);
}
