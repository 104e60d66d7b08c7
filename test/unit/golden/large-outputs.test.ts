/** Hashes of outputs that Node.js does not take at once. Nothing is hashed here: that takes a minute. */
import { expect, test, vi } from "vitest";
import { hashesOf } from "../../../src/golden/outputs.ts";

const lengths: number[] = [];

vi.mock("node:crypto", async (original) => ({
  ...(await original<object>()),
  createHash: () => {
    const hash = {
      update: ({ length }: Uint8Array) => {
        lengths.push(length);
        return hash;
      },
      digest: () => "0123456789abcdef and more",
    };
    return hash;
  },
}));

test("an output of 2 GiB is hashed in parts, each below the limit of an update", () => {
  const bytes = 2 ** 31;
  expect(hashesOf([new Uint8Array(bytes)])).toEqual(["0123456789abcdef"]);
  expect(Math.max(...lengths)).toBeLessThan(2 ** 31);
  expect(lengths.reduce((sum, length) => sum + length, 0)).toBe(bytes);
});
