/** The surroundings of a command: its output, and the backends behind names. Tests pass their own. */

import type { Algorithm } from "../algorithms/index.ts";
import type { Backend } from "../api/index.ts";
import type { ScheduleName } from "../backends/sim/index.ts";
import type { NcclSetup } from "../golden/case.ts";

/** Algorithms by collective: names of the catalogue, or the user's own. */
export type NamedAlgorithms = Readonly<Record<string, string | Algorithm>>;

/** The command line's settings for a backend. */
export interface BackendSettings {
  /** Library with the plans that the simulation follows, such as `nccl-2.28`. */
  readonly like?: string | undefined;
  /** The machine with the plans that are followed. */
  readonly topology?: "h200x8" | undefined;
  /** The set-up of NCCL, for NCCL itself and for its plans. */
  readonly plan?: NcclSetup | undefined;
  /** GPUs by rank, for NCCL. */
  readonly devices?: readonly number[] | undefined;
  /** The plans that NCCL takes are to be read from its log. */
  readonly readPlan?: boolean | undefined;
  readonly seed?: number | undefined;
  /** The order in which simulated ranks resume. */
  readonly schedule?: ScheduleName | undefined;
  readonly algorithms?: NamedAlgorithms | undefined;
  /** Where events go, for `--trace`. */
  readonly trace?: TraceSink | undefined;
  /** The executor of the simulation: a name of `executors.ts`. */
  readonly executor?: string | undefined;
  /** Simulated ranks that write a lent buffer fail. */
  readonly strict?: boolean | undefined;
  /** The links of simulated ranks. */
  readonly link?: { readonly latencyNs?: number; readonly gigabytesPerSecond?: number } | undefined;
}

/** A trace as the command line sees it. */
export interface TraceSink {
  toText(): string;
  toChrome(): object;
}

/** Table of backends by name; only the command line has one. */
export type BackendTable = Readonly<Record<string, (settings: BackendSettings) => Backend>>;

/** The surroundings of a command. */
export interface Context {
  /** Writes to standard output. */
  readonly out: (text: string) => void;
  /** Writes to standard error. */
  readonly err: (text: string) => void;
  /** Like `err`, for control sequences of a terminal; `err` by default. */
  readonly control?: (text: string) => void;
  /** True when standard error is a terminal, so that a progress line makes sense. */
  readonly terminal: boolean;
  /** Letters in a line of that terminal, as it is now; any number when left out. */
  readonly columns?: () => number;
  readonly backends: BackendTable;
  /** Reserves standard output for `out`: output of programs goes to standard error. */
  readonly reserveOutput?: () => void;
}

/** A command of the table in `cli.ts`. */
export interface Command {
  readonly name: string;
  /** One line for the overall help. */
  readonly summary: string;
  /** The whole help text. */
  readonly help: string;
  /** The arguments that are the command's own, where others belong to a script that it starts. */
  readonly own?: (args: readonly string[]) => readonly string[];
  /** Programs print to standard output as well; else it holds the command's own text or document alone. */
  readonly sharesOutput?: true;
  /** Runs it; resolves to the exit status. */
  readonly run: (args: readonly string[], context: Context) => Promise<number>;
}

/** The command line itself is wrong: shown with a pointer to the help, exit status 2. */
export class UsageError extends Error {}
