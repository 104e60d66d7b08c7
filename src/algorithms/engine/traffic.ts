/**
 * The traffic of a call: the messages that every lane sends and receives, without the data.
 *
 * Steps that only move data inside a rank take no time and are left out. Steps that differ only in the chunk are one
 * *run*. So the ring all-reduce of a thousand ranks is a few thousand runs of two million messages.
 *
 * Lanes are read one at a time, from a finished program or as its algorithm writes them. A rank's number alone decides
 * its steps, so a program of a million ranks is never in memory as a whole.
 */

import type { SpecifiedCollective } from "../../api/collectives/index.ts";
import { type Algorithm, assertAlgorithm, builderOf, type Symmetry } from "../algorithm.ts";
import { assertArgument, assertInteger, assertLanes, hasFields } from "../arguments.ts";
import type { Layout } from "../layout.ts";
import { tooMuchTraffic } from "../limits.ts";
import {
  assertProgram,
  bufferOf,
  chunkOf,
  column,
  none,
  type Program,
  stepWidth,
} from "../program.ts";

/** Limit of runs: some 500 MB with their edges. */
const maxRuns = 2 ** 23;

/** Limit of steps that are read: some seconds. */
const maxRead = 2 ** 28;

/** The messages of all lanes, with their senders, receivers and order. */
export interface Traffic {
  readonly ranks: number;
  readonly channels: number;
  /** Lane l = rank · channels + channel has runs `starts[l]` up to `starts[l + 1]`. */
  readonly starts: Int32Array;
  /** Edge that a run receives from, and the one that it sends to; -1 for none. */
  readonly receives: Int32Array;
  readonly sends: Int32Array;
  /** Elements of each message that a run creates; a run that receives forwards the received elements. */
  readonly elements: Float64Array;
  /** Repetitions of a run. */
  readonly times: Int32Array;
  /** Number of a run's first step, over all lanes. */
  readonly steps: Float64Array;
  /** Lane that an edge comes from and goes to; -1 where there is none. */
  readonly edgeFrom: Int32Array;
  readonly edgeTo: Int32Array;
  /** The lane that the edge goes to; differs from `edgeTo` where that lane represents it. */
  readonly edgeFar: Int32Array;
  /** Sends of all lanes. */
  readonly messages: number;
}

/** Needs the traffic of a call. */
export function assertTraffic(subject: string, found: unknown): void {
  const { starts, edgeTo } = Object(found) as Partial<Traffic>;
  const is = ArrayBuffer.isView(starts) && ArrayBuffer.isView(edgeTo);
  assertArgument(is, subject, "traffic", found, "the traffic of a call, as trafficOf gives it");
  assertLanes(subject, "traffic", found as Traffic);
}

/** Ranks from 0 up to `period` that represent all: rank r represents every rank r + k · period, renumbered. */
export interface Period {
  /** Divides the number of ranks. */
  readonly period: number;
  readonly symmetry: Symmetry;
}

/**
 * Reads the traffic off the lanes of a program; without a layout all messages are empty.
 *
 * @throws UnsupportedError for more runs than the limit.
 * @param represented Where ranks at this distance are equivalent, the ranks below it represent all.
 */
export function trafficOf(
  source: LaneSource,
  layout: Layout | undefined,
  represented?: Period,
): Traffic {
  const isSource = hasFields(source, { ranks: "number", channels: "number", steps: "function" });
  assertArgument(isSource, "trafficOf", "source", source, "lanes, as writtenLanes gives them");
  const isLayout = layout === undefined || hasFields(layout, { in: "object", out: "object" });
  assertArgument(isLayout, "trafficOf", "layout", layout, "a layout, as layoutOf gives it");
  const { ranks, channels } = source;
  assertInteger("trafficOf", "source.ranks", ranks, 1, Number.MAX_SAFE_INTEGER);
  assertInteger("trafficOf", "source.channels", channels, 1, Number.MAX_SAFE_INTEGER);
  if (represented !== undefined) assertPeriod(represented, ranks);
  const { period, symmetry } = represented ?? { period: ranks, symmetry: "rotation" };
  const lanes = period * channels;
  assertReadable(source, lanes);
  const edges = new EdgeTable();
  const runs = new RunTable();
  const starts = new Int32Array(lanes + 1);
  const reader = new LengthReader(layout);
  for (let lane = 0; lane < lanes; lane++) {
    const channel = lane % channels;
    const rank = (lane - channel) / channels;
    const code = source.steps(rank, channel);
    // A peer that does not exist sends nothing, and accepts every message.
    const laneOf = (peer: number): number =>
      peer >= 0 && peer < ranks ? peer * channels + channel : none;
    for (let at = 0; at < code.length; at += stepWidth) {
      const from = code[at + column.from] as number;
      const to = code[at + column.to] as number;
      if (from === none && to === none) runs.pass();
      else {
        const elements = from === none ? reader.elements(code, at, rank) : 0;
        let receive = none;
        if (from !== none) {
          // The representative of the sender sends to a rank that this one represents.
          const turned = from >= 0 && from < ranks ? from - (from % period) : 0;
          const self = symmetry === "rotation" ? (rank - turned + ranks) % ranks : rank ^ turned;
          receive = edges.edge(laneOf(from - turned), laneOf(self));
        }
        runs.add(receive, to === none ? none : edges.edge(lane, laneOf(to)), elements);
      }
    }
    starts[lane + 1] = runs.endLane();
    if (runs.size > maxRuns) throw tooMuchTraffic(source, maxRuns, "different messages");
  }
  const { from: edgeFrom, to: edgeFar } = edges.ends();
  const edgeTo = edgeFar.map((lane) => (lane === none ? none : lane % lanes));
  return { ranks: period, channels, starts, ...runs.columns(), edgeFrom, edgeTo, edgeFar };
}

