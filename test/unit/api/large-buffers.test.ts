/** Buffers of more bytes than the runtime's arrays of bytes may have, which on Node.js 20 are 4 GiB. Nothing here touches them. */
import { expect, test } from "vitest";
import type { Memory } from "../../../src/api/backend-entry.ts";
import { createAllocation, createBuffer } from "../../../src/api/buffer.ts";
import type { DType } from "../../../src/api/index.ts";

/** A buffer with a memory that records the copied bytes. */
function noting<D extends DType>(dtype: D, length: number, byteOffset = 0) {
  const copied: [what: string, byteOffset: number, bytes: number][] = [];
  const memory: Memory = {
    ...{ device: "noted", ptr: 0x1000n, byteLength: 2 ** 40, borrowed: false },
    write: (at, bytes) => void copied.push(["write", at, bytes.length]),
    read: async (at, into) => {
      copied.push(["read", at, into.length]);
      await undefined;
    },
    fill: () => undefined,
    free: () => undefined,
  };
  const allocation = createAllocation(memory, { rank: 3, session: {} });
  return { copied, buffer: createBuffer(dtype, length, allocation, byteOffset) };
}

const piece = 2 ** 30;
const pieces = (what: string, from: number) => [
  ...[0, 1, 2, 3].map((index) => [what, from + index * piece, piece]),
  [what, from + 4 * piece, 16],
];

test("are copied in pieces that start together", async () => {
  const { copied, buffer } = noting("float32", 2 ** 30 + 4, 64);
  buffer.copyFrom(new Float32Array(2 ** 30 + 4));
  expect(copied.splice(0)).toEqual(pieces("write", 64));
  const reading = buffer.toHost();
  await undefined;
  expect(copied).toEqual(pieces("read", 64));
  expect((await reading).length).toBe(2 ** 30 + 4);
});

test("are read in parts if no array can hold them", async () => {
  const { copied, buffer } = noting("uint8", 2 ** 53 - 1);
  await expect(buffer.toHost()).rejects.toMatchObject({
    ...{ code: "ERR_COMM_ARG", field: "length", rank: 3, cause: expect.any(RangeError) },
    hint: expect.stringContaining("subarray"),
  });
  expect(copied).toEqual([]);
});

test("without elements are still copied", async () => {
  const { copied, buffer } = noting("uint8", 0);
  await buffer.copyFrom(new Uint8Array(0)).copyTo(new Uint8Array(0));
  expect(copied).toEqual([
    ["write", 0, 0],
    ["read", 0, 0],
  ]);
});
