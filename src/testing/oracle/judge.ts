/**
 * The required contents of every rank after every call of a whole program: a second reading of splits and collectives.
 *
 * Plain loops over the program's data and the bytes that ranks sent. The oracles of this folder import no value from outside it,
 * so that a fault of the library cannot be in them too. Reductions are for exact contents, where the order of folding cannot
 * matter, and contents that are not exact are reported as such; with an oracle for folds they are for any bits.
 */

import type { ReduceOp } from "../../api/index.ts";
import type { RankOutcome } from "../call-execution.ts";
import type { Program, ProgramCall, ProgramFoldingCall } from "../program.ts";
import type { CallOutcome, ProgramRun } from "../run-program.ts";
import { bitsFromBytes, comparable, firstDifference, widths } from "./elements.ts";
import { naiveReduce } from "./exact.ts";

const noBytes = new Uint8Array(0);

/** The required contents of a rank after a call. */
interface ExpectedResult {
  readonly bytes: Uint8Array;
  readonly recvCounts?: readonly number[];
  readonly recvOffsets?: readonly number[];
}

/** Bytes of a call's folded blocks, one after another; `ops` and `sent` by rank. */
export type FoldOracle = (
  call: ProgramFoldingCall,
  ops: readonly ReduceOp[],
  sent: readonly (readonly bigint[])[],
) => Uint8Array;

const naiveFold: FoldOracle = ({ dtype }, ops, sent) => naiveReduce(dtype, ops, sent);

/**
 * Judges a run of a program with exact contents; with `fold` it judges any contents.
 *
 * @throws Error naming the first call, rank and element that differ from what the program requires.
 */
export function judgeRun(program: Program, run: ProgramRun, fold: FoldOracle = naiveFold): void {
  const comms = naiveCommunicators(program);
  const planned = plannedCalls(program);
  if (planned.length !== run.outcomes.length) {
    throw new Error(`${run.outcomes.length} outcomes of ${planned.length} calls`);
  }
  for (const [at, { call, comm, captured }] of planned.entries()) {
    const { ranks, label } = run.outcomes[at] as CallOutcome;
    const members = comms[comm] as number[];
    const where = `call ${label} (${call.kind}${"dtype" in call ? ` ${call.dtype}` : ""})`;
    for (let rank = 0; rank < Math.max(program.size, ranks.length); rank++) {
      if ((ranks[rank] === undefined) === members.includes(rank)) {
        throw new Error(`${where}: world rank ${rank} took part wrongly`);
      }
    }
    const found = members.map((member) => ranks[member] as RankOutcome);
    const sent = found.map((outcome) => outcome.sent);
    assertSentLengths(where, call, sent);
    for (const [rank, needed] of expectedResults(call, sent, fold).entries()) {
      const fault = faultOf(call, captured, found[rank] as RankOutcome, needed, members.length);
      if (fault !== undefined) throw new Error(`${where}, rank ${rank}: ${fault}`);
    }
  }
}

/** The first difference of a rank's data; `undefined` where it is right. */
function faultOf(
  call: ProgramCall,
  captured: boolean,
  found: RankOutcome,
  needed: ExpectedResult,
  ranks: number,
): string | undefined {
  for (const field of ["recvCounts", "recvOffsets"] as const) {
    // A captured call resolves to nothing.
    const value = captured ? undefined : needed[field];
    if (String(found[field]) !== String(value)) return `${field} ${found[field]}, not ${value}`;
  }
  if (call.kind === "barrier") return undefined;
  // The zero that a minimum finds depends on its order.
  const extreme = "op" in call && (call.op === "min" || call.op === "max");
  const view = (bytes: Uint8Array): Uint8Array =>
    extreme && ranks > 1 ? comparable(call.dtype, "min", bytes) : bytes;
  return firstDifference(call.dtype, view(found.bytes), view(needed.bytes));
}

/** World ranks by communicator: a color is a communicator, by ascending color, kept or turned round. */
function naiveCommunicators(program: Program): number[][] {
  const comms: number[][] = [Array.from({ length: program.size }, (_, rank) => rank)];

  for (const split of program.splits) {
    const colors = new Set(split.colors.filter((color) => color !== null));
    for (const color of [...colors].sort((a, b) => a - b)) {
      const group: number[] = [];
      for (const [rank, member] of (comms[split.parent] as number[]).entries()) {
        if (split.colors[rank] !== color) continue;
        if (split.reversed) group.unshift(member);
        else group.push(member);
      }
      comms.push(group);
    }
  }
  return comms;
}

interface Planned {
  readonly comm: number;
  readonly call: ProgramCall;
  readonly captured: boolean;
}

function plannedCalls(program: Program): Planned[] {
  const planned: Planned[] = [];
  for (const step of program.steps) {
    if (step.kind === "call") planned.push({ comm: step.comm, call: step.call, captured: false });
    else {
      for (let time = 0; time < (step.kind === "replay" ? step.times : 1); time++) {
        for (const call of step.calls) {
          planned.push({ comm: step.comm, call, captured: step.kind === "replay" });
        }
      }
    }
  }
  return planned;
}

/** Bytes of `count` elements after `start` ones. */
function elementsAt(
  call: ProgramCall,
  bytes: Uint8Array,
  start: number,
  count: number,
): Uint8Array {
  const width = "dtype" in call ? widths[call.dtype] : 1;
  return bytes.subarray(start * width, (start + count) * width);
}

