/**
 * A machine with fake GPUs: the state that the fakes of CUDA and NCCL share. Work runs only when its completion is queried,
 * so that nothing can rely on it being done at once, and `hold` keeps it from running at all.
 */
import { CudaError, NcclError } from "twinccl/nccl";
import { AddressSpace } from "./memory.ts";
import type { Event, Stream } from "./streams.ts";

/** Options of the machine. */
export interface MachineOptions {
  /** Number of GPUs. */
  readonly devices?: number;
  /** Compute capability of every GPU. */
  readonly capability?: string;
  readonly ncclVersion?: number;
  /** Bytes of memory of each GPU. */
  readonly memoryBytes?: number;
}

/** A planned failure of a call. */
interface Planned {
  calls: number;
  readonly error: unknown;
}

/** The state behind both fakes. */
export class Machine {
  readonly devices: number;
  readonly capability: string;
  readonly ncclVersion: number;
  readonly memoryBytes: number;
  readonly memory = new AddressSpace();
  readonly streams = new Map<bigint, Stream>();
  readonly events = new Map<bigint, Event>();
  /** Graph recordings and launchable graphs. */
  readonly graphs = new Map<bigint, object>();
  /** Acts of the program under test that real GPUs would not forgive. */
  readonly complaints: string[] = [];
  /** Calls of the fakes, by name. */
  readonly calls = new Map<string, number>();
  /** Live things of NCCL, for `leaks`. */
  readonly counters: (() => readonly string[])[] = [];
  current = 0;
  /** The process of each device with a rank. */
  readonly processes = new Map<number, object>();
  #held = false;
  #handle = 0x1000n;
  readonly #planned = new Map<string, Planned>();

  constructor(options: MachineOptions = {}) {
    this.devices = options.devices ?? 8;
    this.capability = options.capability ?? "9.0";
    this.ncclVersion = options.ncclVersion ?? 22809;
    this.memoryBytes = options.memoryBytes ?? 2 ** 40;
  }

  newHandle(): bigint {
    this.#handle += 16n;
    return this.#handle;
  }

  complain(text: string): void {
    this.complaints.push(text);
  }

  /** Nothing runs from here on. */
  hold(): void {
    this.#held = true;
  }

  /** Work runs again at the next query. */
  release(): void {
    this.#held = false;
  }

  /** The next call of this name fails, or a later one. */
  failNext(name: string, error: unknown, after = 0): void {
    this.#planned.set(name, { calls: after, error });
  }

  /** Counts a call, and throws what was planned for it. */
  enter(name: string): void {
    this.calls.set(name, (this.calls.get(name) ?? 0) + 1);
    const planned = this.#planned.get(name);
    if (planned === undefined) return;
    if (planned.calls === 0) {
      this.#planned.delete(name);
      throw planned.error;
    }
    planned.calls -= 1;
  }

  /** The number of calls of that name. */
  count(name: string): number {
    return this.calls.get(name) ?? 0;
  }

  stream(handle: bigint): Stream {
    const stream = this.streams.get(handle);
    if (stream !== undefined) return stream;
    this.complain(`stream ${handle} is used after it was destroyed`);
    throw cudaError("cudaStream", 400, "cudaErrorInvalidResourceHandle");
  }

  /** Runs everything that can run. */
  pump(): void {
    if (this.#held) return;
    let moved = true;
    while (moved) {
      moved = false;
      for (const stream of this.streams.values()) moved = stream.run() || moved;
    }
  }

  /** Waits of streams that nothing holds: deadlocks. */
  stuck(): string[] {
    this.pump();
    return [...this.streams.values()].flatMap(({ device, queue }) =>
      queue[0] === undefined ? [] : [`cuda:${device} waits for ${queue[0].what}`],
    );
  }

  /** Everything that was not given back. */
  leaks(): string[] {
    return [
      ...this.memory.live.map(({ bytes, home }) => `${bytes.length} bytes of ${home}`),
      ...[...this.streams.values()].map(({ device }) => `a stream of ${device}`),
      ...[...this.events.values()].map(({ device }) => `an event of ${device}`),
      ...[...this.graphs.keys()].map((handle) => `graph ${handle}`),
      ...this.counters.flatMap((count) => count()),
    ];
  }

  /** True while any stream is recording. */
  get capturing(): boolean {
    return [...this.streams.values()].some(({ recording }) => recording !== undefined);
  }
}

/** An error as the CUDA runtime would give it. */
export function cudaError(cCall: string, status: number, statusName: string): CudaError {
  return new CudaError({ cCall, status, statusName, detail: "as planned" });
}

/** An error as NCCL would give it. */
export function ncclError(cCall: string, status: number, statusName: string): NcclError {
  return new NcclError({ cCall, status, statusName, detail: "as planned" });
}

/** Has every call of a fake counted and, where that was planned, fail. */
export function watched<T extends object>(machine: Machine, calls: T): T {
  const entries = Object.entries(calls).map(([name, call]) => {
    if (typeof call !== "function") return [name, call];
    const make = (args: unknown[]): unknown => {
      machine.enter(name);
      return (call as (...args: unknown[]) => unknown)(...args);
    };
    // Calls on other threads reject.
    if (name.endsWith("InBackground")) return [name, async (...args: unknown[]) => make(args)];
    return [name, (...args: unknown[]) => make(args)];
  });
  return Object.fromEntries(entries) as T;
}
