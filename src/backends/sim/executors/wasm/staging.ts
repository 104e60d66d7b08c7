/**
 * Calls in memory of the arena or outside of it: host arrays of callers, and buffers beyond the arena's size.
 *
 * Small buffers from outside are copied as a whole. Of large ones, each group's blocks are copied in, folded and copied out, so that the
 * kernel finds them in the cache. A block has a whole number of patterns of rounding by position.
 */

import { HostMemory } from "../../../../algorithms/host-memory.ts";
import type { ChunkTable, FusedFold, Operand, Place } from "../../../../algorithms/index.ts";
import { bytesOf } from "../../../../api/index.ts";
import { invariant } from "../../../../api/invariant.ts";
import { largest } from "../../../../api/largest.ts";
import type { BoundBuffer, BoundCall } from "../../executor.ts";
import { firstOf, keepsInputs, lengthOf } from "../cpu.ts";
import { WasmMemory } from "./arena.ts";
import type { Runner } from "./runner.ts";

/** Most bytes of all foreign buffers that are copied as a whole. */
const wholeBytes = 2 ** 18;
/** Bytes of one block, and of all blocks of a group together. */
const maxBlockBytes = 15_360;
const patternBytes = 960;
const blocksBytes = 2 ** 20;

/** A buffer in the arena for the duration of a call, and the foreign buffer that it replaces. */
interface Copied {
  readonly buffer: BoundBuffer;
  readonly address: number;
  readonly isOutput: boolean;
}

/** Runs a call: in place where all its buffers lie in the arena, otherwise on copies. */
export function runStaged(runner: Runner, call: BoundCall): void {
  if (!runWhole(runner, call)) runInBlocks(runner, call);
}

/** The address of a buffer in the arena; `undefined` when it lies elsewhere. */
function addressOf(runner: Runner, { memory, byteOffset }: BoundBuffer): number | undefined {
  if (!(memory instanceof WasmMemory) || memory.arena !== runner.arena) return undefined;
  return memory.address + byteOffset;
}

/** Runs the call on copies of its foreign buffers; false where these are too large, or the arena is full. */
function runWhole(runner: Runner, call: BoundCall): boolean {
  const { arena } = runner;
  const copies: Copied[] = [];
  const keep = keepsInputs(call);
  let bytes = 0;
  const place = (buffer: BoundBuffer | undefined, isOutput: boolean): number | undefined => {
    if (buffer === undefined) return 0;
    const own = addressOf(runner, buffer);
    if (own !== undefined && (isOutput || !keep)) return own;
    // An input that must be kept is always copied; a foreign buffer only while it is small.
    if (own === undefined) bytes += buffer.byteLength;
    const address = bytes <= wholeBytes ? arena.take(buffer.byteLength) : undefined;
    if (address !== undefined) copies.push({ buffer, address, isOutput });
    return address;
  };
  const inputs = call.inputs.map((buffer) => place(buffer, false));
  const outputs = call.outputs.map((buffer) => place(buffer, true));
  const fits = [...inputs, ...outputs].every((address) => address !== undefined);
  if (fits && copies.length === 0) {
    return runner.runAndKeep(call, inputs as number[], outputs as number[]);
  }
  if (fits) {
    // Outputs too: a call may leave parts of them unwritten.
    for (const { buffer, address } of copies) arena.bytes.set(bytesIn(buffer), address);
  }
  let done = false;
  try {
    done = fits && runner.run(call, inputs as number[], outputs as number[]);
  } finally {
    for (const { buffer, address, isOutput } of copies) {
      const { byteLength } = buffer;
      if (done && isOutput)
        bytesIn(buffer).set(arena.bytes.subarray(address, address + byteLength));
      arena.give(address, byteLength);
    }
  }
  return done;
}

