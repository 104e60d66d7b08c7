/** Inputs of recorded calls, against the rule element by element. */
import { describe, expect, test } from "vitest";
import { mix32 } from "../../../src/api/bits.ts";
import { bytesOf, type DType, dtypes } from "../../../src/api/index.ts";
import type { GoldenCase } from "../../../src/golden/case.ts";
import { idOf } from "../../../src/golden/format.ts";
import { inputOf } from "../../../src/golden/inputs.ts";

/** Bits of sign and fraction in the upper word, place of the exponent, the least one and their number: moderate, and close to 0. */
const floats: Partial<Record<DType, readonly number[]>> = {
  float16: [0x83ff, 10, 11, 8, 14, 3],
  bfloat16: [0x807f, 7, 119, 16, 126, 3],
  float32: [0x807f_ffff, 23, 119, 17, 126, 3],
  float64: [0x800f_ffff, 20, 1015, 17, 1022, 3],
  float8e4m3: [0x87, 3, 3, 8, 6, 3],
  float8e5m2: [0x83, 2, 11, 8, 14, 3],
};

/** An element as its words, the lower one first. */
function elementOf({ dtype, op, values }: GoldenCase, seed: number, at: number): number[] {
  const hash = mix32((seed + Math.imul(at, 0x85ebca6b)) | 0);
  const rule = values === "wild" ? undefined : floats[dtype];
  let upper = hash;
  if (rule !== undefined) {
    const [kept = 0, place = 0] = rule;
    const [least = 0, count = 1] = op === "prod" ? rule.slice(4) : rule.slice(2);
    const exponent = least + ((hash >>> (dtype === "float32" ? 23 : 20)) % count);
    upper = ((hash & kept) | (exponent << place)) >>> 0;
  }
  return bytesOf(dtype) === 8 ? [mix32(hash ^ 0xdeadbeef), upper] : [upper];
}

function fnv(text: string): number {
  let hash = 0x811c9dc5;
  for (const char of text) hash = Math.imul(hash ^ char.charCodeAt(0), 0x01000193);
  return hash;
}

const cases = (["norm", "wild"] as const).flatMap((values) =>
  (["sum", "prod"] as const).flatMap((op) => dtypes.map((dtype) => ({ values, op, dtype }))),
);

describe("the input of a rank", () => {
  test.each(cases)("has the bits of the rule: $dtype, $op, $values", (drawn) => {
    // Beyond two of the pieces that are made at once, and with an incomplete vector at the end.
    const call: GoldenCase = {
      ...{ ...drawn, collective: "allReduce", ranks: 3, count: 8205 },
      ...{ forced: undefined, root: undefined, environment: "plain", inPlace: false, offset: 0 },
    };
    const seed = (fnv(idOf(call)) + Math.imul(3, 0x9e3779b9)) | 0;
    const bytes = bytesOf(call.dtype);
    const expected = Buffer.alloc(call.count * bytes);
    for (let at = 0; at < call.count; at++) {
      for (const [word, value] of elementOf(call, seed, at).entries()) {
        const width = Math.min(4, bytes);
        const low = width === 4 ? value : value & (2 ** (8 * width) - 1);
        expected.writeUIntLE(low, at * bytes + 4 * word, width);
      }
    }
    const { buffer, byteOffset, byteLength } = inputOf(call, 2);
    expect(Buffer.compare(Buffer.from(buffer, byteOffset, byteLength), expected)).toBe(0);
  });
});
