/** Environment variables that NCCL reads during the start of a communicator: set for that time, then restored. */
import { isMainThread } from "node:worker_threads";
import { CommTimeoutError, UnsupportedError } from "../../../api/index.ts";
import { longestTimerMs } from "../../../api/ledger/turns.ts";
import { settlesWithin } from "../../../job/async.ts";

/** Values by name. */
export type Variables = Readonly<Record<string, string>>;

/** Running starts on other threads: all, and those with variables. */
let allStarts: Promise<unknown> = Promise.resolve();
let pinnedStarts: Promise<unknown> = Promise.resolve();

/** Number of all starts on other threads that have not ended. */
let startsUnderWay = 0;

/** Names of the variables set for a running start. */
const startOnly = new Set<string>();

/** True if a running start has set a variable. */
export function isSetForStart(name: string): boolean {
  return startOnly.has(name);
}

/** Runs `body` with the variables set, and restores them afterwards, even after an error. */
export function withVariables<T>(variables: Variables, body: () => T): T {
  const restore = setVariables(variables);
  try {
    return body();
  } finally {
    restore();
  }
}

/**
 * Like `withVariables`, for a start on another thread; no start sees another's variables. A start with variables waits for all
 * running starts; one without waits for those with variables. `body` must wait for NCCL alone. A cancelled start no longer
 * delays others.
 */
export function startWithVariables<T>(
  variables: Variables,
  body: () => Promise<T>,
  cancelled?: AbortSignal,
): Promise<T> {
  const hasOwn = Object.keys(variables).length > 0;
  const start = (hasOwn ? allStarts : pinnedStarts).then(async () => {
    cancelled?.throwIfAborted();
    const restore = setVariables(variables);
    try {
      return await rejectOnAbort(body(), cancelled);
    } finally {
      restore();
    }
  });
  startsUnderWay += 1;
  const end = (): void => {
    startsUnderWay -= 1;
  };
  const ended = start.then(end, end);
  if (hasOwn) pinnedStarts = ended;
  allStarts = hasOwn ? ended : Promise.all([allStarts, ended]).then(() => undefined);
  return start;
}

/** Settles like `promise`, or rejects with the signal's reason if the signal aborts first. */
function rejectOnAbort<T>(promise: Promise<T>, signal: AbortSignal | undefined): Promise<T> {
  if (signal === undefined) return promise;
  return new Promise((resolve, reject) => {
    const abort = (): void => reject(signal.reason);
    signal.addEventListener("abort", abort, { once: true });
    promise.then(resolve, reject).finally(() => signal.removeEventListener("abort", abort));
  });
}

/** Longest wait of a world that opens for other starts. */
export const openAfterMs = 60_000;

/**
 * Runs `body`, a start on this thread with or without variables, once it may begin; see `startWithVariables`.
 *
 * @throws CommTimeoutError if other starts take longer than `boundMs`.
 */
export function afterStarts<T>(
  hasOwn: boolean,
  body: () => T,
  boundMs = longestTimerMs,
): T | Promise<Awaited<T>> {
  const mayBegin = (): boolean => (hasOwn ? startsUnderWay === 0 : startOnly.size === 0);
  if (mayBegin()) return body();
  const endMs = performance.now() + boundMs;
  const begin = async (): Promise<Awaited<T>> => {
    // Another start may have begun at the end of the one that was waited for.
    while (!mayBegin()) {
      const starts = hasOwn ? allStarts : pinnedStarts;
      if (!(await settlesWithin(endMs - performance.now(), starts))) throw lateError(boundMs);
    }
    return await body();
  };
  return begin();
}

function lateError(boundMs: number): CommTimeoutError {
  return new CommTimeoutError({
    headline: `nccl: other communicators of this process were still starting after ${boundMs} ms`,
    hint: "a pinned plan reaches NCCL by variables, which all that start would see: wait for their split, connect or rebuild, or give it a deadline",
  });
}

/** Sets the variables. The returned function restores each one, unless its value has changed meanwhile. */
function setVariables(variables: Variables): () => void {
  const names = Object.keys(variables);
  if (names.length > 0) assertReachesNccl(names);
  const before = names.map((name) => [name, process.env[name]] as const);
  const added = names.filter((name) => !startOnly.has(name));
  for (const name of added) startOnly.add(name);
  Object.assign(process.env, variables);
  return () => {
    for (const name of added) startOnly.delete(name);
    for (const [name, value] of before) {
      if (process.env[name] !== variables[name]) continue;
      if (value === undefined) delete process.env[name];
      else process.env[name] = value;
    }
  };
}

/** Throws on a worker thread, because its environment is a copy that native code does not read. */
export function assertReachesNccl(names: readonly string[]): void {
  if (isMainThread) return;
  throw new UnsupportedError({
    headline: `nccl: ${names.join(", ")} cannot be set from a worker thread`,
    hint: "open the world on the main thread, or set them before the process starts",
  });
}

const connectVariable = "NCCL_RUNTIME_CONNECT";

/**
 * Makes NCCL connect rings and trees during its start, which has a deadline. Since 2.22, NCCL connects them by default in the
 * first call that uses them, and blocks the calling thread there. A value set by the user stays. NCCL reads the variable once
 * per process.
 *
 * @throws UnsupportedError on a worker thread, from which variables do not reach NCCL.
 */
export function disableRuntimeConnect(env: Record<string, string | undefined> = process.env): void {
  // NCCL treats an empty value as unset.
  if ((env[connectVariable] ?? "") !== "") return;
  assertReachesNccl([connectVariable]);
  env[connectVariable] = "0";
}
