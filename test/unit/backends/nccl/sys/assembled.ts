/** Machine code from its text, by GNU's assembler. */
import { spawnSync } from "node:child_process";
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { type MachineCode, pageBytes } from "../../../../../src/backends/nccl/sys/code-memory.ts";
import { compiler } from "../../../../support/c-library.ts";

/** Why code cannot be assembled here. */
export const missing: string | undefined =
  spawnSync("objcopy", ["--version"]).status === 0 ? undefined : "skipped: needs objcopy";

/** The bytes in hexadecimal digits, from the code's first on; `mailbox` in it is the page behind it. */
export function assembled(code: MachineCode): string {
  const folder = mkdtempSync(join(tmpdir(), "twinccl-code-"));
  try {
    const [source, object, bytes] = ["code.s", "code.o", "code.bin"].map((name) =>
      join(folder, name),
    ) as [string, string, string];
    const lines = code.map(([assembly]) => assembly.replace(/^(\w+): /, "$1:\n"));
    writeFileSync(source, [...lines, `.org ${pageBytes}`, "mailbox:", ""].join("\n"));
    run((compiler as { readonly command: string }).command, "-c", source, "-o", object);
    run("objcopy", "-O", "binary", "-j", ".text", object, bytes);
    return readFileSync(bytes).toString("hex");
  } finally {
    rmSync(folder, { recursive: true });
  }
}

function run(command: string, ...args: string[]): void {
  const { status, stderr } = spawnSync(command, args, { encoding: "utf8" });
  if (status !== 0) throw new Error(`${command} failed:\n${stderr}`);
}
