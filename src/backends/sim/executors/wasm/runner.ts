/**
 * Runs bound calls on data in an arena: writes their folds as lists, which the kernels execute on one thread or on all. A call
 * of more folds than a list holds goes list by list.
 */
import { separateMask } from "../../../../algorithms/nccl/index.ts";
import {
  BackendUnavailableError,
  bytesOf,
  type DType,
  UnsupportedError,
} from "../../../../api/index.ts";
import type { BoundCall } from "../../executor.ts";
import { Arena } from "./arena.ts";
import { type Addresses, listBytes, type WrittenList, writeList } from "./encoder.ts";
import { canShare } from "./module.ts";
import { Threads } from "./threads.ts";

/** Bytes of a list, unless one group alone needs more. */
const usualListBytes = 2 ** 18;
/** Bytes read and written from which on other threads take part. */
const usualCrossover = 2 ** 22;
/** Bytes read and written in one call of the module: the runtime optimises a kernel between calls, not within. */
const turnTraffic = 2 ** 23;

/** Bytes of the arena reserved for calls: lists, scalars, blocks, and the scratch memory of each thread. */
const callBytes = 2 ** 22;
const callBytesOfThread = 2 ** 21 + 2 ** 17;

/** State of a call that ran once, and of one with a list that is too long to keep. */
const ranOnce = {};
const tooLong = {};

/** A range of the arena that is replaced when more is needed. */
class Region {
  readonly #arena: Arena;
  address = 0;
  #bytes = 0;

  constructor(arena: Arena) {
    this.#arena = arena;
  }

