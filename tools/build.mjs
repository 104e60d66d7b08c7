// Builds dist from src: tsc of TypeScript 7 writes a file for each module, and bundle.mjs joins those of a layer. Builds the native
// helper of this machine, and knows whether dist is older than src.
//
// The new files are written beside dist and then take its place at once, so a program that runs
// from dist meanwhile never sees half of a build.

import { spawnSync } from "node:child_process";
import {
  chmodSync,
  copyFileSync,
  existsSync,
  readdirSync,
  renameSync,
  rmSync,
  statSync,
  utimesSync,
} from "node:fs";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { buildHelper, isHelperStale } from "./native.mjs";
import { buildWasm, isWasmStale, wasmPlaces } from "./wasm.mjs";

const root = fileURLToPath(new URL("..", import.meta.url));
const dist = join(root, "dist");
const cliMain = join("cli", "main.js");
const bundler = join("tools", "bundle.mjs");

/** The folder's own time counts too: deleting a file changes nothing else. */
function newestTime(folder) {
  let newest = statSync(folder).mtimeMs;
  for (const entry of readdirSync(folder, { withFileTypes: true })) {
    const path = join(folder, entry.name);
    newest = Math.max(newest, entry.isDirectory() ? newestTime(path) : statSync(path).mtimeMs);
  }
  return newest;
}

/** True when src, or how it is compiled, changed after the last build began. */
export function isStale() {
  if (!existsSync(join(dist, cliMain))) return true;
  const configs = ["tsconfig.json", "tsconfig.build.json", bundler].map((name) => join(root, name));
  if (isWasmStale() || isHelperStale()) return true;
  const times = [newestTime(join(root, "src")), ...configs.map((path) => statSync(path).mtimeMs)];
  return Math.max(...times) > statSync(dist).mtimeMs;
}

/** Puts fresh in the place of dist; when another build does the same meanwhile, tries again. */
function replaceDist(fresh, old) {
  for (let attempt = 1; ; attempt += 1) {
    try {
      rmSync(old, { recursive: true, force: true });
      if (existsSync(dist)) renameSync(dist, old);
      renameSync(fresh, dist);
      return;
    } catch (error) {
      if (attempt === 5) throw error;
    }
  }
}

/** Runs a script of Node.js, with its messages on stderr; true when it worked. */
function works(...args) {
  return spawnSync(process.execPath, args, { cwd: root, stdio: ["ignore", 2, 2] }).status === 0;
}

/** Writes a file for each module of src to a folder; returns whether that worked. */
function compile(folder) {
  const tsc = join(root, "node_modules", "typescript-7", "bin", "tsc");
  // Types are checked by `npm run types`, with those of the tests: checking takes longer than all else of a build.
  if (!works(tsc, "-p", "tsconfig.build.json", "--noCheck", "--outDir", folder)) return false;
  for (const place of wasmPlaces) copyFileSync(join(root, "src", place), join(folder, place));
  if (existsSync(join(folder, cliMain))) chmodSync(join(folder, cliMain), 0o755);
  return true;
}

/** Builds dist and returns whether that worked. Messages go to stderr. */
export function build() {
  // What src imports of it is written before reading src begins.
  if (!buildWasm()) return false;
  buildHelper();
  const began = new Date();
  const fresh = join(root, `.dist-${process.pid}`);
  const old = join(root, `.dist-${process.pid}-old`);
  try {
    if (!compile(fresh) || !works(bundler, fresh)) return false;
    // The folder's time says when reading src began, so an edit during the build is not missed.
    utimesSync(fresh, began, began);
    replaceDist(fresh, old);
    return true;
  } finally {
    rmSync(fresh, { recursive: true, force: true });
    rmSync(old, { recursive: true, force: true });
  }
}

// `node tools/build.mjs` builds; with --is-fresh it only reports, by its exit status.
if (process.argv[1] === fileURLToPath(import.meta.url)) {
  const act = process.argv[2] === "--is-fresh" ? () => !isStale() : build;
  process.exitCode = act() ? 0 : 1;
}
