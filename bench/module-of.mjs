// Which module a line of dist comes from: bundle.mjs writes the module's path before its lines.

import { readFileSync } from "node:fs";
import { fileURLToPath } from "node:url";

const dist = new URL("../dist/", import.meta.url).href;
const known = new Map();

/** The module of each line of a file, as `api/op.js`. */
function modulesOf(url) {
  let module = url.slice(dist.length);
  const lines = readFileSync(fileURLToPath(url), "utf8").split("\n");
  return lines.map((line) => {
    module = /^\/\/ (\S+\.js)$/.exec(line)?.[1] ?? module;
    return module;
  });
}

/** The module of a line, counted from 0; `undefined` for a file outside of dist. */
export function moduleOf(url, line) {
  if (!url.startsWith(dist)) return undefined;
  if (!known.has(url)) known.set(url, modulesOf(url));
  return known.get(url)[line];
}