  /** True where it has that many bytes now; its contents may be lost. */
  reserve(bytes: number): boolean {
    if (bytes <= this.#bytes) return true;
    if (this.#bytes > 0) this.#arena.give(this.address, this.#bytes);
    this.#bytes = 0;
    const address = this.#arena.takeForCall(bytes);
    if (address === undefined) return false;
    this.address = address;
    this.#bytes = bytes;
    return true;
  }
}

/** Bytes of a list that is kept: those with more words take long to run anyway. */
const maxKeptBytes = 2 ** 16;

/** The list of a repeated call, written once into a block of the arena. The block is freed when the call is collected. */
interface KeptList {
  readonly arena: Arena;
  readonly written: WrittenList;
}

/** Settings with defaults. */
export interface RunnerSettings {
  /** Threads that may work on large calls, where memory is shared. */
  readonly threads: number;
  readonly shared?: boolean;
  /** Bytes of the arena that buffers may take. */
  readonly maxBytes?: number;
  /** Bytes read and written by a call from which on other threads take part. */
  readonly crossover?: number;
}

/** Runs calls in one arena. */
export class Runner {
  readonly arena: Arena;
  #threads: Threads | undefined;
  #failed = false;
  readonly #crossover: number;
  readonly #list: Region;
  readonly #scratch: Region;
  readonly #masks = new Map<DType, number>();

  constructor({
    threads,
    shared = canShare(),
    maxBytes,
    crossover = usualCrossover,
  }: RunnerSettings) {
    const arena = new Arena(shared, callBytes + threads * callBytesOfThread, maxBytes);
    this.arena = arena;
    this.#crossover = crossover;
    this.#list = new Region(arena);
    this.#scratch = new Region(arena);
    if (threads === 1 || !shared) return;
    const controlAt = arena.takeForCall(Threads.controlBytes);
    if (controlAt !== undefined) this.#threads = new Threads(arena, threads, controlAt);
  }

  /** Threads that may work on a call. */
  get threads(): number {
    return this.#threads?.count ?? 1;
  }

  /** A kernel failed here: later calls run on the calling thread alone. */
  get failed(): boolean {
    return this.#failed;
  }

  /** Slices that worker threads have run. */
  get workerSlices(): number {
    return this.#threads?.workerSlices ?? 0;
  }

  /**
   * Runs a call with buffers at these addresses; false where the arena has no room for its list and scratch.
   * Nothing is written then.
   *
   * @throws UnsupportedError when a part of the call has run and there is no room for the rest.
   */
  run(call: BoundCall, inputs: readonly number[], outputs: readonly number[]): boolean {
    const mask = this.#maskOf(call);
    if (mask === undefined) return false;
    const addresses = { inputs, outputs, mask };
    const threads = this.#threadsFor(call);
    const { groups } = call.plan;
    for (let next = 0; next < groups.length; ) {
      const end = this.#runList(call, addresses, next, threads);
      if (end === undefined && next === 0) return false;
      if (end === undefined) throw this.outOfMemory();
      next = end;
    }
    return true;
  }

  /** Runs a call by its kept list; false where there is none, or another runner's. */
  runKept(call: BoundCall): boolean {
    const { arena, written } = (call.work ?? {}) as Partial<KeptList>;
    if (arena !== this.arena || written === undefined) return false;
    return this.#execute(written, this.#threadsFor(call));
  }

  /** As `run`, where the buffers stay at these addresses: the list of the second run is kept for the later ones. */
  runAndKeep(call: BoundCall, inputs: readonly number[], outputs: readonly number[]): boolean {
    if (call.work === ranOnce) {
      const mask = this.#maskOf(call);
      if (mask !== undefined) {
        call.work = this.#keptList(call, { inputs, outputs, mask }) ?? tooLong;
      }
      if (this.runKept(call)) return true;
    }
    const done = this.run(call, inputs, outputs);
    if (done) call.work ??= ranOnce;
    return done;
  }

  /** The list of a call with buffers at these addresses; `undefined` where it is too long to keep, or the arena is full. */
  #keptList(call: BoundCall, addresses: Addresses): KeptList | undefined {
    const { arena } = this;
    const byteLength = listBytes(call, call.plan.groups);
    const address = byteLength > maxKeptBytes ? undefined : arena.take(byteLength);
    if (address === undefined) return undefined;
    arena.watch(call, address, byteLength);
    return { arena, written: writeList(arena, call, addresses, 0, address, byteLength) };
  }

  /** A call of too many ranks: the memory for calls cannot hold its lists or blocks. */
  outOfMemory(): UnsupportedError {
    return new UnsupportedError({
      headline: `sim: executor wasm: buffers take ${this.arena.live} bytes of its memory, and leave too few for this call`,
      hint: "dispose buffers after their last use, or take cpu(), which needs no memory beside the buffers",
    });
  }

  /** Stops the threads. */
  close(): void {
    this.#threads?.stop();
    this.#threads = undefined;
  }

  /** Writes groups from `begin` on until the list is full, runs them, and returns the first remaining one. */
  #runList(
    call: BoundCall,
    addresses: Addresses,
    begin: number,
    threads: Threads | undefined,
  ): number | undefined {
    const bytes = Math.max(
      usualListBytes,
      listBytes(call, call.plan.groups.slice(begin, begin + 1)),
    );
    if (!this.#list.reserve(bytes)) return undefined;
    const written = writeList(this.arena, call, addresses, begin, this.#list.address, bytes);
    return this.#execute(written, threads) ? written.next : undefined;
  }

  /** Runs a list; false where the arena has no room for its scratch memory. */
  #execute(written: WrittenList, threads: Threads | undefined): boolean {
    if (written.groups === 0) return true;
    if (!this.#scratch.reserve(written.scratchBytes * this.threads)) return false;
    const scratch = this.#scratch.address;
    try {
      if (threads !== undefined && written.traffic >= this.#crossover) {
        threads.run(written, scratch);
      } else this.#runAlone(written, scratch);
    } catch (cause) {
      throw this.#fail(cause);
    }
    return true;
  }

  #runAlone({ address, groups, bytes, traffic }: WrittenList, scratch: number): void {
    const { runSlice } = this.arena.kernels;
    const turns = Math.ceil(traffic / turnTraffic);
    for (let turn = 0; turn < turns; turn++) {
      const from = Math.floor((bytes * turn) / turns);
      const to = Math.floor((bytes * (turn + 1)) / turns);
      runSlice(address, groups, from, to, scratch);
    }
  }

  /** Stops the workers, and returns the error of the call. */
  #fail(cause: unknown): BackendUnavailableError {
    this.#failed = true;
    this.close();
    return new BackendUnavailableError(
      {
        headline: `sim: executor wasm: a kernel failed: ${cause instanceof Error ? cause.message : cause}`,
        hint: "the outputs of this call hold no result; later calls run on one thread until all worlds of the executor are closed; cpu() gives the same bits; report this message",
      },
      { cause },
    );
  }

  /** Threads that may share the lists of a call. */
  #threadsFor({ inPlace, plan }: BoundCall): Threads | undefined {
    // In place the folds of different groups may depend on their order, which threads do not keep.
    return inPlace && !plan.independent ? undefined : this.#threads;
  }

  /**
   * The pattern of rounding by position, by byte: all ones where the product is rounded by itself. 0 for calls that need none,
   * `undefined` where the arena has no room for it.
   */
  #maskOf({ dtype, separate }: BoundCall): number | undefined {
    if (separate === undefined) return 0;
    let address = this.#masks.get(dtype);
    if (address !== undefined) return address;
    const bytes = bytesOf(dtype);
    const pattern = separateMask(bytes);
    address = this.arena.takeForCall(pattern.length * bytes);
    if (address === undefined) return undefined;
    this.#masks.set(dtype, address);
    for (let i = 0; i < pattern.length; i++) {
      const begin = address + i * bytes;
      this.arena.bytes.fill(pattern[i] === 1 ? 0xff : 0, begin, begin + bytes);
    }
    return address;
  }
}
