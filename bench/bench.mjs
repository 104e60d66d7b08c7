// Runs bench/**/*.bench.ts against the built package: npm run bench -- --help. Node 20 cannot run TypeScript, so each file
// is turned into a JavaScript file beside it for the run; `twinccl` in it resolves to dist, as for a user.

import { spawnSync } from "node:child_process";
import { readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import ts from "typescript";
import { build, isStale } from "../tools/build.mjs";
import { options, output } from "../tools/options.mjs";
import { besideText, gpus } from "./gpu/found.mjs";

const folder = fileURLToPath(new URL(".", import.meta.url));
const values = options({
  name: "bench",
  about:
    "Runs the micro-benchmarks of bench/, which measure the simulation, and on a machine with GPUs bench:gpu --quick, which measures NCCL beside it; or only those micro-benchmarks whose path has one of these parts.",
  options: {
    out: {
      is: output,
      help: "collects all figures in one JSON document; those on GPUs in another one beside it, FILE-gpus.json",
    },
  },
  positionals: "PART...",
});
const filters = values._;

const sources = readdirSync(folder, { recursive: true, encoding: "utf8" })
  .filter((path) => path.endsWith(".ts"))
  .sort();
const benches = sources.filter((path) => path.endsWith(".bench.ts"));
const chosen = benches.filter(
  (path) => filters.length === 0 || filters.some((filter) => path.includes(filter)),
);

/** bench/x.ts becomes bench/x.js, and imports of "./x.ts" follow. */
function transpile(path) {
  const options = {
    target: ts.ScriptTarget.ES2022,
    module: ts.ModuleKind.ESNext,
    verbatimModuleSyntax: true,
    rewriteRelativeImportExtensions: true,
  };
  const { outputText } = ts.transpileModule(readFileSync(join(folder, path), "utf8"), {
    compilerOptions: options,
    fileName: path,
  });
  const output = join(folder, path.replace(/\.ts$/, ".js"));
  writeFileSync(output, outputText);
  return output;
}

if (chosen.length === 0) {
  process.stderr.write(`bench: no file matches; there are: ${benches.join(", ") || "none"}\n`);
  process.exitCode = 2;
} else if (isStale() && !build()) {
  process.exitCode = 1;
} else {
  const outputs = sources.map(transpile);
  const passedOn = values.out === undefined ? [] : ["--out", values.out];
  // Every bench adds to the document; figures of an earlier run do not belong in it.
  if (values.out !== undefined) rmSync(values.out, { force: true });
  try {
    for (const path of chosen) {
      process.stdout.write(`\n# ${path}\n`);
      const output = join(folder, path.replace(/\.ts$/, ".js"));
      const { status } = spawnSync(process.execPath, [output, ...passedOn], { stdio: "inherit" });
      if (status !== 0) process.exitCode = 1;
    }
  } finally {
    for (const output of outputs) rmSync(output, { force: true });
  }
  benchGpus();
}

/** NCCL beside the simulation, where all are requested and there are GPUs; else a pointer to that measurement. */
function benchGpus() {
  const found = gpus();
  if (found.names.length === 0 || filters.length > 0) {
    process.stdout.write(`\n# ${besideText(found)}\n`);
    return;
  }
  process.stdout.write("\n# gpu.mjs --quick\n");
  const gpuOut = values.out?.replace(/(\.json)?$/, "-gpus.json");
  const passedOn = gpuOut === undefined ? [] : ["--out", gpuOut];
  const script = join(folder, "gpu.mjs");
  const { status } = spawnSync(process.execPath, [script, "--quick", ...passedOn], {
    stdio: "inherit",
  });
  if (status !== 0) process.exitCode = 1;
}
