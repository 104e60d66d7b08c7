/**
 * What else could wake a rank: timers, sockets, files and other things the runtime still waits for.
 *
 * Only runtimes that can list them (Node, Bun, Deno with Node's process) allow a proof of deadlock; elsewhere the
 * answer is `undefined`, and the monitor reports a stall instead of deciding.
 */

interface RuntimeProcess {
  readonly connected?: boolean;
  getActiveResourcesInfo?: () => readonly string[];
  on?: (event: "beforeExit", listener: () => void) => void;
  off?: (event: "beforeExit", listener: () => void) => void;
}

function runtimeProcess(): RuntimeProcess | undefined {
  return (globalThis as { process?: RuntimeProcess }).process;
}

/** How many resources of each kind keep the runtime alive. */
export type LiveResources = ReadonlyMap<string, number>;

/** Counts what the runtime waits for; `undefined` when it cannot tell. */
export function liveResources(): LiveResources | undefined {
  const names = runtimeProcess()?.getActiveResourcesInfo?.();
  if (names === undefined) return undefined;
  const counts = new Map<string, number>();
  for (const name of names) counts.set(name, (counts.get(name) ?? 0) + 1);
  return counts;
}

/** Kinds that a rank may well have started, whenever they began: while one lives, nothing is certain. */
const wakers: readonly string[] = ["Timeout", "Immediate"];

/** True when no timer is alive, and nothing else that was not already waited for at `start`; `turns` as below. */
export function nothingNew(start: LiveResources, now: LiveResources, turns: number): boolean {
  for (const [kind, count] of now) {
    const own = kind === "Immediate" ? turns : 0;
    const before = wakers.includes(kind) ? 0 : (start.get(kind) ?? 0);
    if (count > Math.max(own, before)) return false;
  }
  return true;
}

/** Kinds that are listed without keeping the runtime alive: handles that are closing, standard streams. */
const idle: readonly string[] = ["CloseReq", "TTYWrap", "PipeWrap"];

/**
 * True when the runtime stays alive whatever the ranks do: a server, a test runner, a parent process that may write.
 * `turns` is the number of turns of the event loop that monitors wait for, which end by themselves.
 */
export function staysAlive(start: LiveResources | undefined, turns: number): boolean {
  if (start === undefined || runtimeProcess()?.connected === true) return true;
  return [...start].some(
    ([kind, count]) => !idle.includes(kind) && !(kind === "Immediate" && count <= turns),
  );
}

/** Who is told of the last turn: by one listener, of which runtimes warn when there are many. */
const listeners = new Set<() => void>();

function tellAll(): void {
  for (const listener of [...listeners]) listener();
}

/** Calls `listener` when the runtime has nothing left to wait for; gives a way to stop that. */
export function onLastTurn(listener: () => void): () => void {
  const own = (): void => listener();
  if (listeners.size === 0) runtimeProcess()?.on?.("beforeExit", tellAll);
  listeners.add(own);
  return () => {
    if (listeners.delete(own) && listeners.size === 0) {
      runtimeProcess()?.off?.("beforeExit", tellAll);
    }
  };
}
