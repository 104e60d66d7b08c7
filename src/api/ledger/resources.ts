/**
 * What else could wake a rank: timers, sockets, files and other things the runtime still waits for.
 *
 * Only runtimes that can list them (Node, Bun, Deno with Node's process) allow a proof of deadlock; elsewhere the
 * answer is `undefined`, and the monitor reports a stall instead of deciding.
 */

interface ListingProcess {
  getActiveResourcesInfo?: () => readonly string[];
}

/** How many resources of each kind keep the runtime alive. */
export type LiveResources = ReadonlyMap<string, number>;

/** Counts what the runtime waits for; `undefined` when it cannot tell. */
export function liveResources(): LiveResources | undefined {
  const runtime = (globalThis as { process?: ListingProcess }).process;
  const names = runtime?.getActiveResourcesInfo?.();
  if (names === undefined) return undefined;
  const counts = new Map<string, number>();
  for (const name of names) counts.set(name, (counts.get(name) ?? 0) + 1);
  return counts;
}

/** True when nothing is waited for now that was not already waited for at `start`. */
export function nothingNew(start: LiveResources, now: LiveResources): boolean {
  for (const [kind, count] of now) {
    if (count > (start.get(kind) ?? 0)) return false;
  }
  return true;
}