function assertPeriod(found: unknown, ranks: number): void {
  const { period, symmetry } = Object(found) as Partial<Period>;
  const isSymmetry = symmetry === "rotation" || symmetry === "hypercube";
  const is = isSymmetry && Number.isSafeInteger(period) && ranks % (period as number) === 0;
  const needed = `a symmetry, and a period that divides ${ranks} ranks`;
  assertArgument(is && (period as number) > 0, "trafficOf", "represented", found, needed);
}

/** Rejects lanes that are too long together before they are read: by the median of three, which no root distorts. */
function assertReadable(source: LaneSource, lanes: number): void {
  const lengths = [0, Math.floor(source.ranks / 2), source.ranks - 1].map(
    (rank) => source.steps(rank, 0).length / stepWidth,
  );
  const [, middle = 0] = lengths.sort((a, b) => a - b);
  if (middle * lanes > maxRead) throw tooMuchTraffic(source, maxRead, "steps");
}

/** Lengths of the chunks that steps read on their own rank. */
class LengthReader {
  readonly #layout: Layout | undefined;
  /** Prefix sums of the lengths of the table that was read last: consecutive ranks share one. */
  #sums = new Float64Array(1);
  #summed: Float64Array | undefined;

  constructor(layout: Layout | undefined) {
    this.#layout = layout;
  }

  /** Elements that the step at `at` reads; 0 for signals. */
  elements(code: Int32Array, at: number, rank: number): number {
    const read = code[at + column.read] as number;
    if (read === none || this.#layout === undefined) return 0;
    // Scratch has the lengths of the input, modulo its number of chunks.
    const side = bufferOf(read) === 1 ? this.#layout.out : this.#layout.in;
    const lengths = side[rank]?.lengths;
    if (lengths === undefined || lengths.length === 0) return 0;
    const span = code[at + column.span] as number;
    const first = chunkOf(read) % lengths.length;
    if (span === 1) return lengths[first] as number;
    const sums = this.#sumsOf(lengths);
    const rounds = Math.floor((first + span) / lengths.length);
    const end = (first + span) % lengths.length;
    return (
      rounds * (sums[lengths.length] as number) + (sums[end] as number) - (sums[first] as number)
    );
  }

  #sumsOf(lengths: Float64Array): Float64Array {
    if (this.#summed === lengths) return this.#sums;
    this.#summed = lengths;
    this.#sums = new Float64Array(lengths.length + 1);
    for (let chunk = 0; chunk < lengths.length; chunk++) {
      this.#sums[chunk + 1] = (this.#sums[chunk] as number) + (lengths[chunk] as number);
    }
    return this.#sums;
  }
}

/** Runs of all lanes, in growing columns. */
class RunTable {
  #receives = new Int32Array(64);
  #sends = new Int32Array(64);
  #elements = new Float64Array(64);
  #times = new Int32Array(64);
  #steps = new Float64Array(64);
  #step = 0;
  #size = 0;
  #messages = 0;
  /** True if the next step can extend the last run. */
  #open = false;

  get size(): number {
    return this.#size;
  }

  /** A step without a message. */
  pass(): void {
    this.#step++;
    this.#open = false;
  }

