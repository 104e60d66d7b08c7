/**
 * 10,000 healthy random programs over several communicators, with strict lending and ranks that dawdle, and not one
 * alarm. Part of `npm run ok`, not of `npm test`. `TWINCCL_RUNS=<n>` changes how many.
 */
import { expect, test } from "vitest";
import { checkNoAlarm } from "./law.ts";
import { totals } from "./totals.ts";

const file = "--project programs test/programs/no-false-alarm.test.ts";

test("10,000 healthy random programs raise no alarm", async () => {
  const began = performance.now();
  const checked = await checkNoAlarm(10_000, file);
  process.stderr.write(`${totals(checked, began)}, no alarm\n`);
  expect(checked.communicators).toBeGreaterThan(2 * checked.programs);
  expect(checked.calls).toBeGreaterThan(checked.programs);
}, 600_000);
