// Everything CI runs, one check after the other; a failed check does not hide the later ones.
// `npm run ok -- --skip test` leaves out the named check. The last line counts checks.

import { spawnSync } from "node:child_process";
import { mkdtempSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { hasAdapter, noAdapter } from "./adapter.mjs";
import { findChromium, noChromium } from "./chromium.mjs";

const root = fileURLToPath(new URL("..", import.meta.url));
const { name, version } = JSON.parse(readFileSync(join(root, "package.json"), "utf8"));
const temporary = mkdtempSync(join(tmpdir(), `${name}-ok-`));
const tarball = join(temporary, `${name}-${version}.tgz`);

// The package is judged as it would be published: the tarball, not the checkout.
const checks = {
  lint: "biome ci --colors=off --error-on-warnings .",
  types: "npm run -s types",
  knip: "npm run -s knip",
  "knip --production": "npm run -s knip -- --production",
  docs: "npm run -s docs",
  test: "npm test",
  "test:all": "npm run -s test:all",
  mutation: "npm run -s test:mutation",
  programs: "npm run -s test:programs",
  "web build": "npm run -s web:build",
  web: "npm run -s test:web",
  build: "npm run -s build",
  "algorithms page": "node tools/algorithms-page.mjs --check",
  "pipeline pictures": "node tools/pipeline-pictures.mjs --check",
  golden: "node dist/cli/main.js golden check test/golden/nccl-2.28.9-h200x8.jsonl",
  "golden settings":
    "node dist/cli/main.js golden check test/golden/nccl-2.28.9-h200x8-settings.jsonl",
  "golden of four": "node dist/cli/main.js golden check test/golden/nccl-2.28.9-h200x4.jsonl",
  "golden on WebGPU":
    "node dist/cli/main.js golden check test/golden/nccl-2.28.9-h200x8.jsonl --executor webgpu --most 100003",
  pack: `npm pack --ignore-scripts --pack-destination "${temporary}"`,
  publint: `npm run -s publint -- "${tarball}"`,
  attw: `npm run -s attw -- "${tarball}"`,
  "try-package": `npm run -s try-package -- "${tarball}"`,
};

/** Checks that this machine lacks something for, and what. */
const lacking = {
  web: findChromium() === undefined ? noChromium : undefined,
  "golden on WebGPU": (await hasAdapter()) ? undefined : noAdapter,
};

const { argv } = process;
const skipped = argv.filter((_, at) => argv[at - 1] === "--skip");
const path = `${join(root, "node_modules", ".bin")}:${process.env.PATH}`;
const failed = [];
let passed = 0;
let left = 0;
for (const [check, command] of Object.entries(checks)) {
  if (skipped.includes(check)) continue;
  if (lacking[check] !== undefined) {
    process.stdout.write(`\n== ${check}: skipped: ${lacking[check]}\n`);
    left += 1;
    continue;
  }
  process.stdout.write(`\n== ${check}: ${command.replaceAll(temporary, "TMP")}\n`);
  const began = performance.now();
  const { status } = spawnSync(command, {
    cwd: root,
    shell: true,
    stdio: ["ignore", "inherit", "inherit"],
    env: { ...process.env, PATH: path },
  });
  const seconds = ((performance.now() - began) / 1000).toFixed(1);
  process.stdout.write(`== ${check}: ${status === 0 ? "ok" : "FAILED"} in ${seconds} s\n`);
  if (status === 0) passed += 1;
  else failed.push(check);
}
rmSync(temporary, { recursive: true, force: true });
if (failed.length > 0) process.stdout.write(`\nfailed: ${failed.join(", ")}\n`);
const tail = left > 0 ? `, ${left} skipped` : "";
process.stdout.write(`${passed} passed, ${failed.length} failed${tail}\n`);
process.exitCode = failed.length > 0 ? 1 : 0;
