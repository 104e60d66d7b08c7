/**
 * The runtime's resources that could wake a rank: timers, sockets, files, other threads.
 *
 * Only runtimes that list them (Node, Bun, Deno with Node's process) allow a proof of deadlock. On others the result is
 * `undefined`, and the monitor reports stalls only.
 */
import { runtimeProcess } from "../../runtime-process.ts";
import { isSettingOwn, type OwnTimers } from "../turns.ts";

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
interface OpenedResources {
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
  opened?: OpenedResources,
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

function notifyAll(): void {
  for (const listener of [...listeners]) listener();
}

/** Calls `listener`, which was not added before, when the runtime has nothing left to wait for; gives a way to stop that. */
export function onLastTurn(listener: () => void): () => void {
  if (listeners.size === 0) runtimeProcess()?.on?.("beforeExit", notifyAll);
  listeners.add(listener);
  return () => {
    if (listeners.delete(listener) && listeners.size === 0) {
      runtimeProcess()?.off?.("beforeExit", notifyAll);
    }
  };
}

// The context of ranks.
//
// A communicator used by another rank's program makes the wrong rank look as if it waited: the async context identifies the
// waiting rank. A timer or a socket that was opened outside of every rank's context wakes no rank. Following both costs time at
// every `await` in some runtimes, so the monitor opens a context only where it can decide something.

/** Node's asynchronous contexts; `undefined` where the runtime has none. */
function asyncHooks() {
  return runtimeProcess()?.getBuiltinModule?.("node:async_hooks");
}

type AsyncHooks = NonNullable<ReturnType<typeof asyncHooks>>;

/** A timer as the runtime gives it to a hook. */
interface Timer {
  readonly _destroyed?: boolean;
}

/** Kinds that are no more than the program's own steps. */
const steps: readonly string[] = ["PROMISE", "TickObject", "Microtask"];

/** Least number of timers at which those that have ended are dropped. */
const fewTimers = 64;

/** The ranks of one world, as async contexts. */
export class RankContext {
  readonly #storage: InstanceType<AsyncHooks["AsyncLocalStorage"]>;
  readonly #hook: ReturnType<AsyncHooks["createHook"]>;
  #timers: Timer[] = [];
  /** Number of timers at which those that have ended are dropped next. */
  #mostTimers = fewTimers;
  #others = false;
  #isFollowed = false;

  private constructor({ AsyncLocalStorage, AsyncResource, createHook }: AsyncHooks) {
    this.#storage = new AsyncLocalStorage();
    this.#hook = createHook({
      init: (_id, type, _trigger, resource) => {
        if (!steps.includes(type)) this.#note(type, resource);
      },
    }).enable();
    // Some runtimes accept a hook and never call it.
    this.#storage.run(0, () => new AsyncResource("TwincclProbe"));
    this.#isFollowed = this.#others;
    this.#others = false;
  }

  /** A context for one run; `undefined` where the runtime has none. */
  static open(): RankContext | undefined {
    const hooks = asyncHooks();
    return hooks && new RankContext(hooks);
  }

  /** Runs a rank's program: whatever it starts belongs to that rank. */
  enter<T>(rank: number, program: () => T): T {
    return this.#storage.run(rank, program);
  }

  /** The rank of the running program; `undefined` outside of all. */
  get rank(): number | undefined {
    return this.#storage.getStore() as number | undefined;
  }

  /** The resources that ranks have opened so far; `undefined` where the runtime does not follow them. */
  get opened(): OpenedResources | undefined {
    if (!this.#isFollowed) return undefined;
    return { timers: this.#timers.some(isAlive), others: this.#others };
  }

  /** Ends the records, and with them their cost at every `await`. */
  close(): void {
    this.#storage.disable();
    this.#hook.disable();
  }

  #note(type: string, resource: object): void {
    if (isSettingOwn || this.#storage.getStore() === undefined) return;
    if (type !== "Timeout" && type !== "Immediate") {
      this.#others = true;
      return;
    }
    if (this.#timers.length >= this.#mostTimers) {
      this.#timers = this.#timers.filter(isAlive);
      this.#mostTimers = Math.max(fewTimers, 2 * this.#timers.length);
    }
    this.#timers.push(resource);
  }
}

/** A timer that has not ended. One that keeps nothing alive counts too: something else does, where contexts are open. */
function isAlive(timer: Timer): boolean {
  return timer._destroyed !== true;
}

// Other threads: compression, cryptography, the compiling of WebAssembly.
//
// No runtime lists these among its live resources, and each may wake a rank. Linux shows for every thread if it sleeps, also
// for one that has work and waits for a processor. The end of a thread's work is an event of this thread's loop.

const tasks = "/proc/self/task";

/** States of threads that have nothing to do: asleep, stopped, ended. */
const restingStates = "SITtXZ";

/** True when another thread than this one works now; false also where the system does not tell. */
export function otherThreadsWork(): boolean {
  const { platform, getBuiltinModule } = runtimeProcess() ?? {};
  const files = getBuiltinModule?.("node:fs");
  if (platform !== "linux" || files === undefined) return false;
  try {
    // This one works, since it looks.
    const stats = files.readdirSync(tasks).map((task) => `${tasks}/${task}/stat`);
    return stats.filter((path) => works(() => files.readFileSync(path, "latin1"))).length > 1;
  } catch {
    return false;
  }
}

/** True for a thread that is not at rest, given a read of its facts. One that has ended meanwhile is. */
function works(read: () => string): boolean {
  let text: string;
  try {
    text = read();
  } catch {
    return false;
  }
  // The state comes behind the thread's name, which may hold anything.
  const state = text.charAt(text.lastIndexOf(")") + 2);
  return !restingStates.includes(state);
}

interface TimedRuntime {
  readonly performance?: {
    readonly nodeTiming?: { readonly uvMetricsInfo?: { readonly events: number } };
  };
}

/** Number of events that the loop of this thread has had; `undefined` where it does not count them. */
export function eventsSoFar(): number | undefined {
  return (globalThis as TimedRuntime).performance?.nodeTiming?.uvMetricsInfo?.events;
}
