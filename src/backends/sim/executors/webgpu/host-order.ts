/**
 * The order of calls that overlap, where host memory is in it.
 *
 * Work on the device keeps the order of its queue. Host memory is uploaded when a call is submitted, and written when
 * it is done: so a call that uses what an earlier one has yet to write waits for that, and what comes behind it too.
 */
import type { BoundBuffer, BoundCall, SimMemory } from "../../executor.ts";
import { HostMemory } from "../../memory.ts";

/** The calls under way on one device. */
export class HostOrder {
  /** The last call that writes a memory, until it has. */
  readonly #writers = new Map<SimMemory, Promise<void>>();
  /** Fulfilled when the last call that had to wait is submitted. */
  #waiting: Promise<void> | undefined;

  /** Has `submit` run the calls: at once, where nothing that they need is still to come. */
  run(calls: readonly BoundCall[], submit: () => Promise<void>): Promise<void> {
    const written = hostMemories(calls.flatMap(({ outputs }) => outputs));
    const read = hostMemories(calls.flatMap(({ inputs }) => inputs));
    const before = [...written, ...read].flatMap((memory) => this.#writers.get(memory) ?? []);
    if (this.#waiting !== undefined) before.push(this.#waiting);
    const done = before.length === 0 ? submit() : this.#after(before).then(submit);
    for (const memory of written) this.#writers.set(memory, done);
    const settled = (): void => {
      for (const memory of written) {
        if (this.#writers.get(memory) === done) this.#writers.delete(memory);
      }
    };
    if (written.size > 0) done.then(settled, settled);
    return done;
  }

  /** A failure has reached the caller of its own call. */
  #after(before: readonly Promise<void>[]): Promise<void> {
    const ready = Promise.allSettled(before).then(() => {
      if (this.#waiting === ready) this.#waiting = undefined;
    });
    this.#waiting = ready;
    return ready;
  }
}

function hostMemories(buffers: readonly (BoundBuffer | undefined)[]): Set<SimMemory> {
  const found = new Set<SimMemory>();
  for (const buffer of buffers) {
    if (buffer?.memory instanceof HostMemory) found.add(buffer.memory);
  }
  return found;
}
