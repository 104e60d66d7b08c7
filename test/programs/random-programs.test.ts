/**
 * 20,000 whole random programs hold what an oracle without library code says. Part of `npm run ok`, not of `npm test`;
 * the property project runs a few of them. `TWINCCL_RUNS=<n>` changes how many.
 */
import { expect, test } from "vitest";
import { checkPrograms } from "./law.ts";

const file = "--project programs test/programs/random-programs.test.ts";

test("20,000 random programs equal the oracle", async () => {
  const began = performance.now();
  const { programs, calls, seed } = await checkPrograms(20_000, file);
  const seconds = ((performance.now() - began) / 1000).toFixed(1);
  process.stderr.write(`seed ${seed}: ${programs} programs, ${calls} calls in ${seconds} s\n`);
  expect(calls).toBeGreaterThan(programs);
}, 600_000);
