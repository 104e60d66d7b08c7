// Tests run the built package: Node loads dist, and not each module of src by way of Vite. A run on an older dist would judge
// another program, so a build that fails ends the run.

import { build, isStale } from "./build.mjs";

export function setup() {
  if (isStale() && !build()) throw new Error("the build before the tests failed");
}
