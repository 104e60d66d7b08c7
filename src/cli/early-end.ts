/**
 * Programs that end the process while their ranks are at work: `process.exit`, an uncaught error, or
 * nothing left to wait for. No library can stop that, but it must not pass for success.
 */
import { ranksText } from "../api/error-text.ts";
import type { Context } from "./context.ts";
import type { RankProgram } from "./program-file.ts";

/** Makes a program's ranks known while they are at work. */
export type Watch = (program: RankProgram) => RankProgram;

/**
 * Loads and runs a user's program. When the process ends before that is over, its status is 1, standard error
 * says so with the ranks that were at work, and `onEnd` saves what there is; all in the `exit` event, so nothing may wait.
 */
export async function tellingEarlyEnd<T>(
  command: string,
  { err }: Pick<Context, "err">,
  work: (watch: Watch) => Promise<T>,
  onEnd?: () => void,
): Promise<T> {
  const atWork = new Set<number>();
  const listener = (status: number): void => {
    process.exitCode = 1;
    err(`twinccl ${command}: ${earlyEndText(status, [...atWork])}\n`);
    onEnd?.();
  };
  process.once("exit", listener);
  try {
    return await work((program) => watched(program, atWork));
  } finally {
    process.removeListener("exit", listener);
  }
}

/** The program, with its rank in `atWork` while it runs. */
function watched(program: RankProgram, atWork: Set<number>): RankProgram {
  return async (comm) => {
    atWork.add(comm.rank);
    try {
      return await program(comm);
    } finally {
      atWork.delete(comm.rank);
    }
  };
}

function earlyEndText(status: number, atWork: readonly number[]): string {
  const ended = `the process ended with status ${status} before the run was over`;
  if (atWork.length === 0) return `${ended}: no rank was at work`;
  const ranks = ranksText(atWork.toSorted((a, b) => a - b));
  return `${ended}: ${ranks} had not returned\nhint: a rank ends by returning or throwing; nothing in it may end the process`;
}
