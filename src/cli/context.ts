/** The context of a command: its output and its backends by name. Tests pass their own. */

import type {
  Algorithm,
  LinkOptions,
  MachineProfile,
  TopologyOption,
} from "../algorithms/index.ts";
import type { Backend } from "../api/index.ts";
import type { ScheduleName } from "../backends/sim/index.ts";
import type { NcclSetup } from "../golden/case.ts";

/** Algorithms by collective: names of the catalogue, or a user's algorithms. */
export type NamedAlgorithms = Readonly<Record<string, string | Algorithm>>;

/** The command line's settings for a backend. */
export interface BackendSettings {
  /** Library of the plans followed by the simulation, such as `nccl-2.28`. */
  readonly like?: string | undefined;
  /** The machine of the followed plans. */
  readonly topology?: TopologyOption | undefined;
  /** Settings of NCCL, for NCCL itself and for its plans. */
  readonly plan?: NcclSetup | undefined;
  /** GPUs by rank, for NCCL. */
  readonly devices?: readonly number[] | undefined;
  /** True if NCCL's plans are read from its log. */
  readonly readPlan?: boolean | undefined;
  readonly seed?: number | undefined;
  /** The order in which simulated ranks resume. */
  readonly schedule?: ScheduleName | undefined;
  readonly algorithms?: NamedAlgorithms | undefined;
  /** The profile of the machine, for the simulation's clock. */
  readonly machine?: MachineProfile | undefined;
  /** True if simulated buffers have sizes and no contents. */
  readonly phantom?: boolean | undefined;
  /** Receiver of events, for `--trace`. */
  readonly trace?: TraceSink | undefined;
  /** The executor of the simulation: a name of `executors.ts`. */
  readonly executor?: string | undefined;
  /** True if simulated ranks fail when they write a lent buffer. */
  readonly strict?: boolean | undefined;
  /** The links of simulated ranks. */
  readonly link?: LinkOptions | undefined;
  /** False where all processes make the same calls by themselves. */
  readonly comparesCalls?: boolean | undefined;
}

/** The command line's view of a trace. */
export interface TraceSink {
  toText(): string;
  toChrome(): object;
}

/** Table of backends by name; only the command line has one. The modules of a backend are loaded with the first of its kind. */
export type BackendTable = Readonly<
  Record<string, (settings: BackendSettings) => Backend | Promise<Backend>>
>;

/** The context of a command. */
export interface Context {
  /** Writes to standard output. */
  readonly out: (text: string) => void;
  /** Writes to standard error. */
  readonly err: (text: string) => void;
  /** Shows one line of progress if `terminal` is true, until the next line or other output. */
  readonly progress: (text: string) => void;
  /** Erases that line, for output past `out` and `err`. */
  readonly clearProgress: () => void;
  /** True if standard error is a terminal that can erase a line. */
  readonly terminal: boolean;
  /** Present width of that terminal in letters; unlimited by default. */
  readonly columns?: () => number;
  /** Loads them, once a command needs one. */
  readonly backends: () => Promise<BackendTable>;
  /** Script that runs this command line in further processes. */
  readonly main: string;
  /** Reserves standard output for `out`: output of programs goes to standard error. */
  readonly reserveOutput?: () => void;
}

/** A command: its file exports one, as `command`. */
export interface Command {
  /** The whole help text. */
  readonly help: string;
  /** The command's own arguments, without those of a script that it starts. */
  readonly own?: (args: readonly string[]) => readonly string[];
  /** True if programs may print to standard output; otherwise it holds only the command's text or document. */
  readonly sharesOutput?: true;
  /** Runs the command; resolves to the exit status. */
  readonly run: (args: readonly string[], context: Context) => Promise<number>;
}

/** An error of the command line itself, shown with a pointer to the help; exit status 2. */
export class UsageError extends Error {}

/** An output file that cannot be written after the work, shown in one line; exit status 1. */
export class OutputError extends Error {}
