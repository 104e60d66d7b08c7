/** The comparison of bits, and the mixer that recorded inputs depend on. */
import { expect, test } from "vitest";
import { firstDifference, mix32 } from "../../../src/api/bits.ts";

test("reports the first element with different bits, on both sides", () => {
  const [a, b] = [Float32Array.of(1, 0, 2), Float32Array.of(1, -0, 3)];
  expect(firstDifference(a, a.slice(), 4)).toBeUndefined();
  expect(firstDifference(a, b, 4)).toEqual({
    element: 1,
    length: 3,
    a: "0x00000000",
    b: "0x80000000",
  });
});

test("reports an element beyond the end of one side", () => {
  const found = firstDifference(Int16Array.of(1), Int16Array.of(1, -2), 2);
  expect(found).toEqual({ element: 1, length: 2, a: "nothing", b: "0xfffe" });
});

test("skips bits that count as the same", () => {
  const [a, b] = [Uint16Array.of(7, 8, 9), Uint16Array.of(7, 0x108, 10)];
  const lowByte = (x: bigint, y: bigint): boolean => BigInt.asUintN(8, x) === BigInt.asUintN(8, y);
  expect(firstDifference(a, b, 2, lowByte)?.element).toBe(2);
});

test("the mixer's words", () => {
  expect([0, 1, -1, 2 ** 32 + 1].map(mix32)).toEqual([0, 1753845952, 1734902346, 1753845952]);
});
