// Compiles assembly/ to WebAssembly and writes it, with the script of the workers, where the wasm executor imports it
// from: src/backends/sim/executors/wasm/binary.js, which git ignores.

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
/** Where it belongs, in src and in dist. */
export const wasmPlace = join("backends", "sim", "executors", "wasm", "binary.js");
const target = join(root, "src", wasmPlace);

/** Flags of an imported memory that is shared and has a maximum; see module.ts. */
const sharedFlags = 3;

/** Hash of the module's sources: assembly/ and this file. */
function sourcesHash() {
  const hash = createHash("sha256");
  const names = readdirSync(assembly).filter((name) => !name.endsWith(".md"));
  const sources = names.map((name) => join(assembly, name));
  for (const path of [...sources.sort(), fileURLToPath(import.meta.url)]) {
    hash.update(readFileSync(path));
  }
  return hash.digest("hex");
}

/** True for a module that was made of the sources as they are. */
function isMadeOf(path, hash) {
  return existsSync(path) && readFileSync(path, "utf8").startsWith(`// ${hash}\n`);
}

/** True when assembly/ or this file changed after the module was written. */
export function isWasmStale() {
  return !isMadeOf(target, sourcesHash());
}

/**
 * Compiles the module when it was made of other sources; returns whether that worked. A built dist that came without the
 * compiler has it too. Messages go to stderr.
 */
export function buildWasm() {
  const hash = sourcesHash();
  if (isMadeOf(target, hash)) return true;
  const built = join(root, "dist", wasmPlace);
  if (isMadeOf(built, hash)) {
    cpSync(built, target, { preserveTimestamps: true });
    return true;
  }
  const folder = mkdtempSync(join(tmpdir(), "twinccl-wasm-"));
  const output = join(folder, "kernels.wasm");
  const asc = createRequire(import.meta.url).resolve("assemblyscript/bin/asc.js");
  const options = ["groups.ts", "--outFile", output, "--noAssert", "--runtime", "stub"];
  const memory = ["--importMemory", "--noExportMemory", "--sharedMemory"];
  const pages = ["--initialMemory", "1", "--maximumMemory", "65536"];
  const features = ["--enable", "simd", "--enable", "threads", "-O3"];
  const args = [asc, ...options, ...memory, ...pages, ...features];
  try {
    const { status } = spawnSync(process.execPath, args, {
      cwd: assembly,
      stdio: ["ignore", 2, 2],
    });
    if (status !== 0) return false;
    const wasm = readFileSync(output);
    const text = [
      `// ${hash}`,
      `export const wasmBase64 = "${wasm.toString("base64")}";`,
      `export const memoryFlagsAt = ${memoryFlagsPlace(wasm)};`,
      `export const workerSource = ${JSON.stringify(readFileSync(join(assembly, "worker.js"), "utf8"))};`,
    ].join("\n");
    // Put in its place at once: another process may be doing the same.
    const fresh = `${target}.${process.pid}`;
    writeFileSync(fresh, `${text}\n`);
    renameSync(fresh, target);
    return true;
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
