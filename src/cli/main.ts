#!/usr/bin/env node
/** The executable: gives the command line its process. */
import { backends } from "./backends.ts";
import { runCli } from "./cli.ts";

// A reader that has seen enough (`| head`) is no failure of ours.
process.stdout.on("error", (error: NodeJS.ErrnoException) => {
  if (error.code !== "EPIPE") throw error;
});

process.exitCode = await runCli(process.argv.slice(2), {
  out: (text) => process.stdout.write(text),
  err: (text) => process.stderr.write(text),
  terminal: process.stderr.isTTY === true,
  backends,
});
