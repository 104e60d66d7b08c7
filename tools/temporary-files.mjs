// Temporary files of tests lie in one folder, which goes with the run: a worker that is ended by a signal removes none.

import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";

/** Workers inherit the variable. Every project has this set up: the folders of later ones lie in that of the first. */
export function setup() {
  const folder = mkdtempSync(join(tmpdir(), "twinccl-tests-"));
  process.env.TMPDIR = folder;
  return () => rmSync(folder, { recursive: true, force: true });
}
