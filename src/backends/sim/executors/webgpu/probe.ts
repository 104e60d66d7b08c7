/**
 * Tests a device's own addition on hard cases.
 *
 * WGSL lets a device flush subnormals, round either way, assume that there is no NaN, and regroup sums. So the very
 * kernels that would use its addition fold chains of eight, and every result is compared with the arithmetic of cpu().
 * Of float16 every value is added to all that bring the sum to a tie or next to one: what rounds those right, and never
 * a larger sum to a smaller value, rounds all of them right.
 */
import { type Fold, foldFor, lanesOf } from "../../../../algorithms/arithmetic/index.ts";
import type { DType } from "../../../../api/index.ts";
import type { OpenDevice } from "./device.ts";
import type { Job } from "./jobs.ts";
import { moved } from "./jobs.ts";
import { Machine } from "./machine.ts";
import { probeWords, tiedHalves } from "./probe-words.ts";
import { Recording } from "./recording.ts";
import type { NativeAdds } from "./wgsl/float-native.ts";
import { operationOf } from "./wgsl/operation.ts";

/** Contributions of a chain. */
const depth = 8;

/** Degrees of trust, the fastest first; the last resort needs no trust. */
const candidates = {
  float32: ["all", "normal"],
  bfloat16: ["all", "normal"],
  float16: ["halves", "converted", "all", "normal"],
} as const;

/** No trust: everything in whole numbers. */
const wary: NativeAdds = { float32: "none", bfloat16: "none", float16: "none" };

const known = new WeakMap<GPUDevice, Promise<NativeAdds>>();

/** The most that a device's addition can be trusted with. */
export function nativeAddsOf(device: OpenDevice): Promise<NativeAdds> {
  let found = known.get(device.device);
  if (found === undefined) {
    found = best(device);
    known.set(device.device, found);
  }
  return found;
}

async function best(device: OpenDevice): Promise<NativeAdds> {
  const found = { ...wary };
  for (const dtype of ["float32", "bfloat16", "float16"] as const) {
    for (const native of candidates[dtype]) {
      if (native === "halves" && !device.device.features.has("shader-f16")) continue;
      const natives: NativeAdds = { ...wary, [dtype]: native };
      if (!(await isTrustworthy(device, dtype, natives))) continue;
      Object.assign(found, { [dtype]: native });
      break;
    }
  }
  return found;
}

/**
 * True when kernels with that much trust give the bits of cpu().
 *
 * @internal
 */
export async function isTrustworthy(
  device: OpenDevice,
  dtype: keyof NativeAdds,
  natives: NativeAdds,
): Promise<boolean> {
  const machine = new Machine(device, undefined, natives);
  const chain = Array.from({ length: depth }, (_, k) => probeWords(dtype, k));
  try {
    if (!(await isRight(machine, dtype, chain))) return false;
    return dtype !== "float16" || (await isRight(machine, dtype, tiedHalves()));
  } finally {
    machine.slabs.close();
  }
}

async function isRight(
  machine: Machine,
  dtype: DType,
  inputs: readonly Uint32Array<ArrayBuffer>[],
): Promise<boolean> {
  const count = inputs.length;
  const bytes = (inputs[0] as Uint32Array).byteLength;
  const range = machine.slabs.allocate((count + 1) * bytes, false);
  const target = moved(range, count * bytes);
  const fold = foldFor(dtype, "sum", count, "fused");
  const job: Job = {
    level: 0,
    copy: false,
    operands: inputs.map((_, k) => ({
      spot: moved(range, k * bytes),
      kind: "contribution",
      scalar: [0, 0],
    })),
    targets: [target],
    bytes,
    place: 0,
    final: true,
  };
  const operation = operationOf(fold, undefined);
  const recording = new Recording(machine, [{ operation, divisor: 1, plan: () => [job] }]);
  inputs.forEach((words, k) => {
    machine.upload(moved(range, k * bytes), new Uint8Array(words.buffer));
  });
  const extent = { slab: range.slab, begin: target.offset, end: target.offset + bytes };
  const [found] = await machine.download([extent], (encoder) => recording.encode(encoder));
  const expected = folded(fold, inputs);
  let right = true;
  found?.((own) => {
    right = own.every((byte, i) => byte === expected[i]);
  });
  recording.close();
  machine.slabs.free(range);
  return right;
}

/** The same fold on the host. */
function folded(fold: Fold, inputs: readonly Uint32Array<ArrayBuffer>[]): Uint8Array {
  const bytes = (inputs[0] as Uint32Array).byteLength;
  const result = new ArrayBuffer(bytes);
  const lanes = lanesOf(fold.dtype, result, 0, bytes);
  const sources = inputs.map(({ buffer }) => lanesOf(fold.dtype, buffer, 0, bytes));
  fold.chain(
    lanes,
    0,
    sources,
    inputs.map(() => 0),
    lanes.length,
  );
  fold.finish(lanes, 0, lanes.length);
  return new Uint8Array(result);
}
