import { fileURLToPath } from "node:url";
import { backends } from "../../../src/cli/backends.ts";
import { runCli } from "../../../src/cli/cli.ts";
import type { BackendTable, Context } from "../../../src/cli/context.ts";

/** The output of a command line, and its exit status. */
export interface Outcome {
  readonly status: number;
  readonly out: string;
  readonly err: string;
}

/** Parts of the context that a test replaces. */
type Surroundings = Partial<Omit<Context, "backends">> & { readonly backends?: BackendTable };

/** Runs a command line in this process. */
export function cli(line: string, surroundings: Surroundings = {}): Promise<Outcome> {
  const words = line.split(" ").filter((word) => word !== "");
  return inContext((context) => runCli(words, context), surroundings);
}

/** Runs a part of a command, which gives the exit status. */
export async function inContext(
  run: (context: Context) => Promise<number>,
  surroundings: Surroundings = {},
): Promise<Outcome> {
  let out = "";
  let err = "";
  const context: Context = {
    progress: () => undefined,
    clearProgress: () => undefined,
    out: (text) => (out += text),
    err: (text) => (err += text),
    terminal: false,
    main: fileURLToPath(new URL("../../../dist/cli/main.js", import.meta.url)),
    ...surroundings,
    backends: async () => surroundings.backends ?? backends,
  };
  const status = await run(context);
  return { status, out, err };
}
