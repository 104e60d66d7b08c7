/** A test that takes long in a file of quick ones. */
import { test } from "vitest";
import { isAll } from "./seed.ts";

/** Runs in `npm run test:all`; elsewhere it is left out, with the reason in its title. */
export function longTest(title: string, body: () => Promise<void>, timeoutMs?: number): void {
  if (isAll) test(title, body, timeoutMs);
  else test.skip(`${title} (takes long: npm run test:all runs it)`, body);
}
