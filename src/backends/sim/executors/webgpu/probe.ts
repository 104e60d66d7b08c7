/**
 * Tests a device's own addition on hard cases.
 *
 * WGSL lets a device flush subnormals, round either way, assume that there is no NaN, and regroup sums. So the kernels that
 * would use its addition fold chains of eight, and every result is compared with the arithmetic of cpu(). Every float16 value
 * is added to all values that bring the sum to a tie or next to one. A device that rounds those right, and never rounds a
 * larger sum to a smaller value, rounds all sums right.
 */
import { type Fold, foldFor, lanesOf } from "../../../../algorithms/arithmetic/index.ts";
import { getOrCreate } from "../../../../api/get-or-create.ts";
import type { DType } from "../../../../api/index.ts";
import type { OpenDevice } from "./device.ts";
import { advanced, type FoldJob } from "./jobs.ts";
import { Machine } from "./machine.ts";
import { Recording } from "./recording.ts";
import { wordFormats } from "./wgsl/float-format.ts";
import type { NativeAdds } from "./wgsl/float-sum.ts";
import { operationOf } from "./wgsl/operation.ts";

/** Contributions of a chain. */
const depth = 8;

/** Degrees of trust, the fastest first; the last one needs no trust. */
const candidates = {
  float32: ["all", "normal"],
  bfloat16: ["all", "normal"],
  float16: ["halves", "converted", "all", "normal"],
} as const;

/** No trust: all arithmetic in integers. */
const untrusted: NativeAdds = { float32: "none", bfloat16: "none", float16: "none" };

const known = new WeakMap<GPUDevice, Promise<NativeAdds>>();

/** The highest degree of trust in a device's addition. */
export function nativeAddsOf(device: OpenDevice): Promise<NativeAdds> {
  return getOrCreate(known, device.device, () => best(device));
}

async function best(device: OpenDevice): Promise<NativeAdds> {
  const found = { ...untrusted };
  for (const dtype of ["float32", "bfloat16", "float16"] as const) {
    for (const native of candidates[dtype]) {
      if (native === "halves" && !device.device.features.has("shader-f16")) continue;
      const natives: NativeAdds = { ...untrusted, [dtype]: native };
      if (!(await isTrustworthy(device, dtype, natives))) continue;
      Object.assign(found, { [dtype]: native });
      break;
    }
  }
  return found;
}

/**
 * True when kernels with that degree of trust give the bits of cpu().
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
  const target = advanced(range, count * bytes);
  const fold = foldFor(dtype, "sum", count, "fused");
  const job: FoldJob = {
    level: 0,
    copy: false,
    operands: inputs.map((_, k) => ({
      spot: advanced(range, k * bytes),
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
    machine.upload(advanced(range, k * bytes), new Uint8Array(words.buffer));
  });
  const expected = folded(fold, inputs);
  let right = false;
  await machine.download(
    [{ ...target, bytes }],
    (own) => {
      right = own.every((byte, i) => byte === expected[i]);
    },
    (encoder) => recording.encode(encoder),
  );
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
  const starts = inputs.map(() => 0);
  fold.chain(lanes, 0, sources, starts, lanes.length);
  fold.finish(lanes, 0, lanes.length);
  return new Uint8Array(result);
}

/** Words of a contribution. */
const count = 16_384;

/** Contribution number `k` of a probe. */
function probeWords(dtype: keyof NativeAdds, k: number): Uint32Array<ArrayBuffer> {
  const words = new Uint32Array(count);
  let state = 0x9e37_79b9 ^ Math.imul(k + 1, 0x85eb_ca6b);
  for (let i = 0; i < count; i++) {
    state = Math.imul(state ^ (state >>> 15), 0x2c1b_3c6d) + 0x6d2b_79f5;
    words[i] = dtype === "float32" ? hardFloat(state, i, 8, 23) : hardPair(dtype, state, i);
  }
  return words;
}

function hardPair(dtype: keyof NativeAdds, bits: number, i: number): number {
  const fraction = wordFormats[dtype].precision - 1;
  const low = hardFloat(bits, i, 15 - fraction, fraction);
  const high = hardFloat(Math.imul(bits, 0x297a_2d39), i + 1, 15 - fraction, fraction);
  return (low & 0xffff) | (high << 16);
}

/**
 * Bits of a float with these numbers of exponent and fraction bits. A quarter each are any bits; subnormals and zeros; values
 * next to a power of two near 1, with sums that cancel and tie; extremes. Extremes are infinities, NaN, the largest and the
 * least normal values.
 */
function hardFloat(bits: number, i: number, exponentBits: number, fraction: number): number {
  const sign = (bits >>> 31) << (exponentBits + fraction);
  const ones = 2 ** fraction - 1;
  const mixed = Math.imul(bits, 0x1b87_3593) >>> 3;
  const kind = (i >>> 2) % 8;
  if (kind < 2) return (bits >>> (31 - exponentBits - fraction)) | sign;
  if (kind < 4) return sign | (mixed & ones & (kind === 2 ? ones : 1));
  if (kind < 7) {
    const middle = 2 ** (exponentBits - 1) - 1;
    const exponent = middle + (mixed % (kind === 4 ? 3 : fraction + 3));
    const near = [0, 1, ones, ones - 1, mixed & ones][mixed % 5] as number;
    return sign | (exponent * 2 ** fraction + near);
  }
  const largest = 2 ** exponentBits - 1;
  const ends = [largest, largest - 1, largest - 2, 1, 2] as const;
  const exponent = ends[mixed % ends.length] as number;
  return sign | (exponent * 2 ** fraction + (mixed % 3 === 0 ? 0 : (mixed >>> 5) & ones));
}

/**
 * Two contributions: every half, with values that bring the sum to the ties on both sides of it, next to them, and to the ends
 * of the range.
 */
function tiedHalves(): [Uint32Array<ArrayBuffer>, Uint32Array<ArrayBuffer>] {
  const partners = 12;
  const first = new Uint16Array(partners * 2 ** 16);
  const second = new Uint16Array(first.length);
  for (let half = 0; half < 2 ** 16; half++) {
    // Half a unit in the last place of the value, which is itself a float16 from exponent 2 on.
    const exponent = (half >> 10) & 0x1f;
    const step = exponent < 2 ? 1 : exponent < 12 ? 1 << (exponent - 2) : (exponent - 11) << 10;
    const sizes = [0, step - 1, step, step + 1, 0x7bff, 0x7c00];
    sizes.forEach((size, i) => {
      const at = partners * half + 2 * i;
      first.fill(half, at, at + 2);
      second[at] = size;
      second[at + 1] = size | 0x8000;
    });
  }
  return [new Uint32Array(first.buffer), new Uint32Array(second.buffer)];
}
