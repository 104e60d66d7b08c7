#!/usr/bin/env node
/** The executable: gives the command line its process. */
import { backends } from "./backends.ts";
import { runCli } from "./cli.ts";
import { reserveOutput, standardOutput } from "./output.ts";

// A reader that has seen enough (`| head`) is no failure of ours; a full disk is, and one line says it.
for (const stream of [standardOutput, process.stderr]) {
  stream.on("error", ({ code, message }: NodeJS.ErrnoException) => {
    if (code === "EPIPE") return;
    if (stream === standardOutput) process.stderr.write(`twinccl: cannot write: ${message}\n`);
    process.exit(1);
  });
}

process.exitCode = await runCli(process.argv.slice(2), {
  out: (text) => standardOutput.write(text),
  err: (text) => process.stderr.write(text),
  terminal: process.stderr.isTTY === true,
  columns: () => process.stderr.columns,
  backends,
  reserveOutput,
});
