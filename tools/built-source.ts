// Has tests run the files of dist in the place of those of src: Node loads them by itself, so that no access to an import is a
// call, as it is in modules that Vite transforms. Loops of the verifier take half the time.

import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";

const root = fileURLToPath(new URL("../", import.meta.url));
const [src, dist] = [join(root, "src/"), join(root, "dist/")];

/** A plugin of Vite and Vitest. */
export const builtSource = {
  name: "built-source",
  enforce: "pre",
  config: () => ({ test: { server: { deps: { external: [/\/dist\/.*\.js$/] } } } }),
  resolveId(id: string, importer = ""): string | undefined {
    const path = id.startsWith(".") ? join(dirname(importer), id) : id;
    if (!path.startsWith(src)) return undefined;
    return join(dist, path.slice(src.length).replace(/\.ts$/, ".js"));
  },
} as const;
