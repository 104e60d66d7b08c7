// Where the time of a call goes: runs the hot paths of bench/hot/paths.mjs under V8's sampling profiler.
// npm run profile -- --help
// For each it prints microseconds a call, measured without the profiler, the shares of the parts of the library, and
// the functions that take most time themselves.

import { spawnSync } from "node:child_process";
import {
  copyFileSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  rmSync,
  writeFileSync,
} from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { build, isStale } from "../tools/build.mjs";
import { number, options as optionsOf, plain, whole } from "../tools/options.mjs";
import { callPaths, countLines } from "./call-path.mjs";
import { moduleOf } from "./module-of.mjs";

const here = (path) => fileURLToPath(new URL(path, import.meta.url));
const values = optionsOf({
  name: "profile",
  about: "Shows where the time of the hot paths in bench/hot/paths.mjs goes, all or those named.",
  options: {
    seconds: { is: number(), default: "3", help: "for each" },
    top: { is: whole(), default: "8", help: "functions that are shown" },
    out: { is: plain("FOLDER"), help: "keeps profiles for Chrome's DevTools, and summary.json" },
  },
  positionals: "NAME...",
});
const wanted = values._;

/** Parts that a share is shown for: the first that the path of a module of dist, or of the program, begins with. */
const parts = [
  ["api/ledger/", "ledger: matching"],
  ["api/op.", "operations"],
  ["api/", "members: checks, posting"],
  ["backends/sim/executors/", "executor: data"],
  ["algorithms/arithmetic/", "executor: data"],
  ["backends/sim/", "sim: plans, time"],
  ["algorithms/", "sim: plans, time"],
  ["backends/nccl/", "nccl: submission"],
  ["hot/", "the program itself"],
];

/** The path of a function's module: within dist, or its last two parts. */
function pathOf({ url, lineNumber }) {
  return moduleOf(url, lineNumber) ?? url.split("/").slice(-2).join("/");
}

function partOf(frame) {
  const { functionName, url } = frame;
  if (functionName === "(garbage collector)") return "garbage collection";
  if (functionName === "(program)" || functionName === "(idle)") return "native code, promises";
  const path = pathOf(frame);
  const found = parts.find(([folder]) => path.startsWith(folder));
  return found?.[1] ?? (url === "" ? "native code, promises" : "runtime");
}

/** Adds up self times of a profile by what `keyOf` says of a function. */
function shares({ nodes, samples, timeDeltas }, keyOf) {
  const frames = new Map(nodes.map(({ id, callFrame }) => [id, callFrame]));
  const times = new Map();
  let total = 0;
  for (const [at, id] of samples.entries()) {
    const key = keyOf(frames.get(id));
    total += timeDeltas[at];
    times.set(key, (times.get(key) ?? 0) + timeDeltas[at]);
  }
  return [...times]
    .map(([what, time]) => ({ what, share: time / total }))
    .sort((a, b) => b.share - a.share);
}

/** `then api/op.js`; native functions have a name alone. */
function functionText(frame) {
  const name = frame.functionName || "(anonymous)";
  const path = pathOf(frame);
  return path === "" ? name : `${name} ${path}`;
}

function run(name, options) {
  const args = [...options, here("./hot/run.mjs"), name, String(values.seconds)];
  const { status, stdout } = spawnSync(process.execPath, args, {
    encoding: "utf8",
    stdio: ["ignore", "pipe", "inherit"],
  });
  if (status !== 0) throw new Error(`profile: ${name} ended with status ${status}`);
  return JSON.parse(stdout);
}

function profileOf(name) {
  const folder = mkdtempSync(join(tmpdir(), "twinccl-profile-"));
  try {
    run(name, ["--cpu-prof", `--cpu-prof-dir=${folder}`, "--cpu-prof-interval=200"]);
    const file = join(folder, readdirSync(folder)[0]);
    if (values.out !== undefined) copyFileSync(file, join(values.out, `${name}.cpuprofile`));
    return JSON.parse(readFileSync(file, "utf8"));
  } finally {
    rmSync(folder, { recursive: true, force: true });
  }
}

const percent = (share) => `${(100 * share).toFixed(1).padStart(5)} %`;

/** Prints one path's figures and gives them. */
function summaryOf(name) {
  const figures = run(name, []);
  console.log(`\n${name}: ${figures.about}`);
  if (figures.not_run !== undefined) {
    console.log(`  not run: ${figures.not_run}`);
    return figures;
  }
  console.log(`  ${figures.median_us.toFixed(2)} µs a call (least ${figures.least_us.toFixed(2)})`);
  const profile = profileOf(name);
  const byPart = shares(profile, partOf);
  const functions = shares(profile, functionText).slice(0, values.top);
  for (const { what, share } of byPart) console.log(`  ${percent(share)}  ${what}`);
  console.log("  of these, by themselves:");
  for (const { what, share } of functions) console.log(`  ${percent(share)}  ${what}`);
  return { ...figures, parts: byPart, functions };
}

if (isStale() && !build()) process.exit(1);
const { paths } = await import("./hot/paths.mjs");
const { environment, environmentText } = await import("twinccl/bench");
const names = wanted.length === 0 ? Object.keys(paths) : wanted;
const unknown = names.filter((name) => !Object.hasOwn(paths, name));
if (unknown.length > 0) {
  console.error(
    `profile: no path is called ${unknown.join(", ")}; there are ${Object.keys(paths).join(", ")}`,
  );
  process.exit(1);
}
if (values.out !== undefined) mkdirSync(values.out, { recursive: true });
const found = environment();
console.log(`# ${environmentText(found)}`);
const summaries = names.map(summaryOf);
if (wanted.length === 0) {
  for (const backend of ["sim", "nccl"]) {
    console.log(`\n${countLines(backend, callPaths(backend)).join("\n")}`);
  }
}
if (values.out !== undefined) {
  const text = JSON.stringify({ ...found, paths: summaries }, null, 2);
  writeFileSync(join(values.out, "summary.json"), `${text}\n`);
}
