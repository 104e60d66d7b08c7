// Has Node.js run the TypeScript of the tests, in programs that import this before it:
//   import "../support/typescript-loader.mjs";
//   const { parts } = await import("./parts.ts");
// Only files under test/ are translated: programs get the library itself from dist, as its users do.
import { readFile } from "node:fs/promises";
import { register } from "node:module";
import { fileURLToPath } from "node:url";
import { isMainThread } from "node:worker_threads";

const tests = new URL("../", import.meta.url).href;

// Node calls the hook below on a thread of its own, which imports this file again.
if (isMainThread) {
  process.setSourceMapsEnabled(true);
  register(import.meta.url);
}

let typescript;

/** Node's hook: the source of a module. */
export async function load(url, context, next) {
  if (!url.startsWith(tests) || !url.endsWith(".ts")) return next(url, context);
  typescript ??= (await import("typescript")).default;
  const { outputText } = typescript.transpileModule(await readFile(new URL(url), "utf8"), {
    fileName: fileURLToPath(url),
    compilerOptions: {
      module: typescript.ModuleKind.ESNext,
      target: typescript.ScriptTarget.ES2022,
      verbatimModuleSyntax: true,
      inlineSourceMap: true,
      inlineSources: true,
    },
  });
  return { format: "module", shortCircuit: true, source: outputText };
}
