/**
 * The program of a collective: the sends, receives, folds and copies of every rank, as packed integers.
 *
 * A program addresses *chunks*, numbered per buffer. It has neither counts nor bytes, so one program serves every count; a
 * `Layout` maps chunks to elements. Each rank has one lane per channel; the steps of a lane run in order, lanes run side by
 * side. Messages between two lanes of the same channel arrive in the order sent. Every receive names its sender, without
 * wildcards, so the data cannot depend on timing.
 *
 * One kind of step covers all of NCCL's primitives. It takes a value (from a peer, from a buffer, or the fold of both), then
 * stores it in a buffer, sends it to a peer, or both.
 */
import type { SpecifiedCollective } from "../api/collectives/index.ts";
import { invalid, textOf } from "../api/option-kinds.ts";
import { assertArgument, assertLanes, hasFields } from "./arguments.ts";

/** Buffers a step can name. `in` is the rank's untouched input, `scratch` the program's own. */
const bufferNames = ["in", "out", "scratch"] as const;

/** A chunk of a buffer in one integer: chunk · 4 + buffer; -1 for none. */
export type Ref = number;

/** No chunk, no peer. */
export const none = -1;

/** Integers per step in `Program.code`. */
export const stepWidth = 7;

/** Column of each field of a step. */
export const column = { from: 0, to: 1, read: 2, other: 3, write: 4, span: 5, final: 6 } as const;

/** A program for a number of ranks. */
export interface Program {
  readonly collective: SpecifiedCollective;
  readonly algorithm: string;
  readonly ranks: number;
  /** -1 where the collective has none. */
  readonly root: number;
  readonly channels: number;
  /** Chunks that each block of `in` and `out` is cut into. */
  readonly chunksPerBlock: number;
  /** Chunks of each rank's scratch. */
  readonly scratchChunks: number;
  /** Steps of all lanes, `stepWidth` integers each. */
  readonly code: Int32Array;
  /** Lane l = rank · channels + channel holds steps `starts[l]` up to `starts[l + 1]`. */
  readonly starts: Int32Array;
}

/** One step, unpacked. */
export interface Step {
  /** Peer that a value is received from. */
  readonly from: number;
  /** Peer that the value is sent to. */
  readonly to: number;
  /** Chunk that is read: alone, or as the local operand of a fold with the received value. */
  readonly read: Ref;
  /** Second local operand of a fold without a receive. */
  readonly other: Ref;
  readonly write: Ref;
  /** Number of consecutive chunks that the step covers; 0 for a signal. */
  readonly span: number;
  /** The value is complete: an integer average is divided here. */
  readonly final: boolean;
}

/** Needs a program. */
export function assertProgram(subject: string, found: unknown): void {
  const { code, starts } = Object(found) as Partial<Program>;
  const is = ArrayBuffer.isView(code) && ArrayBuffer.isView(starts);
  assertArgument(is, subject, "program", found, "a program, as buildProgram gives it");
  assertLanes(subject, "program", found as Program);
}

/**
 * Unpacks step number `index` of a program.
 *
 * @throws InvalidArgumentError when there is no such step.
 */
export function stepAt(program: Program, index: number): Step {
  assertProgram("stepAt", program);
  assertIndex("stepAt", "index", index, stepCount(program));
  const { code } = program;
  const at = index * stepWidth;
  return {
    from: code[at + column.from] as number,
    to: code[at + column.to] as number,
    read: code[at + column.read] as number,
    other: code[at + column.other] as number,
    write: code[at + column.write] as number,
    span: code[at + column.span] as number,
    final: code[at + column.final] === 1,
  };
}

/** Number of steps of all lanes together. */
export function stepCount(program: Program): number {
  assertProgram("stepCount", program);
  return program.code.length / stepWidth;
}

/** Chunk numbers below it pack into 32 bits with their buffer. */
export const maxChunks = 2 ** 29;

/** Chunk of the rank's input. */
export function input(chunk: number): Ref {
  assertIndex("input", "chunk", chunk, maxChunks);
  return chunk * 4;
}

/** Chunk of the rank's output. */
export function output(chunk: number): Ref {
  assertIndex("output", "chunk", chunk, maxChunks);
  return chunk * 4 + 1;
}

/** Chunk of the program's own memory on the rank; as long as input chunk `chunk` modulo the number of input chunks. */
export function scratch(chunk: number): Ref {
  assertIndex("scratch", "chunk", chunk, maxChunks);
  return chunk * 4 + 2;
}

/** Buffer of a reference: 0 `in`, 1 `out`, 2 `scratch`. */
export function bufferOf(ref: Ref): number {
  return ref & 3;
}

/** Chunk of a reference. */
export function chunkOf(ref: Ref): number {
  return ref >> 2;
}

/** `in[3]`, or `in[3..5]` for a span. */
export function refText(ref: Ref, span = 1): string {
  const chunk = chunkOf(ref);
  const range = span === 1 ? `${chunk}` : `${chunk}..${chunk + span - 1}`;
  return `${bufferNames[bufferOf(ref)]}[${range}]`;
}

const stepFields = {
  from: "number",
  to: "number",
  read: "number",
  other: "number",
  write: "number",
  span: "number",
} as const;

/** A step in words, such as `receive from 3, fold with in[2], send to 1`. */
export function stepText(step: Step): string {
  assertArgument(
    hasFields(step, stepFields),
    "stepText",
    "step",
    step,
    "a step, as stepAt gives it",
  );
  const { from, to, read, other, write, span, final } = step;
  const parts: string[] = [];
  if (from !== none) parts.push(span === 0 ? `wait for ${from}` : `receive from ${from}`);
  if (read !== none) parts.push(`${from === none ? "take" : "fold with"} ${refText(read, span)}`);
  if (other !== none) parts.push(`fold with ${refText(other, span)}`);
  if (final) parts.push("complete");
  if (write !== none) parts.push(`store in ${refText(write, span)}`);
  if (to !== none) parts.push(span === 0 ? `signal ${to}` : `send to ${to}`);
  return parts.join(", ");
}

/**
 * Throws, naming the helper and the field, unless `value` is an integer from 0 up to `end`, exclusive. Packed integers
 * would silently truncate a fraction.
 */
export function assertIndex(helper: string, field: string, value: unknown, end?: number): void {
  const isIndex = Number.isSafeInteger(value) && (value as number) >= 0;
  if (isIndex && (end === undefined || (value as number) < end)) return;
  const needed = end === undefined ? "an integer of at least 0" : `an integer in 0..${end - 1}`;
  throw invalid(helper, field, textOf(value), needed);
}
