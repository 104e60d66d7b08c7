/**
 * Checks a law on random cases, so that a failing run prints one line that replays it.
 *
 * The line sets `TWINCCL_SEED`, `TWINCCL_PATH` and, for command sequences, `TWINCCL_COMMANDS`; `environmentReplay` reads
 * them back. Nothing else is read from the environment, and nothing at all unless it is called.
 */
import fc from "fast-check";
import { assertOptions, type OptionKinds } from "../api/option-kinds.ts";

/** Where a failure is found again. */
export interface Replay {
  readonly seed: number;
  /** fast-check's path to the shrunk counterexample. */
  readonly path?: string | undefined;
  /** fast-check's `replayPath` of a sequence of commands. */
  readonly commands?: string | undefined;
}

/** Options of `checkProperty`. */
export interface CheckOptions extends Partial<Replay> {
  /** Number of cases; 100 when left out. */
  readonly runs?: number;
  /** What runs this check again, such as `npx vitest run test/mine.test.ts`; part of the line that replays. */
  readonly command?: string;
}

const kinds: OptionKinds<CheckOptions> = {
  ...{ runs: true, command: "string", seed: true, path: "string", commands: "string" },
};

const defaultSeed = 0x2717cc1;

/** The variables of a replay line, where they are set. */
export function environmentReplay(seed: number = defaultSeed): Replay {
  const runtime = globalThis as {
    readonly process?: { readonly env?: Readonly<Record<string, string | undefined>> };
  };
  const variables = runtime.process?.env ?? {};
  const { TWINCCL_SEED: text, TWINCCL_PATH: path, TWINCCL_COMMANDS: commands } = variables;
  const given = text === undefined ? seed : Number(text);
  if (!Number.isSafeInteger(given)) throw new Error(`TWINCCL_SEED=${text} is no integer`);
  return { seed: given, path, commands };
}

/** The one line that replays a failure. */
export function replayLine({ seed, path, commands }: Replay, command: string): string {
  const words = [`TWINCCL_SEED=${seed}`];
  if (path !== undefined) words.push(`TWINCCL_PATH=${path}`);
  if (commands !== undefined) words.push(`TWINCCL_COMMANDS=${commands}`);
  return [...words, command].join(" ");
}

/**
 * Checks a law. The same seed checks the same cases on any machine.
 *
 * @throws Error with the law's own message, the shrunk case, and last the line that replays it.
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
  const property = fc.asyncProperty(cases, async (value) => law(value));
  const start = path === undefined ? {} : { path };
  const details = await fc.check(property, { seed, numRuns: runs, ...start });
  if (!details.failed) return;
  const { counterexample, counterexamplePath, errorInstance, numShrinks } = details;
  const message = errorInstance instanceof Error ? errorInstance.message : String(errorInstance);
  const shrunk = counterexample === null ? "no case" : fc.stringify(counterexample[0]);
  const commands = /replayPath="([^"]+)"/.exec(shrunk)?.[1];
  const line = replayLine({ seed, path: counterexamplePath ?? undefined, commands }, command);
  throw new Error(`${message}\n\nafter ${numShrinks} shrinks: ${shrunk}\nreplay: ${line}`, {
    cause: errorInstance,
  });
}
