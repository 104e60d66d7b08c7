/** Modules of src with one text changed, joined in one file and imported beside the others. */
import { mkdtempSync, readFileSync, rmSync } from "node:fs";
import { createRequire } from "node:module";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { rolldown } from "rolldown";

const src = fileURLToPath(new URL("../../src/", import.meta.url));

/** A text in a file of src that is there once, and the text in its place. */
export interface Mutation {
  readonly file: string;
  readonly from: string;
  readonly to: string;
}

/** The exports of some modules of src, by their paths in it, where all that they import has the mutation. */
export async function mutated<Exports>(
  { file, from, to }: Mutation,
  modules: readonly string[],
): Promise<Exports> {
  const path = join(src, file);
  const text = readFileSync(path, "utf8");
  if (text.split(from).length !== 2) throw new Error(`${file}: "${from}" is not there once`);
  const folder = mkdtempSync(join(tmpdir(), "twinccl-mutant-"));
  try {
    const bundle = await rolldown({
      input: "mutant",
      platform: "node",
      treeshake: false,
      plugins: [
        {
          name: "mutant",
          resolveId: (id) => (id === "mutant" ? id : undefined),
          load(id) {
            if (id === path) return text.replace(from, () => to);
            if (id !== "mutant") return undefined;
            return modules.map((each) => `export * from ${JSON.stringify(src + each)};`).join("\n");
          },
        },
      ],
    });
    const joined = join(folder, "mutant.cjs");
    await bundle.write({ file: joined, format: "cjs" });
    await bundle.close();
    // Vitest would transform what `import` loads.
    return createRequire(import.meta.url)(joined) as Exports;
  } finally {
    rmSync(folder, { recursive: true });
  }
}
