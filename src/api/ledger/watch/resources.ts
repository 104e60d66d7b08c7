/**
 * Resources that could wake a rank: timers, sockets, files and other things the runtime still waits for.
 *
 * Only runtimes that can list them (Node, Bun, Deno with Node's process) allow a proof of deadlock; elsewhere the
 * answer is `undefined`, and the monitor reports a stall instead of deciding.
 */

import type { OwnTimers } from "./loop-turn.ts";

interface RuntimeProcess {
  readonly connected?: boolean;
  readonly stdout?: unknown;
  readonly stderr?: unknown;
  getActiveResourcesInfo?: () => readonly string[];
  on?: (event: "beforeExit", listener: () => void) => void;
  off?: (event: "beforeExit", listener: () => void) => void;
}

function runtimeProcess(): RuntimeProcess | undefined {
  return (globalThis as { process?: RuntimeProcess }).process;
}

/** Numbers of resources of each kind that keep the runtime alive. */
export type LiveResources = ReadonlyMap<string, number>;

/** Counts what the runtime waits for; `undefined` when it cannot tell. */
export function liveResources(): LiveResources | undefined {
  const names = runtimeProcess()?.getActiveResourcesInfo?.();
  if (names === undefined) return undefined;
  const counts = new Map<string, number>();
  for (const name of names) counts.set(name, (counts.get(name) ?? 0) + 1);
  return counts;
}

/** Number of the monitors' own of a kind; `undefined` for a kind that is no timer. */
function ownOf(kind: string, own: OwnTimers): number | undefined {
  return kind === "Immediate" || kind === "Timeout" ? own[kind] : undefined;
}

/** The resources that programs of ranks have opened during a run, where they are followed. */
export interface Opened {
  /** A timer is alive. */
  readonly timers: boolean;
  /** Something else was opened; it may be closed again. */
  readonly others: boolean;
}

/**
 * True when nothing that is alive can wake a rank.
 *
 * Where `opened` is known, only what ranks have opened counts. Elsewhere every timer counts, and everything else that was not
 * alive at `start`. Timers of the monitors themselves, `own`, never count.
 */
export function nothingNew(
  start: LiveResources,
  now: LiveResources,
  own: OwnTimers,
  opened?: Opened,
): boolean {
  if (opened?.timers === true) return false;
  for (const [kind, count] of now) {
    const ownTimers = ownOf(kind, own);
    if (opened !== undefined && (ownTimers !== undefined || !opened.others)) continue;
    if (count > (ownTimers ?? start.get(kind) ?? 0)) return false;
  }
  return true;
}

/**
 * Opens the standard output streams, as the first print does. Their handles are listed from then on and wake no rank, so they
 * must not first appear during a run.
 */
export function openStandardStreams(): void {
  const runtime = runtimeProcess();
  void [runtime?.stdout, runtime?.stderr];
}

/** Kinds that are listed without keeping the runtime alive: handles that are closing, standard streams. */
const idle: readonly string[] = ["CloseReq", "TTYWrap", "PipeWrap"];

/** True when the runtime stays alive whatever the ranks do: a server, a timer, a test runner, a parent process that may write. */
export function staysAlive(start: LiveResources | undefined, own: OwnTimers): boolean {
  if (start === undefined || runtimeProcess()?.connected === true) return true;
  return [...start].some(
    ([kind, count]) => !idle.includes(kind) && count > (ownOf(kind, own) ?? 0),
  );
}

/** Callbacks of the last turn: behind one listener, since runtimes warn of many. */
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
