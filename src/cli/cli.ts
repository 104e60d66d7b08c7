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
} from "../api/errors.ts";
import { type Command, type Context, OutputError, UsageError } from "./context.ts";
import { ProgressLine } from "./output.ts";

/** A command before its module is loaded. */
interface Row {
  /** One line for the overall help. */
  readonly summary: string;
  /** Each module loads what it needs of the library. */
  readonly load: () => Promise<{ readonly command: Command }>;
}

/** Every command by its name. A new one is a row. */
const commands: Readonly<Record<string, Row>> = {
  start: {
    summary: "measure and check the main collectives on this machine (npm start)",
    load: () => import("./start.ts"),
  },
  bench: {
    summary: "measure a collective in nccl-tests' language and check every result",
    load: () => import("./bench.ts"),
  },
  run: {
    summary: "run a file's program on every rank",
    load: () => import("./run.ts"),
  },
  launch: {
    summary: "start a script in N processes that find each other, one a rank",
    load: () => import("./launch.ts"),
  },
  explain: {
    summary: "show the plan of a call: chunks, fold order, steps, cost",
    load: () => import("./explain.ts"),
  },
  invariant: {
    summary: "decide what the bits of a call depend on: size, channels, protocol, ranks, hosts",
    load: () => import("./invariant.ts"),
  },
  predict: {
    summary: "predict times: of NCCL's choices, of a program, of algorithms on a million ranks",
    load: () => import("./predict.ts"),
  },
  calibrate: {
    summary: "fit the time model of NCCL to the measured times of a machine",
    load: () => import("./calibrate.ts"),
  },
  trace: {
    summary: "show a call or a program in virtual time: text, Chrome trace or SVG",
    load: () => import("./trace.ts"),
  },
  verify: {
    summary: "compare two backends bit by bit, or verify the catalogue's programs",
    load: () => import("./verify.ts"),
  },
  golden: {
    summary: "replay recorded results of NCCL bit by bit, or record results",
    load: () => import("./golden.ts"),
  },
  doctor: {
    summary: "show what this machine offers and which backends can be used",
    load: () => import("./doctor.ts"),
  },
};

/** The row of a name. */
function rowOf(name: string | undefined): Row | undefined {
  return name !== undefined && Object.hasOwn(commands, name) ? commands[name] : undefined;
}

/** Exit statuses: success, failure, and an error of the command line or an unavailable backend. */
const status = { fine: 0, wrong: 1, usage: 2 } as const;

/**
 * Runs a command line and resolves to its exit status, without throwing or exiting. Control characters of arguments, names and
 * file contents are escaped in all output.
 */
export async function runCli(
  args: readonly string[],
  given: Omit<Context, "progress" | "clearProgress">,
): Promise<number> {
  const line = new ProgressLine(given);
  const context: Context = {
    ...given,
    out: (text) => {
      line.clear();
      given.out(escaped(text));
    },
    err: (text) => {
      line.clear();
      given.err(escaped(text));
    },
    progress: (text) => line.show(text),
    clearProgress: () => line.clear(),
  };
  const [name, ...rest] = args;
  if (name === undefined) {
    context.err(overallHelp());
    return status.usage;
  }
  if (["version", "--version", "-v"].includes(name)) return printVersion(name, rest, context);
  if (["help", "--help", "-h"].includes(name)) return printHelp(name, rest, context);
  const row = rowOf(name);
  if (row === undefined) return unknown(name, context);
  const wrongNode = nodeFault();
  if (wrongNode !== undefined) {
    context.err(`twinccl: ${wrongNode}\n`);
    return status.usage;
  }
  const { command } = await row.load();
  const own = command.own?.(rest) ?? rest;
  if (own.includes("--help") || own.includes("-h")) {
    context.out(command.help);
    return status.fine;
  }
  if (command.sharesOutput !== true) context.reserveOutput?.();
  try {
    return await command.run(rest, context);
  } catch (error) {
    return report(name, error, context);
  } finally {
    line.clear();
  }
}

function printVersion(name: string, [extra]: readonly string[], context: Context): number {
  if (extra !== undefined) return refuseArgument(name, extra, context);
  context.out(`${manifest().version}\n`);
  return status.fine;
}

/** Prints the help of a command, or of all. */
async function printHelp(
  name: string,
  [about, extra]: readonly string[],
  context: Context,
): Promise<number> {
  if (extra !== undefined) return refuseArgument(name, extra, context);
  const row = rowOf(about);
  if (about !== undefined && row === undefined) return unknown(about, context);
  context.out(row === undefined ? overallHelp() : (await row.load()).command.help);
  return status.fine;
}

function refuseArgument(name: string, extra: string, { err }: Context): number {
  err(`twinccl ${name}: unexpected argument "${extra}"\nsee twinccl --help\n`);
  return status.usage;
}

async function unknown(name: string, { err }: Context): Promise<number> {
  const { suggestedCommand } = await import("./args.ts");
  const names = Object.keys(commands);
  const meant = suggestedCommand(name, names);
  const hint = meant === undefined ? "" : `\nhint: use twinccl ${meant}`;
  err(`twinccl: unknown command "${name}"; commands are ${names.join(", ")}${hint}\n`);
  return status.usage;
}

/** The fields of package.json that the command line uses. */
interface Manifest {
  readonly version: string;
  readonly engines: { readonly node: string };
}

function manifest(): Manifest {
  const text = readFileSync(new URL("../../package.json", import.meta.url), "utf8");
  return JSON.parse(text) as Manifest;
}

/** The reason not to run on this Node.js, which may lack what a command needs only later; `undefined` for a supported one. */
function nodeFault(): string | undefined {
  const found = process.versions.node;
  const least = manifest().engines.node.replace(">=", "");
  const [major = 0, minor = 0] = found.split(".").map(Number);
  const [leastMajor = 0, leastMinor = 0] = least.split(".").map(Number);
  const isSupported = major > leastMajor || (major === leastMajor && minor >= leastMinor);
  return isSupported ? undefined : `found Node.js ${found}, needs ${least} or newer`;
}

function overallHelp(): string {
  const width = Math.max(...Object.keys(commands).map((name) => name.length)) + 2;
  const lines = Object.entries(commands).map(
    ([name, { summary }]) => `  ${name.padEnd(width)}${summary}\n`,
  );
  return `Usage: twinccl COMMAND [options]

${lines.join("")}
twinccl COMMAND --help has its options; twinccl --version prints the version.
Exit status: 0 fine, 1 something is wrong, 2 wrong usage; with a process for each rank, that of the
rank that failed first.
`;
}

function report(name: string, error: unknown, { err }: Context): number {
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
  if (error instanceof OutputError) return error.message;
  if (error instanceof CommError && !hasCallSite(error)) return `${error.name}: ${error.message}`;
  return error instanceof Error ? (error.stack ?? String(error)) : inspect(error);
}

/** The stack of an error without its text. */
function framesOf({ stack = "", name, message }: Error): string {
  return stack.replace(`${name}: ${message}\n`, "");
}
