/**
 * 20,000 healthy random programs over several communicators, with ranks that dawdle and every other one with strict lending: all
 * equal to the oracle, and not one alarm. Part of `npm run ok`, not of `npm test`; the property project runs a few of them.
 * `TWINCCL_RUNS=<n>` changes how many.
 */
import { expect, test } from "vitest";
import { checkPrograms } from "./law.ts";

const file = "--mode programs test/programs/random-programs.test.ts";

test("20,000 random programs equal the oracle, and raise no alarm", async () => {
  const began = performance.now();
  const { seed, programs, communicators, calls } = await checkPrograms(20_000, file);
  const seconds = ((performance.now() - began) / 1000).toFixed(1);
  process.stderr.write(
    `seed ${seed}: ${programs} programs, ${communicators} communicators, ${calls} calls in ${seconds} s\n`,
  );
  expect(communicators).toBeGreaterThan(2 * programs);
  expect(calls).toBeGreaterThan(programs);
}, 600_000);
