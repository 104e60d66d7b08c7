/** Builds of the package with a file for each module, so that a test can change one. */
import { spawnSync } from "node:child_process";
import { cpSync, symlinkSync } from "node:fs";
import { join } from "node:path";
import { fileURLToPath } from "node:url";

const root = fileURLToPath(new URL("../..", import.meta.url));

/** Builds the package into a folder. */
export function buildModules(folder: string): void {
  const args = ["tools/build.mjs", "--modules", join(folder, "dist")];
  const { status } = spawnSync(process.execPath, args, { cwd: root, stdio: ["ignore", 2, 2] });
  if (status !== 0) throw new Error("the build failed");
  cpSync(join(root, "package.json"), join(folder, "package.json"));
  symlinkSync(join(root, "node_modules"), join(folder, "node_modules"));
}