  /** A step that receives, sends or both. */
  add(receive: number, send: number, elements: number): void {
    const step = this.#step++;
    if (send !== none) this.#messages++;
    const last = this.#size - 1;
    if (
      this.#open &&
      this.#receives[last] === receive &&
      this.#sends[last] === send &&
      this.#elements[last] === elements
    ) {
      this.#times[last] = (this.#times[last] as number) + 1;
      return;
    }
    if (this.#size === this.#times.length) this.#grow();
    const at = this.#size++;
    this.#receives[at] = receive;
    this.#sends[at] = send;
    this.#elements[at] = elements;
    this.#times[at] = 1;
    this.#steps[at] = step;
    this.#open = true;
  }

  /** Ends a lane; returns the number of runs so far. */
  endLane(): number {
    this.#open = false;
    return this.#size;
  }

  columns(): Omit<Traffic, "ranks" | "channels" | "starts" | "edgeFrom" | "edgeTo" | "edgeFar"> {
    return {
      receives: this.#receives.slice(0, this.#size),
      sends: this.#sends.slice(0, this.#size),
      elements: this.#elements.slice(0, this.#size),
      times: this.#times.slice(0, this.#size),
      steps: this.#steps.slice(0, this.#size),
      messages: this.#messages,
    };
  }

  #grow(): void {
    this.#receives = grown(this.#receives, new Int32Array(2 * this.#size));
    this.#sends = grown(this.#sends, new Int32Array(2 * this.#size));
    this.#times = grown(this.#times, new Int32Array(2 * this.#size));
    this.#steps = grown(this.#steps, new Float64Array(2 * this.#size));
    this.#elements = grown(this.#elements, new Float64Array(2 * this.#size));
  }
}

function grown<T extends Int32Array | Float64Array>(old: T, longer: T): T {
  longer.set(old);
  return longer;
}

/** The description of a program, without its steps. */
type ProgramFrame = Pick<
  Program,
  "collective" | "algorithm" | "ranks" | "root" | "channels" | "chunksPerBlock" | "scratchChunks"
>;

/** A program, lane by lane. */
export interface LaneSource extends ProgramFrame {
  /** Steps of one lane, packed as in `Program.code`; valid until the next call. */
  steps(rank: number, channel: number): Int32Array;
}

/** The lanes of a finished program. */
export function lanesOfProgram(program: Program): LaneSource {
  assertProgram("lanesOfProgram", program);
  const { starts, code, channels } = program;
  return {
    ...frameOf(program),
    steps: (rank, channel) => {
      const lane = rank * channels + channel;
      return code.subarray(
        (starts[lane] as number) * stepWidth,
        (starts[lane + 1] as number) * stepWidth,
      );
    },
  };
}

/** The lanes that an algorithm writes for a number of ranks. */
export function writtenLanes(
  collective: SpecifiedCollective,
  algorithm: Algorithm,
  ranks: number,
  root = -1,
): LaneSource {
  assertAlgorithm("writtenLanes", collective, algorithm);
  const builder = builderOf(collective, algorithm, ranks, root);
  return {
    ...builder.frame,
    steps: (rank, channel) => builder.stepsOf(algorithm.write, rank, channel),
  };
}

function frameOf(program: Program): ProgramFrame {
  const { collective, algorithm, ranks, root, channels, chunksPerBlock, scratchChunks } = program;
  return { collective, algorithm, ranks, root, channels, chunksPerBlock, scratchChunks };
}

/** Numbers for the pairs of lanes that exchange messages: an open-addressing hash table in typed arrays. */
class EdgeTable {
  #from = new Int32Array(64);
  #to = new Int32Array(64);
  #size = 0;
  /** Edge number plus one; 0 where a slot is free. At least twice as many as edges. */
  #slots = new Int32Array(128);

  /** Number of the edge between two lanes; a new edge gets the next free number. */
  edge(from: number, to: number): number {
    const slots = this.#slots;
    const mask = slots.length - 1;
    let slot = hash(from, to) & mask;
    for (let found = slots[slot] as number; found !== 0; found = slots[slot] as number) {
      if (this.#from[found - 1] === from && this.#to[found - 1] === to) return found - 1;
      slot = (slot + 1) & mask;
    }
    if (this.#size === this.#from.length) {
      this.#grow();
      return this.edge(from, to);
    }
    this.#from[this.#size] = from;
    this.#to[this.#size] = to;
    slots[slot] = ++this.#size;
    return this.#size - 1;
  }

  /** Lanes at which each edge begins and ends. */
  ends(): { readonly from: Int32Array; readonly to: Int32Array } {
    return { from: this.#from.slice(0, this.#size), to: this.#to.slice(0, this.#size) };
  }

  #grow(): void {
    this.#from = doubled(this.#from);
    this.#to = doubled(this.#to);
    const slots = new Int32Array(2 * this.#slots.length);
    const mask = slots.length - 1;
    for (let edge = 0; edge < this.#size; edge++) {
      let slot = hash(this.#from[edge] ?? none, this.#to[edge] ?? none) & mask;
      while (slots[slot] !== 0) slot = (slot + 1) & mask;
      slots[slot] = edge + 1;
    }
    this.#slots = slots;
  }
}

function hash(from: number, to: number): number {
  const mixed = Math.imul(from ^ Math.imul(to, 0x9e3779b1), 0x85ebca6b);
  return (mixed ^ (mixed >>> 15)) >>> 0;
}

/** A copy of twice the capacity. */
export function doubled(array: Int32Array): Int32Array<ArrayBuffer> {
  const longer = new Int32Array(2 * array.length);
  longer.set(array);
  return longer;
}
