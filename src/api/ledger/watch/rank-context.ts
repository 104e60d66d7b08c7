/**
 * Which rank's program is running: known through the runtime's async context, where it has one.
 *
 * A communicator handed from one rank's program to another one's makes the wrong rank look as if it waited. The context
 * tells who really does. It costs time at every `await` in some runtimes, so it is opened only where it can decide
 * something; see the monitor.
 */

interface Storage {
  run<T>(rank: number, callback: () => T): T;
  getStore(): number | undefined;
  disable(): void;
}

interface Runtime {
  readonly process?: { getBuiltinModule?: (name: string) => unknown };
}

/** The ranks of one world, as async contexts. */
export class RankContext {
  readonly #storage: Storage;

  constructor(storage: Storage) {
    this.#storage = storage;
  }

  /** Runs a rank's program: whatever it starts belongs to that rank. */
  enter<T>(rank: number, program: () => T): T {
    return this.#storage.run(rank, program);
  }

  /** The rank whose program is running; `undefined` outside of all. */
  get rank(): number | undefined {
    return this.#storage.getStore();
  }

  /** Nobody is asked any more: awaiting costs what it did before. */
  close(): void {
    this.#storage.disable();
  }
}

/** A context for one run; `undefined` where the runtime has none. */
export function openRankContext(): RankContext | undefined {
  const module = (globalThis as Runtime).process?.getBuiltinModule?.("node:async_hooks") as
    | { readonly AsyncLocalStorage: new () => Storage }
    | undefined;
  return module && new RankContext(new module.AsyncLocalStorage());
}
