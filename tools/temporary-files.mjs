// Temporary files of tests lie in one folder, which goes with the run: a worker that is ended by a signal removes none.

import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";

/** Its process made the folder. */
const owner = "TWINCCL_TESTS_OWNER";

/** Workers inherit the variable. Every project has this set up; the first makes the folder: a socket's path is short. */
export function setup() {
  if (process.env[owner] === String(process.pid)) return;
  process.env[owner] = String(process.pid);
  const folder = mkdtempSync(join(tmpdir(), "twinccl-tests-"));
  process.env.TMPDIR = folder;
  return () => rmSync(folder, { recursive: true, force: true });
}
