/** Records of PyTorch by tools/record-torch-trajectories.py, and the required distance of a result from them. */
import { readFileSync } from "node:fs";
import { expect } from "vitest";

export type RecordedDType = "float32" | "float64";

const folder = new URL("../fixtures/torch/", import.meta.url);

/** Reads one record. */
export function torchRecord<T>(name: string): T {
  return JSON.parse(readFileSync(new URL(`${name}.json`, folder), "utf8"));
}

/** A TypedArray of a dtype. */
export function arrayOf(
  dtype: RecordedDType,
  values: ArrayLike<number>,
): Float32Array | Float64Array {
  return dtype === "float32" ? Float32Array.from(values) : Float64Array.from(values);
}

/**
 * Tolerance of one element: in float64 1e-12 of `scale`; in float32 four units in the last place of `scale` a step,
 * two for each side's roundings of the state and of the value.
 */
export function allowance(dtype: RecordedDType, scale: number, steps: number): number {
  return dtype === "float64" ? 1e-12 * scale : 4 * steps * 2 ** -23 * scale;
}

/** Fails at the first element that differs by more than it may. */
export function expectNear(
  found: ArrayLike<number>,
  expected: readonly number[],
  allowed: (at: number) => number,
  what: string,
): void {
  expect(found.length, what).toBe(expected.length);
  for (let at = 0; at < expected.length; at++) {
    const off = Math.abs((found[at] as number) - (expected[at] as number));
    if (off <= allowed(at)) continue;
    expect.fail(`${what}, element ${at}: ${found[at]}, PyTorch ${expected[at]}: off by ${off}`);
  }
}
