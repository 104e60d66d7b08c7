/** Addresses of an arena: none is given out twice, and what is given back is used again. */
import fc from "fast-check";
import { expect, test } from "vitest";
import { Allocator } from "../../../../src/backends/sim/executors/allocator.ts";
import { rangeAlignment, rangeBytes } from "../../../../src/backends/sim/executors/wasm/arena.ts";
import { holds } from "../../../support/seed.ts";

const limit = 2 ** 16;

interface Taken {
  readonly address: number;
  readonly bytes: number;
}

test("taken ranges never overlap, and all released ranges join to one", async () => {
  const steps = fc.array(
    fc.record({ bytes: fc.integer({ min: 0, max: 5000 }), gives: fc.boolean(), which: fc.nat() }),
    { maxLength: 60 },
  );
  await holds(
    steps,
    (drawn) => {
      const allocator = new Allocator(128, limit, rangeBytes);
      const taken: Taken[] = [];
      for (const { bytes, gives, which } of drawn) {
        const [back] = gives ? taken.splice(which % Math.max(1, taken.length), 1) : [];
        if (back !== undefined) allocator.give(back.address, back.bytes);
        const address = allocator.take(bytes);
        if (address === undefined) continue;
        expect(address % rangeAlignment).toBe(0);
        expect(address).toBeGreaterThanOrEqual(128);
        expect(address + bytes).toBeLessThanOrEqual(allocator.top);
        for (const other of taken) {
          const apart =
            address + Math.max(1, bytes) <= other.address ||
            other.address + Math.max(1, other.bytes) <= address;
          expect(apart, `${address} and ${other.address}`).toBe(true);
        }
        taken.push({ address, bytes });
      }
      for (const { address, bytes } of taken) allocator.give(address, bytes);
      expect(allocator.live).toBe(0);
      // Everything in one piece: from the first address to the limit, of which a large range leaves at most seven lines.
      expect(allocator.take(limit - 3 * rangeAlignment)).toBe(2 * rangeAlignment);
    },
    500,
  );
});

test("a released range is reused before new addresses", () => {
  const allocator = new Allocator(0, limit, rangeBytes);
  const [first, second] = [allocator.take(100), allocator.take(100)];
  expect([first, second]).toEqual([0, 128]);
  allocator.give(0, 100);
  expect(allocator.take(64)).toBe(0);
  expect(allocator.take(64)).toBe(64);
  expect(allocator.take(64)).toBe(256);
});

test("allocation fails at the end, and a release makes room", () => {
  const end = 1029 * rangeAlignment;
  const allocator = new Allocator(0, end, rangeBytes);
  const address = allocator.take(end);
  expect(address).toBe(0);
  expect(allocator.take(1)).toBeUndefined();
  allocator.give(0, end);
  expect(allocator.take(end / 2)).toBe(0);
});

test.each([2 ** 12, 2 ** 16, 2 ** 20 + 4096, 2 ** 26])(
  "64 ranges of %i bytes begin in 64 sets of a cache",
  (bytes) => {
    const allocator = new Allocator(64, 2 ** 33, rangeBytes);
    const sets = Array.from(
      { length: 64 },
      () => ((allocator.take(bytes) ?? 0) / rangeAlignment) % 64,
    );
    expect(new Set(sets).size).toBe(64);
  },
);
