/** The command line: finds the command, runs it, and turns its error into a message and an exit status. */
import { readFileSync } from "node:fs";
import { inspect } from "node:util";
import { hasCallSite } from "../api/call-site.ts";
import { escaped } from "../api/error-text.ts";
import {
  BackendUnavailableError,
  CommError,
  InvalidArgumentError,
  UnsupportedError,
  WorldError,
} from "../api/index.ts";
import { suggestedCommand } from "./args.ts";
import { benchCommand } from "./bench.ts";
import { type Command, type Context, UsageError } from "./context.ts";
import { doctorCommand } from "./doctor.ts";
import { explainCommand } from "./explain.ts";
import { goldenCommand } from "./golden.ts";
import { launchCommand } from "./launch.ts";
import { predictCommand } from "./predict.ts";
import { runCommand } from "./run.ts";
import { startCommand } from "./start.ts";
import { traceCommand } from "./trace.ts";
import { verifyCommand } from "./verify.ts";

/** Every command. A new one is a row. */
const commands: readonly Command[] = [
  startCommand,
  benchCommand,
  runCommand,
  launchCommand,
  explainCommand,
  predictCommand,
  traceCommand,
  verifyCommand,
  goldenCommand,
  doctorCommand,
];

/** Exit statuses: success, failure, and an error of the command line or an unavailable backend. */
const status = { fine: 0, wrong: 1, usage: 2 } as const;

/**
 * Runs a command line and resolves to its exit status, without throwing or exiting. Control characters of arguments, names and
 * file contents are escaped in all output.
 */
export async function runCli(args: readonly string[], given: Context): Promise<number> {
  const context: Context = {
    ...given,
    out: (text) => given.out(escaped(text)),
    err: (text) => given.err(escaped(text)),
    control: given.err,
  };
  const [name, ...rest] = args;
  if (name === undefined) {
    context.err(overallHelp());
    return status.usage;
  }
  if (name === "version" || name === "--version" || name === "-v") {
    context.out(`${ownVersion()}\n`);
    return status.fine;
  }
  if (name === "help" || name === "--help" || name === "-h") {
    const [about] = rest;
    const command = commands.find((command) => command.name === about);
    if (about !== undefined && command === undefined) return unknown(about, context);
    context.out(command?.help ?? overallHelp());
    return status.fine;
  }
  const command = commands.find((each) => each.name === name);
  if (command === undefined) return unknown(name, context);
  const own = command.own?.(rest) ?? rest;
  if (own.includes("--help") || own.includes("-h")) {
    context.out(command.help);
    return status.fine;
  }
  if (command.sharesOutput !== true) context.reserveOutput?.();
  try {
    return await command.run(rest, context);
  } catch (error) {
    return report(command, error, context);
  }
}

function unknown(name: string, { err }: Context): number {
  const names = commands.map((each) => each.name);
  const meant = suggestedCommand(name, names);
  const hint = meant === undefined ? "" : `\nhint: use twinccl ${meant}`;
  err(`twinccl: unknown command "${name}"; commands are ${names.join(", ")}${hint}\n`);
  return status.usage;
}

/** Version of the package. */
function ownVersion(): string {
  const manifest = readFileSync(new URL("../../package.json", import.meta.url), "utf8");
  return (JSON.parse(manifest) as { version: string }).version;
}

function overallHelp(): string {
  const width = Math.max(...commands.map(({ name }) => name.length)) + 2;
  const lines = commands.map(({ name, summary }) => `  ${name.padEnd(width)}${summary}\n`);
  return `Usage: twinccl COMMAND [options]

${lines.join("")}
twinccl COMMAND --help tells more; twinccl --version prints the version.
Exit status: 0 fine, 1 something is wrong, 2 wrong usage; of launch, that of its ranks.
`;
}

function report({ name }: Command, error: unknown, { err }: Context): number {
  if (error instanceof UsageError) {
    err(`twinccl ${name}: ${error.message}\nsee twinccl ${name} --help\n`);
    return status.usage;
  }
  err(`twinccl ${name}: ${errorText(error)}\n`);
  return isRefusal(error) ? status.usage : status.wrong;
}

/** True for requests that cannot be served. A failed program is a WorldError instead. */
function isRefusal(error: unknown): boolean {
  return (
    error instanceof BackendUnavailableError ||
    error instanceof UnsupportedError ||
    error instanceof InvalidArgumentError
  );
}

/**
 * Errors of this library explain themselves in their message; a recorded call site is in their stack. Any other error is a bug,
 * so that its whole stack is printed. The text of a failed run contains the text of its cause, if that is an error of this
 * library.
 */
function errorText(error: unknown): string {
  if (error instanceof WorldError) {
    const { cause } = error;
    if (!(cause instanceof CommError)) return `${error.message}\n\n${errorText(cause)}`;
    return hasCallSite(cause) ? `${error.message}\n${framesOf(cause)}` : error.message;
  }
  if (error instanceof CommError && !hasCallSite(error)) return `${error.name}: ${error.message}`;
  return error instanceof Error ? (error.stack ?? String(error)) : inspect(error);
}

/** The stack of an error without its text. */
function framesOf({ stack = "", name, message }: Error): string {
  return stack.replace(`${name}: ${message}\n`, "");
}