/** Bytes one after another. */
function concatenated(parts: readonly Uint8Array[]): Uint8Array {
  const all = new Uint8Array(parts.reduce((sum, { length }) => sum + length, 0));
  let at = 0;
  for (const part of parts) {
    all.set(part, at);
    at += part.length;
  }
  return all;
}

/** Each rank's block of the same bytes. */
function blocksByRank(
  call: ProgramCall,
  bytes: Uint8Array,
  counts: readonly number[],
): ExpectedResult[] {
  let start = 0;
  return counts.map((count) => {
    const block = elementsAt(call, bytes, start, count);
    start += count;
    return { bytes: block };
  });
}

function expectedResults(
  call: ProgramCall,
  sent: readonly Uint8Array[],
  fold: FoldOracle,
): ExpectedResult[] {
  const size = sent.length;
  const everywhere = (bytes: Uint8Array): ExpectedResult[] => sent.map(() => ({ bytes }));
  const onlyAt = (root: number, bytes: Uint8Array): ExpectedResult[] =>
    sent.map((_, rank) => ({ bytes: rank === root ? bytes : noBytes }));
  switch (call.kind) {
    case "barrier":
      return everywhere(noBytes);
    case "allReduce":
      return everywhere(folded(call, sent, fold));
    case "reduce":
      return onlyAt(call.root, folded(call, sent, fold));
    case "reduceScatter":
      return blocksByRank(call, folded(call, sent, fold), new Array<number>(size).fill(call.count));
    case "reduceScatterv":
      return blocksByRank(call, folded(call, sent, fold), call.counts);
    case "broadcast":
      return everywhere(sent[call.root] as Uint8Array);
    case "allGather":
    case "allGatherv":
      return everywhere(concatenated(sent));
    case "gather":
      return onlyAt(call.root, concatenated(sent));
    case "scatter":
      return blocksByRank(call, sent[call.root] as Uint8Array, call.counts);
    case "allToAll":
    case "allToAllv":
      return exchanged(call, sent);
    case "sendRecv": {
      const needed: ExpectedResult[] = sent.map(() => ({ bytes: noBytes }));
      for (const [from, to] of call.to.entries()) needed[to] = { bytes: sent[from] as Uint8Array };
      return needed;
    }
    case "pair":
      return onlyAt(call.to, sent[call.from] as Uint8Array);
  }
}

function folded(
  call: ProgramFoldingCall,
  sent: readonly Uint8Array[],
  fold: FoldOracle,
): Uint8Array {
  const ops = sent.map((_, rank): ReduceOp => {
    const scalar = call.scalars?.[rank];
    return scalar === undefined ? call.op : { preMul: scalar };
  });
  return fold(
    call,
    ops,
    sent.map((bytes) => bitsFromBytes(call.dtype, bytes)),
  );
}

function exchanged(
  call: Extract<ProgramCall, { readonly kind: "allToAll" | "allToAllv" }>,
  sent: readonly Uint8Array[],
): ExpectedResult[] {
  const counts =
    call.kind === "allToAllv" ? call.counts : sent.map(() => sent.map(() => call.count));
  const cell = (from: number, to: number): number => counts[from]?.[to] as number;
  return sent.map((_, to) => {
    const blocks = sent.map((bytes, from) => {
      let start = 0;
      for (let before = 0; before < to; before++) start += cell(from, before);
      return elementsAt(call, bytes, start, cell(from, to));
    });
    const bytes = concatenated(blocks);
    if (call.kind === "allToAll") return { bytes };
    const recvCounts = sent.map((_, from) => cell(from, to));
    const reversed = call.give === "both" && call.order === "reversed";
    return { bytes, recvCounts, recvOffsets: naiveOffsets(recvCounts, reversed) };
  });
}

/** Blocks one after another; reversed: the last one first, each behind a gap of one. */
function naiveOffsets(counts: readonly number[], reversed: boolean): number[] {
  return counts.map((_, block) => {
    let at = reversed ? 1 : 0;
    for (let other = 0; other < counts.length; other++) {
      if (reversed ? other > block : other < block) {
        at += (counts[other] as number) + (reversed ? 1 : 0);
      }
    }
    return at;
  });
}

/** A runner that sends nothing would be right about everything. */
function assertSentLengths(where: string, call: ProgramCall, sent: readonly Uint8Array[]): void {
  const sum = (counts: readonly number[]): number => counts.reduce((a, b) => a + b, 0);
  const size = sent.length;
  for (const [rank, bytes] of sent.entries()) {
    let count = 0;
    if (call.kind === "scatter") count = rank === call.root ? sum(call.counts) : 0;
    else if (call.kind === "gather" || call.kind === "allGatherv")
      count = call.counts[rank] as number;
    else if (call.kind === "reduceScatterv") count = sum(call.counts);
    else if (call.kind === "allToAllv") count = sum(call.counts[rank] ?? []);
    else if (call.kind === "pair") count = rank === call.from ? call.count : 0;
    else if (call.kind === "broadcast") count = rank === call.root ? call.count : 0;
    else if (call.kind === "reduceScatter" || call.kind === "allToAll") count = size * call.count;
    else if ("count" in call) count = call.count;
    const needed = "dtype" in call ? count * widths[call.dtype] : 0;
    if (bytes.length === needed) continue;
    throw new Error(`${where}, rank ${rank}: sent ${bytes.length} bytes, not ${needed}`);
  }
}
