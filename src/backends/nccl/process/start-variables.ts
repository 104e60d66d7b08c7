/** Variables of this process that NCCL reads while it starts a communicator: set for that time, then put back. */
import { isMainThread } from "node:worker_threads";
import { CommTimeoutError, UnsupportedError } from "../../../api/index.ts";

/** Values by name. */
export type Variables = Readonly<Record<string, string>>;

/** Starts that are under way on other threads: all, and those for which variables are set. */
let starts: Promise<unknown> = Promise.resolve();
let pinned: Promise<unknown> = Promise.resolve();

/** Those that are set for a start that is under way. */
const forStart = new Set<string>();

/** True when a variable has a value for the time of a start that is not the caller's. */
export function isSetForStart(name: string): boolean {
  return forStart.has(name);
}

/** Runs `body` under the variables; they are as before afterwards, also when it throws. */
export function withVariables<T>(variables: Variables, body: () => T): T {
  const putBack = setVariables(variables);
  try {
    return body();
  } finally {
    putBack();
  }
}

/**
 * The same for a start that takes place on another thread: none sees another's variables. So one with variables waits for all
 * that are under way, and one without for those that have some. `body` must wait for nothing but NCCL. One that is given up
 * does not delay others any more.
 */
export function startWithVariables<T>(
  variables: Variables,
  body: () => Promise<T>,
  cancelled?: AbortSignal,
): Promise<T> {
  const hasOwn = Object.keys(variables).length > 0;
  const start = (hasOwn ? starts : pinned).then(async () => {
    cancelled?.throwIfAborted();
    const putBack = setVariables(variables);
    try {
      return await unlessAborted(body(), cancelled);
    } finally {
      putBack();
    }
  });
  const ended = start.catch(() => undefined);
  if (hasOwn) pinned = ended;
  starts = hasOwn ? ended : Promise.all([starts, ended]).then(() => undefined);
  return start;
}

/** The value of a promise, or the signal's reason when that comes first. */
function unlessAborted<T>(promise: Promise<T>, signal: AbortSignal | undefined): Promise<T> {
  if (signal === undefined) return promise;
  return new Promise((resolve, reject) => {
    const abort = (): void => reject(signal.reason);
    signal.addEventListener("abort", abort, { once: true });
    promise.then(resolve, reject).finally(() => signal.removeEventListener("abort", abort));
  });
}

/** Runs `body` now, or when no variables are set any more for a start on another thread. */
export function whenUnpinned<T>(body: () => T): T | Promise<T> {
  return forStart.size === 0 ? body() : pinned.then(body);
}

/**
 * Resolves when a start may begin on this thread, with variables of its own or without: see `startWithVariables`.
 *
 * @throws CommTimeoutError when those that are in its way take longer than a bound.
 */
export async function whenStartsDone(hasOwn: boolean, boundMs = 60_000): Promise<void> {
  let timer: NodeJS.Timeout | undefined;
  const late = new Promise<never>((_, reject) => {
    const text = {
      headline: `nccl: other communicators of this process were still starting after ${boundMs} ms`,
      hint: "a pinned plan reaches NCCL by variables, which all that start would see: wait for their split, connect or rebuild, or give it a deadline",
    };
    timer = setTimeout(() => reject(new CommTimeoutError(text)), boundMs);
  });
  try {
    await Promise.race([hasOwn ? starts : pinned, late]);
  } finally {
    clearTimeout(timer);
  }
}

/** Gives each variable its value; the function returned gives each the value that it had, or none, unless it has another by then. */
function setVariables(variables: Variables): () => void {
  const names = Object.keys(variables);
  if (names.length > 0) assertReachesNccl(names);
  const before = names.map((name) => [name, process.env[name]] as const);
  const added = names.filter((name) => !forStart.has(name));
  for (const name of added) forStart.add(name);
  Object.assign(process.env, variables);
  return () => {
    for (const name of added) forStart.delete(name);
    for (const [name, value] of before) {
      if (process.env[name] !== variables[name]) continue;
      if (value === undefined) delete process.env[name];
      else process.env[name] = value;
    }
  };
}

/** The variables of a worker thread are a copy, which native code does not see. */
export function assertReachesNccl(names: readonly string[]): void {
  if (isMainThread) return;
  throw new UnsupportedError({
    headline: `nccl: ${names.join(", ")} cannot be set from a worker thread`,
    hint: "open the world on the main thread, or set them before the process starts",
  });
}

const connectVariable = "NCCL_RUNTIME_CONNECT";

/**
 * Has NCCL connect them while it starts, which has a deadline. By itself it does so, since 2.22, in the first call that
 * takes a ring or a tree, and waits there for the other ranks on the thread that makes the call. A value that the user has set
 * stays. NCCL reads it once per process.
 *
 * @throws UnsupportedError on a worker thread, from which variables do not reach NCCL.
 */
export function disableRuntimeConnect(env: Record<string, string | undefined> = process.env): void {
  // NCCL takes an empty value for none.
  if ((env[connectVariable] ?? "") !== "") return;
  assertReachesNccl([connectVariable]);
  env[connectVariable] = "0";
}
