/**
 * Worker threads over an arena's shared memory.
 *
 * A list of groups is cut into slices, which the workers and the calling thread take from a counter. A late worker finds the
 * counter empty. The calling thread therefore waits only for slices that have begun, never for a worker that has not started or
 * sleeps. The result of a slice depends only on its bytes: no number of threads changes a result.
 */
import type { Arena } from "./arena.ts";
import { workerSource } from "./binary.js";
import type { WrittenList } from "./encoder.ts";
import { spawn, type WorkerHandle } from "./spawn.ts";

/**
 * Words of the control block; assembly/worker.js reads them by number. Bytes 64 to 71 hold a list's bytes, those from 72 on
 * the text of a failure, in units of 16 bits.
 */
const word = {
  round: 0,
  /** In the upper half a number of the list, in the lower one the number of remaining slices. */
  claim: 1,
  done: 2,
  failed: 3,
  list: 4,
  groups: 5,
  slices: 6,
  scratch: 7,
  scratchBytes: 8,
  /** Pages of the memory: a worker that reaches fewer takes no slice. */
  pages: 9,
  /** Units of the failure's text. */
  failureUnits: 10,
} as const;

const failureAt = 72;
const controlBytes = 192;
/** The least bytes read and written by a slice, and the most slices that the counter holds. */
const sliceTraffic = 2 ** 21;
const maxSlices = 0xffff;
/** Polls of the counter before the calling thread sleeps. */
const maxSpins = 20_000;

/** Stops the workers of an arena that was collected. */
const stopOnCollection = new FinalizationRegistry<readonly WorkerHandle[]>((workers) => {
  for (const worker of workers) worker.stop();
});

/** The workers of an arena, created for the first list that is large enough. */
export class Threads {
  /** Threads that may work on a list, the calling one included. */
  readonly count: number;
  readonly #arena: Arena;
  readonly #controlAt: number;
  readonly #control: Int32Array;
  readonly #total: Float64Array;
  readonly #failure: Uint16Array;
  #workers: readonly WorkerHandle[] | undefined;
  #list = 0;

  /** `controlAt` is an address of `Threads.controlBytes` bytes. */
  constructor(arena: Arena, count: number, controlAt: number) {
    this.count = count;
    this.#arena = arena;
    this.#controlAt = controlAt;
    this.#control = new Int32Array(arena.memory.buffer, controlAt, 16);
    this.#total = new Float64Array(arena.memory.buffer, controlAt + 64, 1);
    this.#failure = new Uint16Array(
      arena.memory.buffer,
      controlAt + failureAt,
      (controlBytes - failureAt) / 2,
    );
  }

  static readonly controlBytes = controlBytes;

  /** Slices that the workers have run. */
  workerSlices = 0;

  /**
   * Runs a list with the workers that have started; their scratch memory begins at `scratch`.
   *
   * @throws Error when a slice failed on any thread. By then no thread runs a slice of the list.
   */
  run(list: WrittenList, scratch: number): void {
    this.#workers ??= this.#start();
    const control = this.#control;
    const sliceCount = Math.max(4 * this.count, Math.ceil(list.traffic / sliceTraffic));
    const slices = Math.min(maxSlices, sliceCount);
    control[word.list] = list.address;
    control[word.groups] = list.groups;
    control[word.slices] = slices;
    control[word.scratch] = scratch;
    control[word.scratchBytes] = list.scratchBytes;
    control[word.pages] = this.#arena.pages;
    this.#total[0] = list.bytes;
    this.#list = (this.#list + 1) & 0xffff;
    Atomics.store(control, word.done, 0);
    Atomics.store(control, word.claim, (this.#list << 16) | slices);
    Atomics.add(control, word.round, 1);
    Atomics.notify(control, word.round);
    const own = this.#work(list, scratch, slices);
    this.#wait(slices);
    this.workerSlices += slices - own.done;
    if (own.error !== undefined) throw own.error;
    if (Atomics.load(control, word.failed) === 0) return;
    const units = this.#failure.slice(0, control[word.failureUnits]);
    throw new Error(`a worker thread: ${String.fromCharCode(...units)}`);
  }

  /** Stops the workers; between lists they have no slice. */
  stop(): void {
    stopOnCollection.unregister(this);
    for (const worker of this.#workers ?? []) worker.stop();
    this.#workers = [];
  }

  #start(): readonly WorkerHandle[] {
    const { module, memory } = this.#arena;
    const workers: WorkerHandle[] = [];
    for (let thread = 1; thread < this.count; thread++) {
      const data = { module, memory, controlAt: this.#controlAt, thread };
      const worker = spawn(workerSource, data);
      if (worker !== undefined) workers.push(worker);
    }
    stopOnCollection.register(this.#arena, workers, this);
    return workers;
  }

  /** Takes slices until none are left; returns their number, and the error of the first failure. */
  #work(
    { address, bytes, groups }: WrittenList,
    scratch: number,
    slices: number,
  ): { readonly done: number; readonly error: unknown } {
    const control = this.#control;
    const { runSlice } = this.#arena.kernels;
    let done = 0;
    let error: unknown;
    for (;;) {
      const claim = Atomics.load(control, word.claim);
      const left = claim & 0xffff;
      if (left === 0) return { done, error };
      if (Atomics.compareExchange(control, word.claim, claim, claim - 1) !== claim) continue;
      const slice = slices - left;
      const from = Math.floor((bytes * slice) / slices);
      const to = Math.floor((bytes * (slice + 1)) / slices);
      try {
        runSlice(address, groups, from, to, scratch);
      } catch (thrown) {
        error ??= thrown;
      }
      Atomics.add(control, word.done, 1);
      done++;
    }
  }

  #wait(slices: number): void {
    const control = this.#control;
    let sleeps = true;
    for (;;) {
      for (let spin = 0; spin < maxSpins; spin++) {
        if (Atomics.load(control, word.done) === slices) return;
      }
      const done = Atomics.load(control, word.done);
      if (done === slices) return;
      if (!sleeps) continue;
      try {
        Atomics.wait(control, word.done, done, 1);
      } catch {
        // The main thread of a browser must not sleep.
        sleeps = false;
      }
    }
  }
}
