// Has Node.js run the TypeScript of the tests, in programs that import this before it:
//   import "../support/typescript-loader.mjs";
//   const { parts } = await import("./parts.ts");
// Only files under test/ are translated: programs get the library itself from dist, as its users do.
import { readFile } from "node:fs/promises";
import { createRequire, register } from "node:module";
import { fileURLToPath } from "node:url";
import { isMainThread } from "node:worker_threads";

const tests = new URL("../", import.meta.url).href;

// Node calls the hook below on a thread of its own, which imports this file again.
if (isMainThread) {
  process.setSourceMapsEnabled(true);
  register(import.meta.url);
}

const vite = createRequire(import.meta.url).resolve("vite/package.json");
const ofVite = createRequire(vite).resolve;
let transform;

/** Node's hook: the source of a module. */
export async function load(url, context, next) {
  if (!url.startsWith(tests) || !url.endsWith(".ts")) return next(url, context);
  // Vite's own transformer: loading all of vite takes as long as the rest of a program's start.
  transform ??= (await import(ofVite("rolldown/utils"))).transform;
  const path = fileURLToPath(url);
  const { code, map, errors } = await transform(path, await readFile(path, "utf8"), {
    sourcemap: true,
    target: "es2022",
    typescript: { onlyRemoveTypeImports: true },
  });
  if (errors.length > 0) throw new Error(`${path}: ${errors[0].message}`);
  const sourceMap = Buffer.from(JSON.stringify(map)).toString("base64");
  const comment = `//# sourceMappingURL=data:application/json;base64,${sourceMap}`;
  return { format: "module", shortCircuit: true, source: `${code}\n${comment}\n` };
}
