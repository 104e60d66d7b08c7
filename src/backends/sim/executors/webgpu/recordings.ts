/** The recordings of collectives, kept for the next one of the same shape on the same buffers. */
import type { Fold } from "../../../../algorithms/arithmetic/index.ts";
import type { BoundCall } from "../../executor.ts";
import { jobsOf, type Spot, type Spots } from "./jobs.ts";
import { type Recorder, Recording, type Task } from "./recording.ts";
import { scalarWords } from "./scalar-words.ts";
import type { Slab } from "./slabs.ts";
import { type Operation, operationKey, operationOf } from "./wgsl/operation.ts";

/** Recordings kept; the one that was used longest ago goes first. */
const mostRecordings = 128;

/** The recordings of one device. */
export class Recordings {
  readonly #recorder: Recorder;
  readonly #kept = new Map<string, Recording>();
  readonly #numbers = new WeakMap<object, number>();
  #nextNumber = 0;

  constructor(recorder: Recorder) {
    this.#recorder = recorder;
  }

  /** The recording of a collective's calls with buffers at that place, by call. */
  of(calls: readonly BoundCall[], spots: readonly Spots[]): Recording {
    const tasks = calls.map((call, i) => taskOf(call, spots[i] as Spots));
    const key = calls
      .map((call, i) => this.#key(call, spots[i] as Spots, tasks[i]?.operation))
      .join("\n");
    const recording = this.#kept.get(key) ?? new Recording(this.#recorder, tasks);
    this.#kept.delete(key);
    this.#kept.set(key, recording);
    if (this.#kept.size > mostRecordings) this.#dropOldest();
    return recording;
  }

  /** Gives their memory back. */
  close(): void {
    for (const recording of this.#kept.values()) recording.close();
    this.#kept.clear();
  }

  #dropOldest(): void {
    const oldest = this.#kept.entries().next();
    if (oldest.done) return;
    const [key, recording] = oldest.value;
    this.#kept.delete(key);
    recording.close();
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

  #number(object: Slab | object): number {
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

/** One fold where all ranks share it. */
function distinct(folds: readonly Fold[]): readonly Fold[] {
  return folds.every((fold) => fold === folds[0]) ? folds.slice(0, 1) : folds;
}
