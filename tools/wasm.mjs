// Compiles assembly/ to WebAssembly and writes it where src imports it from, in files that git ignores: the kernels of the wasm
// executor with the script of their workers, and the inputs of recorded calls.

import { spawnSync } from "node:child_process";
import { createHash } from "node:crypto";
import {
  cpSync,
  existsSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  renameSync,
  rmSync,
  writeFileSync,
} from "node:fs";
import { createRequire } from "node:module";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";

const root = fileURLToPath(new URL("..", import.meta.url));
const assembly = join(root, "assembly");
/** Where the modules belong, in src and in dist. */
const [kernelsPlace, inputsPlace] = [
  join("backends", "sim", "executors", "wasm", "binary.js"),
  join("golden", "inputs-binary.js"),
];
export const wasmPlaces = [kernelsPlace, inputsPlace];

/** Flags of an imported memory that is shared and has a maximum; see module.ts. */
const sharedFlags = 3;

/** Hash of the modules' sources: assembly/ and this file. */
function sourcesHash() {
  const hash = createHash("sha256");
  const names = readdirSync(assembly).filter((name) => !name.endsWith(".md"));
  const sources = names.map((name) => join(assembly, name));
  for (const path of [...sources.sort(), fileURLToPath(import.meta.url)]) {
    hash.update(readFileSync(path));
  }
  return hash.digest("hex");
}

/** True for a file that was made of sources with this hash. */
function isMadeOf(path, hash) {
  return existsSync(path) && readFileSync(path, "utf8").startsWith(`// ${hash}\n`);
}

/** Files of src that were not made of the sources as they are. */
function staleTargets(hash) {
  return wasmPlaces.filter((place) => !isMadeOf(join(root, "src", place), hash));
}

/** True when assembly/ or this file changed after the modules were written. */
export function isWasmStale() {
  return staleTargets(sourcesHash()).length > 0;
}

/**
 * Compiles the modules that were made of other sources; returns whether that worked. A built dist that came without the
 * compiler has them too. Messages go to stderr.
 */
export function buildWasm() {
  const hash = sourcesHash();
  return staleTargets(hash).every((place) => {
    const target = join(root, "src", place);
    const built = join(root, "dist", place);
    if (isMadeOf(built, hash)) {
      cpSync(built, target, { preserveTimestamps: true });
      return true;
    }
    const text = place === kernelsPlace ? kernelsText() : inputsText();
    if (text === undefined) return false;
    // Put in its place at once: another process may be doing the same.
    const fresh = `${target}.${process.pid}`;
    writeFileSync(fresh, `// ${hash}\n${text}\n`);
    renameSync(fresh, target);
    return true;
  });
}

/** The text of binary.js; `undefined` when compiling fails. */
function kernelsText() {
  const memory = ["--importMemory", "--noExportMemory", "--sharedMemory"];
  const pages = ["--initialMemory", "1", "--maximumMemory", "65536"];
  const wasm = compiled("groups.ts", [...memory, ...pages, "--enable", "threads"]);
  return (
    wasm &&
    [
      `export const wasmBase64 = "${wasm.toString("base64")}";`,
      `export const memoryFlagsAt = ${memoryFlagsPlace(wasm)};`,
      `export const workerSource = ${JSON.stringify(readFileSync(join(assembly, "worker.js"), "utf8"))};`,
    ].join("\n")
  );
}

/** The text of inputs-binary.js; `undefined` when compiling fails. */
function inputsText() {
  const wasm = compiled("inputs.ts", ["--initialMemory", "1"]);
  return wasm && `export const wasmBase64 = "${wasm.toString("base64")}";`;
}

/** A file of assembly as WebAssembly. */
function compiled(file, options) {
  const folder = mkdtempSync(join(tmpdir(), "twinccl-wasm-"));
  const output = join(folder, "module.wasm");
  const asc = createRequire(import.meta.url).resolve("assemblyscript/bin/asc.js");
  const own = ["--outFile", output, "--noAssert", "--runtime", "stub", "--enable", "simd", "-O3"];
  try {
    const { status } = spawnSync(process.execPath, [asc, file, ...own, ...options], {
      cwd: assembly,
      stdio: ["ignore", 2, 2],
    });
    return status === 0 ? readFileSync(output) : undefined;
  } finally {
    rmSync(folder, { recursive: true, force: true });
  }
}

/** Where the imported memory's flags are: after its names and the kind of the import. */
function memoryFlagsPlace(wasm) {
  const names = Buffer.from("\x03env\x06memory\x02", "latin1");
  const at = wasm.indexOf(names) + names.length;
  if (wasm[at] !== sharedFlags)
    throw new Error("the compiled module does not import shared memory");
  return at;
}

// `node tools/wasm.mjs` compiles.
if (process.argv[1] === fileURLToPath(import.meta.url)) process.exitCode = buildWasm() ? 0 : 1;
