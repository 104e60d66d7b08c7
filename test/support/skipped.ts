/** Tests that a machine may lack something for: their titles say what, where they are skipped. */
import { spawnSync } from "node:child_process";

/** The end of a title; empty where the machine has what is needed. */
export function skippedWithout(isThere: boolean, needed: string): string {
  return isThere ? "" : ` (skipped: needs ${needed})`;
}

export const linuxReason = skippedWithout(process.platform === "linux", "Linux");

export const posixReason = skippedWithout(process.platform !== "win32", "signals and bash");

/** The command that runs another one on a terminal. */
export const scriptReason = skippedWithout(
  spawnSync("sh", ["-c", "command -v script"]).status === 0,
  "the command script",
);