/** The bytes of a buffer, wherever they lie, until the arena grows. */
function bytesIn({ memory, byteOffset, byteLength }: BoundBuffer): Uint8Array {
  if (memory instanceof WasmMemory) return memory.view(byteOffset, byteLength);
  invariant(memory instanceof HostMemory, "what wasm() did not allocate is host memory");
  return new Uint8Array(memory.buffer, byteOffset, byteLength);
}

function runInBlocks(runner: Runner, call: BoundCall): void {
  const slots = largest(call.plan.groups.map(slotsOf), 1);
  const fair = Math.floor(blocksBytes / slots / patternBytes) * patternBytes;
  const block = Math.max(patternBytes, Math.min(maxBlockBytes, fair));
  const kept = keepsInputs(call)
    ? call.inputs.map((buffer) => buffer && bytesIn(buffer).slice())
    : undefined;
  const staging = runner.arena.takeForCall(block * slots);
  if (staging === undefined) throw runner.outOfMemory();
  // Made for each use, since an arena may grow.
  const input = (rank: number): Uint8Array =>
    kept?.[rank] ?? bytesIn(call.inputs[rank] as BoundBuffer);
  try {
    for (const group of call.plan.groups) foldInBlocks(runner, call, input, group, staging, block);
  } finally {
    runner.arena.give(staging, block * slots);
  }
}

/** Blocks of a group: one for each operand that is an input, one for the result of each fold. */
function slotsOf(group: readonly FusedFold[]): number {
  return group.reduce((sum, { operands }) => sum + operands.length + 1, 0);
}

/** Runs one group as calls of its own: its blocks take the place of ranks. */
function foldInBlocks(
  runner: Runner,
  call: BoundCall,
  input: (rank: number) => Uint8Array,
  group: readonly FusedFold[],
  staging: number,
  block: number,
): void {
  const sources: Place[] = [];
  const inBlock = (operand: Operand): Operand => {
    if (operand.kind === "fold") return operand;
    sources.push(operand.place);
    return { kind: operand.kind, place: { rank: sources.length - 1, chunk: 0 } };
  };
  const folds = group.map((fold, rank) => ({
    ...fold,
    operands: fold.operands.map(inBlock),
    targets: [{ rank, chunk: 0 }],
  }));
  const table: ChunkTable = { offsets: new Float64Array(1), lengths: new Float64Array(1) };
  const own = <T>(ofRanks: readonly T[]): T[] =>
    ofRanks.length === 0 ? [] : sources.map(({ rank }) => ofRanks[rank] as T);
  const blockCall: BoundCall = {
    dtype: call.dtype,
    plan: { groups: [folds], inPlaceSafe: true, independent: true },
    layout: { in: sources.map(() => table), out: folds.map(() => table) },
    inputs: [],
    outputs: [],
    folds: own(call.folds),
    separate: call.separate && own(call.separate),
    inPlace: false,
  };
  const inputs = sources.map((_, slot) => staging + slot * block);
  const outputs = folds.map((_, fold) => staging + (sources.length + fold) * block);
  const { layout } = call;
  const length = lengthOf(call, group);
  const width = bytesOf(call.dtype);
  const elements = block / width;
  for (let at = 0; at < length; at += elements) {
    const count = Math.min(elements, length - at);
    table.lengths[0] = count;
    sources.forEach((place, slot) => {
      const begin = (firstOf(layout.in, place) + at) * width;
      const source = input(place.rank).subarray(begin, begin + count * width);
      runner.arena.bytes.set(source, inputs[slot] as number);
    });
    if (!runner.run(blockCall, inputs, outputs)) throw runner.outOfMemory();
    group.forEach(({ targets }, fold) => {
      const begin = outputs[fold] as number;
      const result = runner.arena.bytes.subarray(begin, begin + count * width);
      for (const target of targets) {
        const output = bytesIn(call.outputs[target.rank] as BoundBuffer);
        output.set(result, (firstOf(layout.out, target) + at) * width);
      }
    });
  }
}
