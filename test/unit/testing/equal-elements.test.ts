/** `toEqual` of arrays, with the pass over equal elements that `support/equal-elements.ts` puts before it. */
import { expect, test } from "vitest";

class Words extends Uint32Array {}

test.each<readonly [string, unknown, unknown]>([
  ["an element", [1, 2, 3], [1, 2, 4]],
  ["a length", [1, 2], [1, 2, 3]],
  ["a hole", [undefined], new Array(1)],
  ["the sign of a zero", [0], [-0]],
  ["the sign of a zero in a float", Float32Array.of(0), Float32Array.of(-0)],
  ["a class", new Words(2), new Uint32Array(2)],
  ["a type of elements", new Int32Array(2), new Uint32Array(2)],
  ["a property", [1], Object.assign([1], { index: 0 })],
  ["a property of a typed array", new Uint8Array(1), Object.assign(new Uint8Array(1), { at: 0 })],
])("arrays that differ by %s are not equal", (_, a, b) => {
  expect(a).not.toStrictEqual(b);
  expect(b).not.toStrictEqual(a);
  expect({ a: [a] }).not.toStrictEqual({ a: [b] });
});

test.each<readonly [string, unknown, unknown]>([
  ["no elements", [], []],
  ["NaN", [Number.NaN], [Number.NaN]],
  ["a matcher", [expect.any(Number)], [3]],
  ["objects", [{ a: 1 }], [{ a: 1 }]],
  ["the same bytes", Uint8Array.of(1, 2), Uint8Array.of(0, 1, 2).subarray(1)],
  ["NaN of two payloads", ...payloads()],
])("arrays of %s are equal", (_, a, b) => {
  expect(b).toStrictEqual(a);
});

function payloads(): [Float32Array, Float32Array] {
  const of = (bits: number): Float32Array => new Float32Array(Uint32Array.of(bits).buffer);
  return [of(0x7fc0_0000), of(0x7fc0_0001)];
}
