/** A world of all GPUs in each of a launcher's processes, where one job of all processes was meant. */
import { launcherEnvironment } from "./rendezvous/index.ts";

let isSaid = false;

/**
 * Warns once in a process that is one of several that a launcher started, when it opens a world of its own: each of them
 * drives the same GPUs then.
 */
export function warnOfManyWorlds(size: number, env: NodeJS.ProcessEnv = process.env): void {
  const processes = processesOf(env);
  if (isSaid || processes < 2) return;
  isSaid = true;
  const gpus = `the first ${size === 1 ? "GPU" : `${size} GPUs`} that it sees`;
  process.emitWarning(
    `createWorld: this is one of ${processes} processes of a launcher, and each that opens such a world drives ${gpus} by itself; ` +
      "use connect({ backend: nccl() }) to be one rank of the job, or nccl({ devices }) to say which GPUs this process has",
    { type: "TwincclLaunch", code: "ERR_COMM_ARG" },
  );
}

/** Number of processes that the launcher has started; 1 where it is unknown. */
function processesOf(env: NodeJS.ProcessEnv): number {
  try {
    return launcherEnvironment(env)?.size ?? 1;
  } catch {
    // Half-set variables are an error of `connect`.
    return 1;
  }
}
