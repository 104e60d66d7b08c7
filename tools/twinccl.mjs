// The command line of the checkout: builds first when dist is older than src, and is silent about
// it, so that stdout holds the CLI's output and nothing else.

import { fileURLToPath } from "node:url";
import { build, isStale } from "./build.mjs";

const main = new URL("../dist/cli/main.js", import.meta.url);

if (isStale() && !build()) {
  process.stderr.write("twinccl: the build failed, so the command was not run\n");
  process.exit(1);
}
// As if node had been started with the CLI's own file.
process.argv[1] = fileURLToPath(main);
await import(main.href);
