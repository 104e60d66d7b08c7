// The tests that need a WebGPU adapter, by name: without one they fail, where `npm test` leaves them out.

import { spawnSync } from "node:child_process";
import { createRequire } from "node:module";
import { dirname, join } from "node:path";

const manifest = createRequire(import.meta.url).resolve("vitest/package.json");
const vitest = join(dirname(manifest), "vitest.mjs");
const { status } = spawnSync(
  process.execPath,
  [vitest, "run", "--mode", "all", "--project", "webgpu"].concat(process.argv.slice(2)),
  { stdio: "inherit", env: { ...process.env, TWINCCL_WEBGPU: "needed" } },
);
process.exitCode = status ?? 1;
