/** A planned collective as commands: kernels and their bindings. Recorded once, run by one submit each time. */

import type { BoundCall } from "../../executor.ts";
import { distinct } from "../cpu.ts";
import { alignment, type OpenDevice, usage } from "./device.ts";
import {
  type FoldJob,
  jobsOf,
  type Scratch,
  type Spot,
  type Spots,
  scalarWords,
  withoutHazards,
} from "./jobs.ts";
import type { Kernel } from "./kernels.ts";
import type { Machine } from "./machine.ts";
import { type Piece, piecesOf, type Window } from "./pieces.ts";
import { type Range, type Slabs, type Stretch, stretchesOf } from "./slabs.ts";
import { batchesOf, type Dispatch, dispatchOf } from "./table.ts";
import { type Operation, operationKey, operationOf } from "./wgsl/operation.ts";

/** Jobs and their operation; copies need neither operation nor divisor. */
interface Task {
  readonly operation: Operation | undefined;
  /** The divisor of an integer average. */
  readonly divisor: number;
  /** The jobs, with the scratch memory that they need. */
  readonly plan: (scratch: Scratch) => readonly FoldJob[];
}

interface Step {
  readonly kernel: Kernel;
  readonly dispatch: Dispatch;
}

/** Commands that can be encoded again and again. */
export class Recording {
  readonly #steps: readonly Step[];
  readonly #groups: readonly GPUBindGroup[];
  readonly #table: GPUBuffer | undefined;
  readonly #scratch: readonly Range[];
  readonly #slabs: Slabs;

  /** Plans the tasks, one after another. */
  constructor(machine: Machine, tasks: readonly Task[]) {
    const { device, slabs } = machine;
    const ranges: Range[] = [];
    const scratch: Scratch = (bytes) => {
      const range = slabs.allocate(bytes, false);
      ranges.push(range);
      return range;
    };
    this.#steps = tasks.flatMap((task) => {
      const jobs = withoutHazards(task.plan(scratch), scratch);
      return stepsOf(machine, task, piecesOf(jobs, device.limits, scratch));
    });
    this.#scratch = ranges;
    this.#slabs = slabs;
    const starts = tableStarts(this.#steps);
    this.#table = this.#steps.length === 0 ? undefined : uploaded(device, this.#steps, starts);
    this.#groups = bound(device, this.#steps, starts, this.#table);
  }

  /** Encodes the commands. */
  encode(encoder: GPUCommandEncoder): void {
    if (this.#steps.length === 0) return;
    const pass = encoder.beginComputePass();
    this.#steps.forEach(({ kernel, dispatch }, i) => {
      pass.setPipeline(kernel.pipeline);
      pass.setBindGroup(0, this.#groups[i] as GPUBindGroup);
      pass.dispatchWorkgroups(...dispatch.grid);
    });
    pass.end();
  }

  /** Frees its memory. */
  close(): void {
    for (const range of this.#scratch) this.#slabs.free(range);
    this.#table?.destroy();
  }
}

/** Runs copying jobs once. */
export function runOnce(machine: Machine, jobs: readonly FoldJob[]): void {
  const recording = new Recording(machine, [
    { operation: undefined, divisor: 1, plan: () => jobs },
  ]);
  machine.submit((encoder) => recording.encode(encoder));
  recording.close();
}

/** Levels in their order; within a level one dispatch for each kernel and set of windows. */
function stepsOf(
  { device, kernels, natives }: Machine,
  { operation, divisor }: Task,
  pieces: readonly Piece[],
): Step[] {
  const { limits } = device;
  return grouped(pieces).flatMap((alike) =>
    batchesOf(alike, limits).map((batch) => {
      const { copy, access } = alike[0] as Piece;
      const folded = copy ? undefined : operation;
      const kernel = kernels.get(folded, access, batch.windows.length, natives);
      return { kernel, dispatch: dispatchOf(batch, kernel.pieceBytes, divisor, limits) };
    }),
  );
}

/** Pieces of one level and kernel. */
function grouped(pieces: readonly Piece[]): Piece[][] {
  const groups = new Map<string, Piece[]>();
  for (const piece of pieces) {
    const key = `${piece.level} ${piece.copy} ${piece.access}`;
    const group = groups.get(key);
    if (group === undefined) groups.set(key, [piece]);
    else group.push(piece);
  }
  return [...groups.values()];
}

