/**
 * Checks a law on random cases, so that a failing run prints one line that replays it.
 *
 * The line sets `TWINCCL_SEED`, `TWINCCL_PATH` and, for command sequences, `TWINCCL_COMMANDS`; `environmentReplay` reads them
 * back. No other variable is read, and none before that call.
 */
import fc from "fast-check";
import { assertOptions, invalid, type OptionKinds, textOf } from "../api/option-kinds.ts";
import { runtimeProcess } from "../api/runtime-process.ts";
import { assertMembers, assertWhole } from "./argument-checks.ts";

/** Replay position of a failure. */
export interface Replay {
  readonly seed: number;
  /** fast-check's path to the shrunk counterexample. */
  readonly path?: string | undefined;
  /** fast-check's `replayPath` of a sequence of commands. */
  readonly commands?: string | undefined;
}

/** Options of `checkProperty`. */
export interface CheckOptions extends Partial<Omit<Replay, "seed">> {
  /** Seed of the cases; by default one fixed seed in every run. */
  readonly seed?: number | undefined;
  /** Number of cases; 100 when left out. */
  readonly runs?: number | undefined;
  /** Command that reruns this check, such as `npx vitest run test/mine.test.ts`; part of the replay line. */
  readonly command?: string | undefined;
}

const kinds: OptionKinds<CheckOptions> = {
  ...{ runs: true, command: "string", seed: true, path: "string", commands: "string" },
};

const defaultSeed = 0x2717cc1;

/**
 * The variables of a replay line, if set; `seed` without one.
 *
 * @throws Error for a TWINCCL_SEED that is no integer. InvalidArgumentError for a `seed` that is none.
 */
export function environmentReplay(seed: number = defaultSeed): Replay {
  assertWhole("environmentReplay", "seed", seed);
  const variables = runtimeProcess()?.env ?? {};
  const { TWINCCL_SEED: text, TWINCCL_PATH: path, TWINCCL_COMMANDS: commands } = variables;
  const given = isSet(text) ? Number(text) : seed;
  if (!Number.isSafeInteger(given)) throw new Error(`TWINCCL_SEED=${text} is no integer`);
  const [pathSet, commandsSet] = [path, commands].map((each) => (isSet(each) ? each : undefined));
  return { seed: given, path: pathSet, commands: commandsSet };
}

/** `NAME=` in a shell unsets a variable for one command. */
function isSet(text: string | undefined): text is string {
  return text !== undefined && text.trim() !== "";
}

/** The one line that replays a failure. */
export function replayLine(replay: Replay, command: string): string {
  assertOptions("replayLine", replay, { seed: true, path: "string", commands: "string" });
  const { seed, path, commands } = replay;
  assertWhole("replayLine", "seed", seed);
  if (typeof command !== "string")
    throw invalid("replayLine", "command", textOf(command), "a text");
  const words = [`TWINCCL_SEED=${seed}`];
  if (path !== undefined) words.push(`TWINCCL_PATH=${path}`);
  if (commands !== undefined) words.push(`TWINCCL_COMMANDS=${commands}`);
  return [...words, command].join(" ");
}

/**
 * Checks a law. The same seed checks the same cases on any machine.
 *
 * @throws Error with the property's message, the shrunk case, and last the line that replays it. Also if preconditions left too
 * few cases, or a path to replay belongs to another property. InvalidArgumentError for options that would check nothing.
 * @example
 * await checkProperty(programs(), async (program) => {
 *   const [a, b] = await runOn({ one: sim(), two: sim({ seed: 7 }) }, program);
 *   expectSame(a, b);
 * });
 */
export async function checkProperty<T>(
  cases: fc.Arbitrary<T>,
  law: (value: T) => void | Promise<void>,
  options: CheckOptions = {},
): Promise<void> {
  assertOptions("checkProperty", options, kinds);
  const { seed = defaultSeed, path, runs = 100, command = "node <this file>" } = options;
  assertWhole("checkProperty", "runs", runs, 1);
  assertWhole("checkProperty", "seed", seed);
  assertMembers("checkProperty", "cases", cases, { generate: "function" }, "cases of fast-check");
  if (typeof law !== "function") throw invalid("checkProperty", "law", textOf(law), "a function");
  const property = fc.asyncProperty(cases, async (value) => law(value));
  const start = path === undefined ? {} : { path };
  try {
    const details = await fc.check(property, { seed, numRuns: runs, ...start });
    if (details.failed) throw failure(details, runs, { seed, command });
  } catch (error) {
    throw isOtherPath(error) ? new Error(otherPathText(seed, path), { cause: error }) : error;
  }
}

function failure<T>(
  details: fc.RunDetails<[T]>,
  runs: number,
  { seed, command }: { readonly seed: number; readonly command: string },
): Error {
  const { counterexample, counterexamplePath, errorInstance, numShrinks } = details;
  if (counterexample === null) {
    const { numSkips, numRuns } = details;
    return new Error(
      `${numSkips} cases were skipped by preconditions, and only ${numRuns} of ${runs} were checked\n` +
        `hint: draw cases that meet them\nreplay: ${replayLine({ seed }, command)}`,
    );
  }
  const message = errorInstance instanceof Error ? errorInstance.message : String(errorInstance);
  const shrunk = fc.stringify(counterexample[0]);
  const commands = /replayPath="([^"]+)"/.exec(shrunk)?.[1];
  const line = replayLine({ seed, path: counterexamplePath ?? undefined, commands }, command);
  return new Error(`${message}\n\nafter ${numShrinks} shrinks: ${shrunk}\nreplay: ${line}`, {
    cause: errorInstance,
  });
}

/** fast-check has no error code for this case. */
function isOtherPath(error: unknown): boolean {
  return error instanceof Error && error.message.startsWith("Unable to replay");
}

function otherPathText(seed: number, path: string | undefined): string {
  return (
    `there is no case at TWINCCL_PATH=${path} of TWINCCL_SEED=${seed}: it belongs to another property\n` +
    "hint: every property that runs starts at that path; select the one that failed, such as with -t"
  );
}
