// Where the entries of package.json lie in src, for tools that resolve the package's own name: they get src, never a
// dist that may be older. What src imports of assembly/ is compiled first.

import { execFileSync } from "node:child_process";
import { readFileSync } from "node:fs";
import { fileURLToPath } from "node:url";

const root = new URL("../", import.meta.url);
const manifest = JSON.parse(readFileSync(new URL("package.json", root), "utf8"));

execFileSync(process.execPath, [fileURLToPath(new URL("tools/wasm.mjs", root))], {
  stdio: "inherit",
});

/** Aliases for Vite and Vitest. */
export const sourceEntries: { find: RegExp; replacement: string }[] = Object.keys(manifest.exports)
  .filter((entry) => entry !== "./package.json")
  .map((entry) => {
    const built: string = manifest.exports[entry].default;
    const source = built.replace(/^\.\/dist/, "./src").replace(/js$/, "ts");
    return {
      find: new RegExp(`^${entry.replace(/^\./, manifest.name)}$`),
      replacement: fileURLToPath(new URL(source, root)),
    };
  });
