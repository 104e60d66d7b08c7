// Everything CI runs; a failed check does not hide the others. Checks that use one core run two at a time.
// `npm run ok -- --skip test` leaves out the named check; anything else is refused. The last line counts checks.

import { spawn } from "node:child_process";
import { mkdtempSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { parseArgs } from "node:util";
import { hasAdapter, noAdapter } from "./adapter.mjs";
import { findChromium, noChromium } from "./chromium.mjs";
import { missingCompilers } from "./native.mjs";

const root = fileURLToPath(new URL("..", import.meta.url));
const { name, version } = JSON.parse(readFileSync(join(root, "package.json"), "utf8"));
const temporary = mkdtempSync(join(tmpdir(), `${name}-ok-`));
const tarball = join(temporary, `${name}-${version}.tgz`);

/** Checks that use all cores, or make what later ones read: each runs alone, in this order. */
const alone = {
  test: "npm test",
  "test:rest": "npm run -s test:rest",
  build: "node tools/build.mjs --is-fresh || npm run -s build",
  "native helper": "node tools/native.mjs --all",
  pack: `npm pack --ignore-scripts --pack-destination "${temporary}"`,
};

// The package is judged as it would be published: the tarball, not the checkout. The longest come first, so that none runs
// alone at the end.
const together = {
  programs: "npm run -s test:programs",
  web: "npm run -s test:web",
  webgpu: "npm run -s test:webgpu",
  "golden on WebGPU":
    "node dist/cli/main.js golden check test/golden/nccl-2.28.9-h200x8.jsonl --executor webgpu --most 100003",
  types: "npm run -s types",
  "golden of hosts": "node dist/cli/main.js golden check test/golden/nccl-2.28.9-h200-hosts.jsonl",
  "golden settings":
    "node dist/cli/main.js golden check test/golden/nccl-2.28.9-h200x8-settings.jsonl",
  docs: "npm run -s docs",
  "web build": "npm run -s web:build",
  "golden of four": "node dist/cli/main.js golden check test/golden/nccl-2.28.9-h200x4.jsonl",
  golden: "node dist/cli/main.js golden check test/golden/nccl-2.28.9-h200x8.jsonl",
  mutation: "VITEST_MAX_WORKERS=1 npm run -s test:mutation",
  lint: "biome ci --colors=off --error-on-warnings .",
  knip: "npm run -s knip",
  "try-package": `npm run -s try-package -- "${tarball}"`,
  attw: `npm run -s attw -- "${tarball}"`,
  "knip --production": "npm run -s knip -- --production",
  "pipeline pictures": "node tools/pipeline-pictures.mjs --check",
  publint: `npm run -s publint -- "${tarball}"`,
  "algorithms page": "node tools/algorithms-page.mjs --check",
};

const skipped = skippedChecks(Object.keys({ ...alone, ...together }));

const compilers = missingCompilers();

const lacksAdapter = (await hasAdapter()) ? undefined : noAdapter;

/** Checks that this machine lacks something for, and what. */
const lacking = {
  "native helper": compilers.length > 0 ? `needs ${compilers.join(", ")}` : undefined,
  web: findChromium() === undefined ? noChromium : undefined,
  webgpu: lacksAdapter,
  "golden on WebGPU": lacksAdapter,
};

const path = `${join(root, "node_modules", ".bin")}:${process.env.PATH}`;
const failed = [];
let passed = 0;
let left = 0;

/** The checks that the command line leaves out. A name of none, and anything else, ends the script before the first check. */
function skippedChecks(checks) {
  try {
    const skip = { type: "string", multiple: true, default: [] };
    const { values } = parseArgs({ options: { skip } });
    const unknown = values.skip.find((check) => !checks.includes(check));
    if (unknown === undefined) return values.skip;
    throw new Error(`--skip: found "${unknown}", needs one of ${checks.join(", ")}`);
  } catch (error) {
    rmSync(temporary, { recursive: true });
    process.stderr.write(`ok: ${error.message}\n`);
    process.exit(2);
  }
}

/** The exit status of a command, and its output unless that is shown at once. */
function run(command, stdio) {
  const child = spawn(command, {
    cwd: root,
    shell: true,
    stdio: ["ignore", stdio, stdio],
    env: { ...process.env, PATH: path },
  });
  const output = [];
  for (const stream of [child.stdout, child.stderr]) {
    stream?.on("data", (bytes) => output.push(bytes));
  }
  return new Promise((resolve, reject) => {
    child.on("error", reject);
    child.on("close", (status) => resolve({ status, output: Buffer.concat(output) }));
  });
}

/** Runs a check, and counts it. */
async function runCheck(check, command, isAlone) {
  if (skipped.includes(check)) return;
  if (lacking[check] !== undefined) {
    process.stdout.write(`\n== ${check}: skipped: ${lacking[check]}\n`);
    left += 1;
    return;
  }
  const head = `\n== ${check}: ${command.replaceAll(temporary, "TMP")}\n`;
  if (isAlone) process.stdout.write(head);
  const began = performance.now();
  const { status, output } = await run(command, isAlone ? "inherit" : "pipe");
  const seconds = ((performance.now() - began) / 1000).toFixed(1);
  if (!isAlone) {
    process.stdout.write(head);
    process.stdout.write(output);
  }
  process.stdout.write(`== ${check}: ${status === 0 ? "ok" : "FAILED"} in ${seconds} s\n`);
  if (status === 0) passed += 1;
  else failed.push(check);
}

for (const [check, command] of Object.entries(alone)) await runCheck(check, command, true);
const queue = Object.entries(together);
async function work() {
  for (let next = queue.shift(); next !== undefined; next = queue.shift()) {
    await runCheck(...next, false);
  }
}
await Promise.all([work(), work()]);
rmSync(temporary, { recursive: true, force: true });
if (failed.length > 0) process.stdout.write(`\nfailed: ${failed.join(", ")}\n`);
const tail = left > 0 ? `, ${left} skipped` : "";
process.stdout.write(`${passed} passed, ${failed.length} failed${tail}\n`);
process.exitCode = failed.length > 0 ? 1 : 0;
