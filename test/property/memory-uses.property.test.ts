/** The index of memory ranges finds what a comparison of all pairs finds. */
import fc from "fast-check";
import type { Memory } from "twinccl/backend";
import { expect, test } from "vitest";
import {
  createAllocation,
  createBuffer,
  type DeviceBuffer,
  overlapBytes,
} from "../../src/api/buffer.ts";
import { addBehind, MemoryUses } from "../../src/api/memory-uses.ts";
import { holds } from "../support/seed.ts";

/** Memory of 16 bytes: at a place of one of two devices that others may share, where it was adopted. */
const memories: readonly Memory[] = Array.from({ length: 8 }, (_, at) => {
  const unused = (): never => {
    throw new Error("no byte is touched");
  };
  return {
    device: `sim:${at % 2}`,
    ptr: BigInt(8 * (at >> 1)),
    byteLength: 16,
    borrowed: false,
    adopted: at >= 4,
    ...{ write: unused, read: unused, fill: unused, free: unused },
  };
});

interface MemoryUse {
  readonly buffer: DeviceBuffer;
  readonly user: number;
}

const use: fc.Arbitrary<MemoryUse> = fc
  .record({
    memory: fc.nat({ max: memories.length - 1 }),
    begin: fc.nat({ max: 15 }),
    length: fc.nat({ max: 4 }),
    user: fc.nat({ max: 3 }),
  })
  .map(({ memory, begin, length, user }) => {
    const allocation = createAllocation(memories[memory] as Memory, { rank: 0, session: memories });
    return { buffer: createBuffer("uint8", length, allocation, begin), user };
  });

test("a buffer counts as shared when another user's buffer overlaps it", async () => {
  let shared = 0;
  let apart = 0;
  await holds(
    fc.array(use, { maxLength: 12 }),
    (uses) => {
      const index = new MemoryUses();
      for (const { buffer, user } of uses) index.add(buffer, user);
      const ends = new Map<Memory, number>();
      const areApart = uses.every(({ buffer }) => addBehind(ends, buffer));
      for (const one of uses) {
        const isShared = uses.some(
          (other) => other.user !== one.user && overlapBytes(one.buffer, other.buffer) > 0,
        );
        expect(index.isShared(one.buffer, one.user)).toBe(isShared);
        if (isShared) expect(areApart).toBe(false);
        if (isShared) shared++;
        if (areApart) apart++;
      }
    },
    500,
  );
  expect(shared).toBeGreaterThan(0);
  expect(apart).toBeGreaterThan(0);
});
