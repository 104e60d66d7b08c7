/** Calls that wait for each other: a cycle in the graph of calls, each with those that must be done before it. */

/** Calls, and the calls that must be done before each. */
export interface CallGraph<Call> {
  before(call: Call): Iterable<Call>;
}

/**
 * Looks for one of `goals` among the calls that `start` waits for, breadth first. Returns the calls on the way, which is a
 * shortest one.
 */
export function findCycle<Call>(
  graph: CallGraph<Call>,
  goals: readonly Call[],
  start: Iterable<Call>,
): readonly Call[] | undefined {
  /** By call: the one that waits for it. */
  const waiters = new Map<Call, Call | undefined>();
  for (const call of start) if (!waiters.has(call)) waiters.set(call, undefined);
  for (const [call] of waiters) {
    if (goals.includes(call)) {
      const cycle: Call[] = [];
      for (let at: Call | undefined = call; at !== undefined; at = waiters.get(at)) cycle.push(at);
      return cycle;
    }
    for (const next of graph.before(call)) if (!waiters.has(next)) waiters.set(next, call);
  }
  return undefined;
}
