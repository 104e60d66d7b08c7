#!/usr/bin/env node
/** The executable: runs the command line in this process. */
import { fileURLToPath } from "node:url";
import { runCli } from "./cli.ts";
import { closedPipeStatus, onOutputClosed, reserveOutput, standardOutput } from "./output.ts";

// Without a reader of its output (`| head`) a command ends in silence; a full disk is a failure, reported in one line.
for (const stream of [standardOutput, process.stderr]) {
  stream.on("error", ({ code, message }: NodeJS.ErrnoException) => {
    if (code === "EPIPE") {
      for (const listener of onOutputClosed) listener();
      if (stream === standardOutput && onOutputClosed.size === 0) process.exit(closedPipeStatus);
      return;
    }
    if (stream === standardOutput) process.stderr.write(`twinccl: cannot write: ${message}\n`);
    process.exit(1);
  });
}

/** Exit status of a command that is not over when nothing is left to wait for: that of Node.js for an open top-level `await`. */
const unfinished = 13;

async function main(): Promise<void> {
  const onExit = (status: number): void => {
    if (status === 0) process.exitCode = unfinished;
  };
  process.once("exit", onExit);
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
  process.removeListener("exit", onExit);

  // What a failed program left open keeps no process, and a failed rank ends before the ranks that fail by its end.
  if (process.exitCode !== 0) {
    for (const stream of [standardOutput, process.stderr]) {
      await new Promise((resolve) => stream.write("", resolve));
    }
    process.exit();
  }
}

// Node.js would warn of an open top-level `await`, with lines of this file.
void main();
