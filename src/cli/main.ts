#!/usr/bin/env node
/** The executable: runs the command line in this process. */
import { fileURLToPath } from "node:url";
import { runCli } from "./cli.ts";
import { reserveOutput, standardOutput } from "./output.ts";

// A closed reader (`| head`) is not a failure; a full disk is one, reported in one line.
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
  // A dumb terminal cannot erase a line.
  terminal: process.stderr.isTTY === true && process.env["TERM"] !== "dumb",
  columns: () => process.stderr.columns,
  backends: async () => (await import("./backends.ts")).backends,
  main: fileURLToPath(import.meta.url),
  reserveOutput,
});

// What a failed program left open keeps no process, and a failed rank ends before the ranks that fail by its end.
if (process.exitCode !== 0) {
  for (const stream of [standardOutput, process.stderr]) {
    await new Promise((resolve) => stream.write("", resolve));
  }
  process.exit();
}
