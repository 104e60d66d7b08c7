/**
 * 20,000 whole random programs hold what an oracle without library code says. Part of `npm run ok`, not of `npm test`;
 * the property project runs a few of them. `TWINCCL_RUNS=<n>` changes how many.
 */
import { expect, test } from "vitest";
import { checkPrograms } from "./law.ts";
import { totals } from "./totals.ts";

const file = "--project programs test/programs/random-programs.test.ts";

test("20,000 random programs equal the oracle", async () => {
  const began = performance.now();
  const checked = await checkPrograms(20_000, file);
  process.stderr.write(`${totals(checked, began)}, equal to the oracle\n`);
  expect(checked.calls).toBeGreaterThan(checked.programs);
}, 600_000);