/** Tables begin where a binding may. */
function tableStarts(steps: readonly Step[]): number[] {
  let at = 0;
  return steps.map(({ dispatch }) => {
    const start = at;
    at += Math.ceil(dispatch.table.byteLength / alignment) * alignment;
    return start;
  });
}

function uploaded(
  { device, queue }: OpenDevice,
  steps: readonly Step[],
  starts: readonly number[],
): GPUBuffer {
  const last = steps.at(-1) as Step;
  const size = (starts.at(-1) as number) + last.dispatch.table.byteLength;
  const buffer = device.createBuffer({ size, usage: usage.storage | usage.copyTarget });
  steps.forEach(({ dispatch }, i) => {
    queue.writeBuffer(buffer, starts[i] as number, dispatch.table);
  });
  return buffer;
}

function bound(
  { device, limits }: OpenDevice,
  steps: readonly Step[],
  starts: readonly number[],
  table: GPUBuffer | undefined,
): GPUBindGroup[] {
  const shown = ({ slab, index }: Window): GPUBufferBinding => {
    const begin = index * limits.windowBytes;
    const end = Math.min(begin + limits.windowBytes, slab.bytes);
    const { buffer, offset, bytes } = stretchesOf(slab, begin, end)[0] as Stretch;
    return { buffer, offset, size: bytes - (bytes % 4) };
  };
  return steps.map(({ kernel, dispatch }, i) =>
    device.createBindGroup({
      layout: kernel.bindings,
      entries: [
        {
          binding: 0,
          resource: {
            buffer: table as GPUBuffer,
            offset: starts[i] as number,
            size: dispatch.table.byteLength,
          },
        },
        ...dispatch.windows.map((window, n) => ({ binding: n + 1, resource: shown(window) })),
      ],
    }),
  );
}

/** Recordings kept; the least recently used one is dropped first. */
const maxRecordings = 128;

/** The recordings of one device. */
export class Recordings {
  readonly #machine: Machine;
  readonly #kept = new Map<string, Recording>();
  readonly #numbers = new WeakMap<object, number>();
  #nextNumber = 0;

  constructor(machine: Machine) {
    this.#machine = machine;
  }

  /** The recording of a collective's calls with buffers at that place, by call. */
  of(calls: readonly BoundCall[], spots: readonly Spots[]): Recording {
    const tasks = calls.map((call, i) => taskOf(call, spots[i] as Spots));
    const key = calls
      .map((call, i) => this.#key(call, spots[i] as Spots, tasks[i]?.operation))
      .join("\n");
    const recording = this.#kept.get(key) ?? new Recording(this.#machine, tasks);
    this.#kept.delete(key);
    this.#kept.set(key, recording);
    for (const [oldest, dropped] of this.#kept) {
      if (this.#kept.size <= maxRecordings) break;
      this.#kept.delete(oldest);
      dropped.close();
    }
    return recording;
  }

  /** Frees their memory. */
  close(): void {
    for (const recording of this.#kept.values()) recording.close();
    this.#kept.clear();
  }

  #key(
    { dtype, plan, layout, folds }: BoundCall,
    spots: Spots,
    operation: Operation | undefined,
  ): string {
    const place = (spot: Spot | undefined): string =>
      spot === undefined ? "-" : `${this.#number(spot.slab)}:${spot.offset}`;
    const shape = `${dtype} ${this.#number(plan)} ${this.#number(layout)}`;
    const arithmetic =
      operation === undefined ? "" : `${operationKey(operation)} ${folds[0]?.terms.divisor}`;
    const scalars = distinct(folds).map((fold) => scalarWords(fold).join(":"));
    const places = [...spots.inputs, ...spots.outputs].map(place);
    return [shape, arithmetic, scalars.join(" "), ...places].join("|");
  }

  #number(object: object): number {
    let number = this.#numbers.get(object);
    if (number === undefined) {
      number = this.#nextNumber++;
      this.#numbers.set(object, number);
    }
    return number;
  }
}

function taskOf(call: BoundCall, spots: Spots): Task {
  const [fold] = call.folds;
  return {
    operation: fold && operationOf(fold, call.separate?.[0]),
    divisor: fold?.terms.divisor ?? 1,
    plan: (scratch) => jobsOf(call, spots, scratch),
  };
}
