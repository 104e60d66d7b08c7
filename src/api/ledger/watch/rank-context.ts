/**
 * The rank of the running program, and the resources that programs of ranks have opened: from the runtime's async context,
 * where it has one.
 *
 * A communicator handed from one rank's program to another one's makes the wrong rank look as if it waited. The context
 * shows the waiting rank. A timer or a socket that was opened outside of every rank's context wakes no rank. Following both
 * costs time at every `await` in some runtimes, so a context is opened only where it can decide something; see the monitor.
 */
import { isSettingOwn } from "./loop-turn.ts";
import type { Opened } from "./resources.ts";

interface Storage {
  run<T>(rank: number, callback: () => T): T;
  getStore(): number | undefined;
  disable(): void;
}

interface Hook {
  enable(): Hook;
  disable(): Hook;
}

type Init = (id: number, type: string, trigger: number, resource: object) => void;

interface AsyncHooks {
  readonly AsyncLocalStorage: new () => Storage;
  readonly AsyncResource: new (type: string) => object;
  createHook(callbacks: { readonly init: Init }): Hook;
}

interface Runtime {
  readonly process?: { getBuiltinModule?: (name: string) => unknown };
}

/** A timer as the runtime gives it to a hook. */
interface Timer {
  readonly _destroyed?: boolean;
}

/** Kinds that are no more than the program's own steps. */
const steps: readonly string[] = ["PROMISE", "TickObject", "Microtask"];

/** So many timers are kept before those that have ended are dropped. */
const fewTimers = 64;

/** The ranks of one world, as async contexts. */
export class RankContext {
  readonly #storage: Storage;
  readonly #hook: Hook;
  #timers: Timer[] = [];
  /** As many timers are looked through again at the next one. */
  #mostTimers = fewTimers;
  #others = false;
  #isFollowed = false;

  constructor({ AsyncLocalStorage, AsyncResource, createHook }: AsyncHooks) {
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

  /** Runs a rank's program: whatever it starts belongs to that rank. */
  enter<T>(rank: number, program: () => T): T {
    return this.#storage.run(rank, program);
  }

  /** The rank of the running program; `undefined` outside of all. */
  get rank(): number | undefined {
    return this.#storage.getStore();
  }

  /** The resources that ranks have opened so far; `undefined` where the runtime does not follow them. */
  get opened(): Opened | undefined {
    if (!this.#isFollowed) return undefined;
    return { timers: this.#timers.some(isAlive), others: this.#others };
  }

  /** Awaiting costs what it did before. */
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

/** A context for one run; `undefined` where the runtime has none. */
export function openRankContext(): RankContext | undefined {
  const hooks = (globalThis as Runtime).process?.getBuiltinModule?.("node:async_hooks");
  return hooks === undefined ? undefined : new RankContext(hooks as AsyncHooks);
}
