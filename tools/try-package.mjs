// Installs a packed tarball in an empty folder, without network and without a cache, then imports
// every entry and starts the command. What this proves: files are complete, nothing is needed
// that is not declared, and the package has no dependency to fetch.

import { execFileSync } from "node:child_process";
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join, resolve } from "node:path";
import { options } from "./options.mjs";

const about = "Installs a packed tarball in an empty folder, and imports every entry.";
const { _: given } = options({ name: "try-package", about, options: {}, positionals: "TARBALL" });
const tarball = resolve(given[0] ?? "");
const folder = mkdtempSync(join(tmpdir(), "try-package-"));

function inFolder(command, args) {
  return execFileSync(command, args, {
    cwd: folder,
    encoding: "utf8",
    stdio: ["ignore", "pipe", "inherit"],
    timeout: 120_000,
  });
}

try {
  writeFileSync(join(folder, "package.json"), '{ "private": true, "type": "module" }\n');
  const quiet = ["--no-audit", "--no-fund", "--loglevel", "error"];
  const alone = ["--offline", "--cache", join(folder, "cache")];
  inFolder("npm", ["install", ...alone, ...quiet, tarball]);

  const own = JSON.parse(readFileSync(new URL("../package.json", import.meta.url), "utf8"));
  const manifestPath = join(folder, "node_modules", own.name, "package.json");
  const manifest = JSON.parse(readFileSync(manifestPath, "utf8"));
  const peers = Object.keys(manifest.peerDependencies ?? {});

  for (const key of Object.keys(manifest.exports)) {
    if (key === "./package.json") continue;
    const entry = key.replace(/^\./, manifest.name);
    // An entry may ask for its optional peer, by that peer's name, and for nothing else.
    const program = `
      const names = await import(${JSON.stringify(entry)}).then(Object.keys, (error) => {
        const peer = ${JSON.stringify(peers)}.find((p) => error.message.includes("'" + p + "'"));
        if (error.code === "ERR_MODULE_NOT_FOUND" && peer) return ["asks for " + peer];
        throw error;
      });
      console.log(names.length === 0 ? "(no values)" : names.join(" "));`;
    const said = inFolder(process.execPath, ["--input-type=module", "--eval", program]);
    process.stdout.write(`${entry}: ${said}`);
  }
  for (const command of Object.keys(manifest.bin)) {
    inFolder(join(folder, "node_modules", ".bin", command), ["--help"]);
    process.stdout.write(`${command} --help: starts\n`);
  }
} finally {
  rmSync(folder, { recursive: true, force: true });
}
