/** A planned collective as commands: kernels and their bindings. Recorded once, run by one submit each time. */
import { getOrCreate } from "../../../../api/get-or-create.ts";
import type { BoundCall } from "../../executor.ts";
import { distinct } from "../cpu.ts";
import { type OpenDevice, usage } from "./device.ts";
import { type FoldJob, jobsOf, type Scratch, type Spot, type Spots, scalarWords } from "./jobs.ts";
import type { Machine } from "./machine.ts";
import { type Piece, piecesOf } from "./pieces.ts";
import type { Range, Slab, Slabs } from "./slabs.ts";
import { batchesOf, type Dispatch, dispatchOf } from "./table.ts";
import type { Access } from "./wgsl/access.ts";
import { arithmeticOf } from "./wgsl/arithmetic.ts";
import { type NativeAdds, nativeFor } from "./wgsl/float-sum.ts";
import { foldKernel, pieceBytes } from "./wgsl/kernel.ts";
import { copying, type Operation, operationKey, operationOf } from "./wgsl/operation.ts";

/** Jobs and their operation. */
interface Task {
  readonly operation: Operation;
  /** The divisor of an integer average. */
  readonly divisor: number;
  /** The jobs, with the scratch memory that they need. */
  readonly plan: (scratch: Scratch) => readonly FoldJob[];
}

/** One dispatch of a kernel, with its bindings. */
interface Step {
  readonly pipeline: GPUComputePipeline;
  readonly bindings: GPUBindGroup;
  readonly table: GPUBuffer;
  readonly grid: Dispatch["grid"];
}

/** Commands that can be encoded again and again. */
export class Recording {
  readonly #steps: readonly Step[];
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
    this.#steps = tasks.flatMap((task) =>
      stepsOf(machine, task, piecesOf(task.plan(scratch), device.limits, scratch)),
    );
    this.#scratch = ranges;
    this.#slabs = slabs;
  }

  /** The slabs of its scratch memory. */
  get slabs(): Slab[] {
    return this.#scratch.map(({ slab }) => slab);
  }

  /** Encodes the commands. */
  encode(encoder: GPUCommandEncoder): void {
    if (this.#steps.length === 0) return;
    const pass = encoder.beginComputePass();
    for (const { pipeline, bindings, grid } of this.#steps) {
      pass.setPipeline(pipeline);
      pass.setBindGroup(0, bindings);
      pass.dispatchWorkgroups(...grid);
    }
    pass.end();
  }

  /** Frees its memory. */
  close(): void {
    for (const range of this.#scratch) this.#slabs.free(range);
    for (const { table } of this.#steps) table.destroy();
  }
}

/** Runs copying jobs once. */
export function runOnce(machine: Machine, jobs: readonly FoldJob[]): void {
  const recording = new Recording(machine, [{ operation: copying, divisor: 1, plan: () => jobs }]);
  machine.submit((encoder) => recording.encode(encoder));
  recording.close();
}

/** Levels in their order; within a level one dispatch for each kernel and set of windows. */
function stepsOf(
  { device, natives }: Machine,
  { operation, divisor }: Task,
  pieces: readonly Piece[],
): Step[] {
  const { limits } = device;
  return grouped(pieces).flatMap((alike) =>
    batchesOf(alike, limits).map((batch) => {
      const { copy, access } = alike[0] as Piece;
      const done = copy ? copying : operation;
      const kernel = kernelOf(device.device, done, access, batch.windows.size, natives);
      return stepOf(device, kernel, dispatchOf(batch, kernel.pieceBytes, divisor, limits));
    }),
  );
}

function stepOf(
  { device, queue }: OpenDevice,
  { pipeline }: Kernel,
  { table: rows, windows, grid }: Dispatch,
): Step {
  const size = rows.byteLength;
  const table = device.createBuffer({ size, usage: usage.storage | usage.copyTarget });
  queue.writeBuffer(table, 0, rows);
  const places = [{ buffer: table, offset: 0, bytes: size }, ...windows];
  const entries = places.map(({ buffer, offset, bytes }, binding) => {
    return { binding, resource: { buffer, offset, size: bytes } };
  });
  const layout = pipeline.getBindGroupLayout(0);
  return { pipeline, bindings: device.createBindGroup({ layout, entries }), table, grid };
}

/** Pieces of one level and kernel. */
function grouped(pieces: readonly Piece[]): Piece[][] {
  const groups = new Map<string, Piece[]>();
  for (const piece of pieces) {
    const key = `${piece.level} ${piece.copy} ${piece.access}`;
    getOrCreate(groups, key, () => []).push(piece);
  }
  return [...groups.values()];
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
      .map((call, i) => this.#key(call, spots[i] as Spots, tasks[i] as Task))
      .join("\n");
    let recording = this.#kept.get(key);
    this.#kept.delete(key);
    if (recording?.slabs.some(({ failure }) => failure !== undefined)) {
      recording.close();
      recording = undefined;
    }
    recording ??= new Recording(this.#machine, tasks);
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
    { operation, divisor }: Task,
  ): string {
    const place = (spot: Spot | undefined): string =>
      spot === undefined ? "-" : `${this.#number(spot.slab)}:${spot.offset}`;
    const shape = `${dtype} ${this.#number(plan)} ${this.#number(layout)}`;
    const arithmetic = `${operationKey(operation)} ${divisor}`;
    const scalars = distinct(folds).map((fold) => scalarWords(fold).join(":"));
    const places = [...spots.inputs, ...spots.outputs].map(place);
    return [shape, arithmetic, scalars.join(" "), ...places].join("|");
  }

  #number(object: object): number {
    return getOrCreate(this.#numbers, object, () => this.#nextNumber++);
  }
}

function taskOf(call: BoundCall, spots: Spots): Task {
  const [fold] = call.folds;
  return {
    operation: fold === undefined ? copying : operationOf(fold, call.separate?.[0]),
    divisor: fold?.terms.divisor ?? 1,
    plan: (scratch) => jobsOf(call, spots, scratch),
  };
}

// The compute pipelines of a device: created at their first use, and kept as long as the device.

/** A pipeline: it binds the table, then the windows. */
interface Kernel {
  readonly pipeline: GPUComputePipeline;
  /** Bytes that one invocation folds. */
  readonly pieceBytes: number;
}

const known = new WeakMap<GPUDevice, Map<string, Kernel>>();

/** The kernel of an operation on a device, the same one for everything that uses the device. */
function kernelOf(
  device: GPUDevice,
  operation: Operation,
  access: Access,
  windows: number,
  natives: NativeAdds,
): Kernel {
  const kernels = getOrCreate(known, device, () => new Map());
  const native = nativeFor(operation, natives);
  const label = `twinccl ${operationKey(operation)}, ${access}, ${windows}, ${native}`;
  return getOrCreate(kernels, label, () => {
    const arithmetic = arithmeticOf(operation, native);
    const code = foldKernel(arithmetic, access, windows);
    const module = device.createShaderModule({ label, code });
    const compute = { module, entryPoint: "main" };
    const pipeline = device.createComputePipeline({ label, layout: "auto", compute });
    return { pipeline, pieceBytes: pieceBytes(access, arithmetic.unit) };
  });
}
