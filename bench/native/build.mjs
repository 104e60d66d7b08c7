// Builds the native loop with g++ against the NCCL and CUDA runtime that libraries.mjs finds, and prints its path:
//   node bench/native/build.mjs [OUTPUT [SOURCE]]
import { spawnSync } from "node:child_process";
import { mkdtempSync } from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { findLibraries } from "../gpu/libraries.mjs";

/** Builds the loop, or another program against the same libraries, and returns its path. Throws with the compiler's words. */
export function buildNative(output, source = fileURLToPath(new URL("main.cpp", import.meta.url))) {
  const found = findLibraries();
  const missing = Object.keys(found).filter((name) => found[name] === undefined);
  if (missing.length > 0) throw new Error(`not found: ${missing.join(", ")}`);
  const program = output ?? join(mkdtempSync(join(tmpdir(), "twinccl-native-")), "nccl-loop");
  const rpath = [found.nccl, found.cudart].map((library) => `-Wl,-rpath,${dirname(library)}`);
  const includes = [`-I${found.ncclInclude}`, `-I${found.cudaInclude}`];
  const args = ["-std=c++17", "-O2", "-Wall", ...includes, source, "-o", program];
  const libraries = [found.nccl, found.cudart, ...rpath, "-ldl", "-lpthread"];
  const { status, stderr, error } = spawnSync(process.env.CXX ?? "g++", [...args, ...libraries], {
    encoding: "utf8",
  });
  if (error !== undefined) throw error;
  if (status !== 0) throw new Error(`g++ failed:\n${stderr}`);
  return program;
}

if (process.argv[1] === fileURLToPath(import.meta.url)) {
  process.stdout.write(`${buildNative(process.argv[2], process.argv[3])}\n`);
}
