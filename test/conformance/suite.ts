/** The conformance suite of `twinccl/testing`, as tests of vitest. */
import type { ConformanceCase } from "twinccl/testing";
import { describe, test } from "vitest";
import { partOf } from "../support/seed.ts";

/** Sizes of worlds: in `npm test` the simulation alone has all of them. */
export const someSizes: readonly number[] = partOf([1, 2, 3, 8], [1, 3]);

/** A test for every case. */
export function testAll(name: string, cases: readonly ConformanceCase[]): void {
  describe(`${name} conforms`, () => {
    for (const each of cases) test(each.name, each.run);
  });
}
