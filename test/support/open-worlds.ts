/** Worlds that stay open between tests, for backends whose worlds take long to open. */
import { type Backend, createWorld, type World } from "twinccl";

/** At most one open world of each size. */
export class OpenWorlds {
  readonly #backend: (size: number) => Backend;
  readonly #worlds = new Map<number, World>();

  constructor(backend: (size: number) => Backend) {
    this.#backend = backend;
  }

  /** Uses the world of a size, alone. One that something went wrong in is closed, and the next use opens another. */
  async use<T>(size: number, use: (world: World) => Promise<T>): Promise<T> {
    const world =
      this.#worlds.get(size) ?? (await createWorld({ backend: this.#backend(size), size }));
    this.#worlds.delete(size);
    let result: T;
    try {
      result = await use(world);
    } catch (error) {
      await world.close();
      throw error;
    }
    this.#worlds.set(size, world);
    return result;
  }

  /** Closes what is open. */
  async close(): Promise<void> {
    const worlds = [...this.#worlds.values()];
    this.#worlds.clear();
    for (const world of worlds) await world.close();
  }
}
