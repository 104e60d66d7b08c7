import { InvalidArgumentError } from "twinccl";
import { parseSize, sizeText, sweepSizes } from "twinccl/bench";
import { describe, expect, test } from "vitest";

describe("parseSize", () => {
  test.each([
    ["8", 8],
    ["0", 0],
    ["1K", 1024],
    ["1k", 1024],
    ["1KB", 1024],
    ["1KiB", 1024],
    ["16M", 2 ** 24],
    ["1.5M", 1.5 * 2 ** 20],
    ["2G", 2 ** 31],
    [" 4K ", 4096],
  ])("%s", (text, bytes) => {
    expect(parseSize(text)).toBe(bytes);
  });
  test.each(["", "K", "-8", "8T", "1e3", "0x10", "8 8", "1.0001"])("refuses %s", (text) => {
    expect(parseSize(text)).toBeUndefined();
  });
  test("refuses a number by name", () => {
    expect(() => parseSize(8 as never)).toThrow("parseSize: text: found 8, needs a string");
  });
});

test("sizeText", () => {
  expect([8, 1024, 1536, 2 ** 24, 2 ** 30].map(sizeText)).toEqual([
    "8 B",
    "1 KiB",
    "1536 B",
    "16 MiB",
    "1 GiB",
  ]);
});

describe("sweepSizes", () => {
  test("multiplies or adds, and ends at most at max", () => {
    expect(sweepSizes({ min: 8, max: 100, factor: 2 })).toEqual([8, 16, 32, 64]);
    expect(sweepSizes({ min: 8, max: 100, step: 40 })).toEqual([8, 48, 88]);
    expect(sweepSizes({ min: 0, max: 2, step: 1 })).toEqual([0, 1, 2]);
    expect(sweepSizes({ min: 64, max: 64 })).toEqual([64]);
    expect(sweepSizes({ min: 1, max: 4096, step: 1 })).toHaveLength(4096);
  });
  test("advances even with a factor close to 1", () => {
    expect(sweepSizes({ min: 1, max: 4, factor: 1.1 })).toEqual([1, 2, 3, 4]);
  });
  test.each([
    { min: 8, max: 4, factor: 2 },
    { min: 8, max: 16, factor: 1 },
    { min: 8, max: 16, step: 0 },
    { min: 8, max: 16 },
    { min: 0, max: 16, factor: 2 },
    { min: Number.NaN, max: 16, factor: 2 },
    { min: 1, max: 2 ** 24, step: 1 },
    { min: 8, max: 64, step: "2" as never },
    { min: 8, max: 64, step: 1.5 },
    { min: 8, max: 64, step: true as never },
    { min: 8, max: 64, factor: "2" as never },
    { min: 8, max: 64, factor: 2n as never },
  ])("refuses %o", (sweep) => {
    expect(() => sweepSizes(sweep)).toThrow(InvalidArgumentError);
  });
});
