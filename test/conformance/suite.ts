/** The conformance suite of `twinccl/testing`, as tests of vitest. */
import type { ConformanceCase } from "twinccl/testing";
import { describe, test } from "vitest";

/** A test for every case. */
export function testAll(name: string, cases: readonly ConformanceCase[]): void {
  describe(`${name} conforms`, () => {
    for (const each of cases) test(each.name, each.run);
  });
}
