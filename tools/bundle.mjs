// Joins the modules of a layer in one file beside them, `api/api-layer.js`, and leaves of each module a line that exports from there:
// Node takes a millisecond of processor time for each module that it loads. The commands of cli stay as they are, each loaded alone.
// node tools/bundle.mjs FOLDER changes a folder that tsc has written.

import { readdirSync, readFileSync } from "node:fs";
import { basename, join, relative } from "node:path";
import { rolldown } from "rolldown";

/** Layers, each after those that it imports, and parts of a layer that are loaded alone. */
const layers = [
  "api",
  "algorithms",
  "job",
  "backends/sim",
  "backends/sim/executors/webgpu",
  "backends/nccl",
  "backends/tcp",
  "parallel",
  "parallel/models",
  "testing/oracle",
  "testing",
  "golden",
  "bench",
];

/** Modules with a file of their own: what `twinccl launch` needs of layers that it does not load. */
const alone = ["bench/sizes.js", "backends/nccl/process/visible-devices.js"];

async function bundle(folder) {
  const modules = readdirSync(folder, { recursive: true, encoding: "utf8" }).filter(
    (path) => path.endsWith(".js") && !path.startsWith(join("cli", "/")),
  );
  const innerFirst = [...layers].sort((a, b) => b.length - a.length);
  const layerOf = (path) =>
    alone.includes(relative(folder, path))
      ? undefined
      : innerFirst.find((layer) => path.startsWith(join(folder, layer, "/")));
  /** A module's own address stays what it is in a file of its own. */
  const keepAddress = (code, id) => {
    const layer = layerOf(id);
    if (layer === undefined) return undefined;
    const place = JSON.stringify(relative(join(folder, layer), id));
    return code.replaceAll("import.meta.url", `new URL(${place}, import.meta.url).href`);
  };
  const joined = await rolldown({
    input: Object.fromEntries(modules.map((path) => [path.slice(0, -3), join(folder, path)])),
    cwd: folder,
    platform: "neutral",
    external: /^[^./]/,
    plugins: [{ name: "keep-address", transform: keepAddress }],
    preserveEntrySignatures: "allow-extension",
    treeshake: false,
  });
  const { output } = await joined.write({
    dir: folder,
    entryFileNames: "[name].js",
    chunkFileNames: "[name].js",
    minifyInternalExports: false,
    codeSplitting: {
      includeDependenciesRecursively: false,
      groups: layers.map((layer, at) => ({
        name: `${layer}/${basename(layer)}-layer`,
        test: (id) => layerOf(id) === layer,
        priority: layers.length - at,
      })),
    },
  });
  await joined.close();
  // Of two equal names in a file one gets a number; errors show the names of classes.
  for (const { fileName } of output) {
    const [renamed] = /\bclass \w+\$\d+/.exec(readFileSync(join(folder, fileName), "utf8")) ?? [];
    if (renamed !== undefined) throw new Error(`${fileName}: ${renamed} has a name of its own`);
  }
}

await bundle(process.argv[2]);
