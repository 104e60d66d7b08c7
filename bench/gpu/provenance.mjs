// The NCCL that a peer really uses, described so that results carry no path of a machine.
import { createHash } from "node:crypto";
import { readFileSync, realpathSync } from "node:fs";
import { basename } from "node:path";

const hashes = new Map();

/** `libnccl.so.2 sha256:0123456789ab`: equal for equal files, wherever they lie. */
export function libraryName(path) {
  if (!path?.startsWith("/")) return path ?? "unknown";
  const file = realpathSync(path);
  if (!hashes.has(file)) {
    const hash = createHash("sha256").update(readFileSync(file)).digest("hex");
    hashes.set(file, `${basename(path)} sha256:${hash.slice(0, 12)}`);
  }
  return hashes.get(file);
}

/** A message in which files keep only their names. */
export const withoutPaths = (text) => text.replace(/(?:\/[\w.+@-]+)+\/(?=[\w.+@-])/g, "");
