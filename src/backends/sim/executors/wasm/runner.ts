/**
 * Runs bound calls whose data lies in an arena: writes their folds as lists, and has the kernels do these, on one thread
 * or on all. A call of more folds than a list holds goes list by list.
 */
import { type FusedFold, separateMask } from "../../../../algorithms/index.ts";
import { bytesOf, type DType } from "../../../../api/index.ts";
import type { BoundCall } from "../../executor.ts";
import { Arena } from "./arena.ts";
import { type Addresses, Encoder, scalarBytes, writeScalars } from "./encoder.ts";
import { canShare } from "./module.ts";
import { type List, Threads } from "./threads.ts";

/** Words of a list, unless one group alone needs more. */
const listWords = 2 ** 16;
/** Reading and writing from which on other threads are called for help. */
const usualCrossover = 2 ** 22;
/** Reading and writing of one call into the module: the runtime makes a kernel faster between calls, not within. */
const turnTraffic = 2 ** 23;

/** A range of the arena that is taken anew when more is needed. */
class Region {
  readonly #arena: Arena;
  address = 0;
  #bytes = 0;

  constructor(arena: Arena) {
    this.#arena = arena;
  }

  /** Whether it has that many bytes now; what was in it may be lost. */
  reserve(bytes: number): boolean {
    if (bytes <= this.#bytes) return true;
    const address = this.#arena.take(bytes);
    if (address === undefined) return false;
    if (this.#bytes > 0) this.#arena.give(this.address, this.#bytes);
    this.address = address;
    this.#bytes = bytes;
    return true;
  }
}

/** What may be set otherwise than it usually is. */
export interface RunnerSettings {
  /** Threads that may work on large calls, where memory is shared. */
  readonly threads: number;
  readonly shared?: boolean;
  /** Bytes of the arena. */
  readonly mostBytes?: number;
  /** Reading and writing of a call from which on other threads help. */
  readonly crossover?: number;
}

/** Runs calls in one arena. */
export class Runner {
  readonly arena: Arena;
  readonly #threads: Threads | undefined;
  readonly #crossover: number;
  readonly #list: Region;
  readonly #scratch: Region;
  readonly #scalars: Region;
  readonly #masks = new Map<DType, number>();

  constructor({
    threads,
    shared = canShare(),
    mostBytes,
    crossover = usualCrossover,
  }: RunnerSettings) {
    const arena = new Arena(shared, mostBytes);
    this.arena = arena;
    this.#crossover = crossover;
    this.#list = new Region(arena);
    this.#scratch = new Region(arena);
    this.#scalars = new Region(arena);
    if (threads === 1 || !shared) return;
    const controlAt = arena.take(Threads.controlBytes);
    if (controlAt !== undefined) this.#threads = new Threads(arena, threads, controlAt);
  }

  /** Threads that may work on a call. */
  get threads(): number {
    return this.#threads?.count ?? 1;
  }

  /** Slices that worker threads did. */
  get helped(): number {
    return this.#threads?.helped ?? 0;
  }

  /** Runs a call whose buffers begin at these addresses; false where the arena has no room for what it needs beside them. */
  run(call: BoundCall, inputs: readonly number[], outputs: readonly number[]): boolean {
    const addresses = this.#prepare(call, inputs, outputs);
    if (addresses === undefined) return false;
    const encoder = new Encoder(call, addresses);
    // In place the folds of different groups may have an order, which threads would not keep.
    const threads = call.inPlace && !call.plan.independent ? undefined : this.#threads;
    const { groups } = call.plan;
    for (let next = 0; next < groups.length; ) {
      const end = this.#runList(encoder, groups, next, threads);
      if (end === undefined) return false;
      next = end;
    }
    return true;
  }

  /** Stops the threads. */
  close(): void {
    this.#threads?.stop();
  }

  /** Writes groups from `begin` on until the list is full, runs them, and gives the first one that is left. */
  #runList(
    encoder: Encoder,
    groups: BoundCall["plan"]["groups"],
    begin: number,
    threads: Threads | undefined,
  ): number | undefined {
    const words = Math.max(listWords, encoder.wordsOf(groups[begin] as readonly FusedFold[]));
    if (!this.#list.reserve(4 * words)) return undefined;
    const first = this.#list.address / 4;
    const list = { groups: 0, bytes: 0, traffic: 0, scratchBytes: 0 };
    let at = first;
    let next = begin;
    for (; next < groups.length; next++) {
      const group = groups[next] as readonly FusedFold[];
      const bytes = encoder.bytesOf(group);
      if (bytes === 0) continue;
      const length = encoder.wordsOf(group);
      if (at + length > first + words) break;
      const needed = encoder.write(group, bytes, this.arena.words, at);
      at += length;
      list.groups++;
      list.bytes += bytes;
      list.traffic += encoder.trafficOf(group, bytes);
      list.scratchBytes = Math.max(list.scratchBytes, needed);
    }
    if (list.groups === 0) return next;
    if (!this.#scratch.reserve(list.scratchBytes * this.threads)) return undefined;
    this.#do({ ...list, address: this.#list.address, scratch: this.#scratch.address }, threads);
    return next;
  }

  #do(list: List, threads: Threads | undefined): void {
    if (threads !== undefined && list.traffic >= this.#crossover) {
      threads.run(list);
      return;
    }
    const { runSlice } = this.arena.kernels;
    const turns = Math.ceil(list.traffic / turnTraffic);
    for (let turn = 0; turn < turns; turn++) {
      const from = Math.floor((list.bytes * turn) / turns);
      const to = Math.floor((list.bytes * (turn + 1)) / turns);
      runSlice(list.address, list.groups, from, to, list.scratch);
    }
  }

  #prepare(
    call: BoundCall,
    inputs: readonly number[],
    outputs: readonly number[],
  ): Addresses | undefined {
    const { dtype, folds } = call;
    if (!this.#scalars.reserve(scalarBytes * Math.max(1, folds.length))) return undefined;
    const scalars = this.#scalars.address;
    writeScalars(dtype, folds, this.arena.bytes.subarray(scalars));
    const mask = call.separate === undefined ? 0 : this.#maskOf(dtype);
    return mask === undefined ? undefined : { inputs, outputs, scalars, mask };
  }

  /** The pattern of rounding by position, by byte: all ones where the product is rounded by itself. */
  #maskOf(dtype: DType): number | undefined {
    let address = this.#masks.get(dtype);
    if (address !== undefined) return address;
    const bytes = bytesOf(dtype);
    const pattern = separateMask(bytes);
    address = this.arena.take(pattern.length * bytes);
    if (address === undefined) return undefined;
    this.#masks.set(dtype, address);
    for (let i = 0; i < pattern.length; i++) {
      const begin = address + i * bytes;
      this.arena.bytes.fill(pattern[i] === 1 ? 0xff : 0, begin, begin + bytes);
    }
    return address;
  }
}
