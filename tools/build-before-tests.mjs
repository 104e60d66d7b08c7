// Some tests run the built package. A build that fails must not hide the tests that need none, so
// it is only reported here; the tests that use dist fail by themselves when dist is stale.

import { build, isStale } from "./build.mjs";

export function setup() {
  if (isStale() && !build())
    process.stderr.write("dist is stale: the build before the tests failed\n");
}
