/**
 * The fast executor: folds in WebAssembly SIMD over memory that holds the buffers themselves, with more threads for larger
 * calls.
 */

import { allocateHost } from "../../../../algorithms/host-memory.ts";
import type { Probe } from "../../../../api/backend-entry.ts";
import { BackendUnavailableError } from "../../../../api/index.ts";
import { assertOptions, integer } from "../../../../api/option-kinds.ts";
import type { BoundCall, Executor, SimMemory } from "../../executor.ts";
import { type Arena, WasmMemory } from "./arena.ts";
import { canShare, compile, hasSimd } from "./module.ts";
import { collect, collectIdle, noteIdle, noteReuse, Pressure } from "./pressure.ts";
import { Runner, type RunnerSettings } from "./runner.ts";
import { processors } from "./spawn.ts";
import { runStaged } from "./staging.ts";

/** Options of `wasm`. */
export interface WasmOptions {
  /**
   * Threads that may work on one call, the calling one included; left out, as many as the machine has, up to 8. One where
   * memory cannot be shared. No number changes a result.
   */
  readonly threads?: number | undefined;
}

/** More threads than these share the same memory bandwidth. */
const usefulThreads = 8;
const maxThreads = 256;

/**
 * An executor that folds in WebAssembly with SIMD: the same bits as `cpu()`, several times faster. The default of `sim()` where
 * the runtime has SIMD.
 *
 * Buffers of `comm.alloc` lie in its memory, up to 4 GiB for all worlds on one executor, minus about 20 MiB reserved for calls.
 * Beyond that, and for TypedArrays passed directly, blocks are copied in and out. Small calls stay on the calling thread. For
 * others, worker threads help once they have started, in Node and in cross-origin isolated pages of browsers. They sleep
 * between calls and keep no process alive. Calls are done when `execute` returns. After large allocations, a call sometimes
 * waits until undisposed buffers are collected.
 *
 * The memory grows and never shrinks. When the last world of the executor is closed, the next one takes it over, with its
 * threads. If no world follows before the next turn of the event loop and more than 32 MiB are held, the memory is released to
 * the collector, which is triggered at once. A buffer still held by the program keeps it. Each memory reserves some 10 GiB of
 * addresses, so let worlds share an executor.
 *
 * Opening a world throws `BackendUnavailableError` where no addresses are left, or the runtime refuses to compile. A call fails
 * with it on every rank if a thread fails, and its outputs then hold no result. Later calls run on one thread until all worlds of
 * the executor are closed. A call fails with `UnsupportedError` if the memory is full and the call needs more than the reserve.
 * Folds of thousands of ranks may.
 *
 * @throws InvalidArgumentError for a number of threads that is no integer from 1 to 256.
 * @example
 * const world = await createWorld({ backend: sim({ executor: wasm({ threads: 2 }) }), size: 8 });
 */
export function wasm(options: WasmOptions = {}): Executor {
  assertOptions("wasm", options, {
    threads: integer(1, maxThreads, "leave it out to take what the machine has"),
  });
  const { threads = Math.min(processors(), usefulThreads) } = options;
  return new WasmExecutor({ threads });
}

/** The default executor of `sim()`: one for all worlds, since each memory reserves many addresses. */
let shared: Executor | undefined;

/** The executor shared by worlds that name none; `undefined` where the runtime has no SIMD. */
export function sharedWasm(): Executor | undefined {
  if (shared === undefined && hasSimd()) shared = wasm();
  return shared;
}

/** Settings with defaults. */
export interface WasmSettings extends RunnerSettings {
  /** Bytes allocated between two collections of buffers that were never disposed. */
  readonly pressureBytes?: number;
}

/**
 * The executor; only tests pass settings.
 *
 * @internal
 */
export class WasmExecutor implements Executor {
  readonly name = "wasm";
  readonly #settings: WasmSettings;
  readonly #pressure: Pressure;
  /** The runner of calls while worlds are open. */
  #runner: Runner | undefined;
  /** The last worlds' arena while no world is open, for the next one unless the runtime collects it before. */
  #idle: WeakRef<Arena> | undefined;
  /** By arena: a runner lives as long as a buffer in its arena. */
  readonly #runners = new WeakMap<Arena, Runner>();
  #worlds = 0;

  constructor(settings: WasmSettings) {
    this.#settings = settings;
    this.#pressure = new Pressure(settings.pressureBytes);
  }

  /** The runner of calls, while a world is open. */
  get runner(): Runner {
    return this.#ensureRunner();
  }

  probe(): Probe {
    if (hasSimd()) return { ok: true, reason: "this runtime has WebAssembly with SIMD" };
    return { ok: false, reason: "this runtime has no WebAssembly with SIMD; take cpu()" };
  }

  async open(): Promise<void> {
    const { ok, reason } = this.probe();
    if (!ok) throw new BackendUnavailableError({ headline: `sim: executor wasm: ${reason}` });
    await compile(this.#settings.shared ?? canShare());
    if (this.#runner === undefined && this.#idle?.deref() === undefined) await collectIdle();
    try {
      this.#ensureRunner();
    } catch {
      // Unused memories may occupy the addresses.
      await collect();
      this.#ensureRunner();
    }
    this.#worlds++;
  }

  allocate(device: string, ptr: bigint, byteLength: number): SimMemory {
    const { arena } = this.#ensureRunner();
    const address = arena.take(byteLength);
    if (address !== undefined) return new WasmMemory(device, ptr, byteLength, arena, address);
    try {
      return allocateHost(device, ptr, byteLength);
    } catch (cause) {
      throw new RangeError(`${arena.live} bytes of the executor's memory are taken`, { cause });
    }
  }

  execute(call: BoundCall): void | Promise<void> {
    const runner = this.#ensureRunner();
    if (!runner.runKept(call)) runStaged(runner, call);
    if (this.#pressure.isHigh(runner.arena)) return this.#pressure.relieve(runner.arena);
  }

  close(): void {
    this.#worlds--;
    const runner = this.#runner;
    if (this.#worlds > 0 || runner === undefined) return;
    this.#runner = undefined;
    // After a failure the next world gets a new arena and new threads.
    this.#idle = runner.failed ? undefined : new WeakRef(runner.arena);
    noteIdle(runner.arena);
  }

  /** The runner of the worlds that are open, else of the last ones, unless it was collected. */
  #ensureRunner(): Runner {
    if (this.#runner !== undefined) return this.#runner;
    const arena = this.#idle?.deref();
    if (arena !== undefined) noteReuse(arena);
    this.#runner = (arena && this.#runners.get(arena)) ?? new Runner(this.#settings);
    this.#runners.set(this.#runner.arena, this.#runner);
    return this.#runner;
  }
}
