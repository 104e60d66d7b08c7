/**
 * A program as data, and its runner: the same calls, in the same memory layout, on any backend.
 *
 * The runner computes no expectation. It fills buffers, makes the calls, and hands back raw bytes; beyond that it only
 * watches that no byte changed which the calls had no business with.
 */
import { type Backend, type Communicator, createWorld, type Data } from "twinccl";
import { widths } from "./element-bits.ts";
import {
  assertGuards,
  GuardedRange,
  guardBits,
  guardByte,
  hostBytes,
  type Placement,
} from "./guarded-range.ts";
import { type PayloadClass, payloadBits } from "./payload.ts";
import type { OracleDType, OracleOp } from "./rounding-oracle.ts";

interface DataCall {
  readonly dtype: OracleDType;
  readonly payload: PayloadClass;
  readonly seed: number;
  readonly placement: Placement;
}

/** An all-reduce; `scalars` gives each rank's own scalar of a pre-multiplied sum. */
export interface ReduceCall extends DataCall {
  readonly kind: "allReduce";
  readonly op: OracleOp;
  readonly count: number;
  readonly scalars?: readonly (number | bigint)[];
}

/** A broadcast. */
export interface BroadcastCall extends DataCall {
  readonly kind: "broadcast";
  readonly count: number;
  readonly root: number;
}

/** An all-to-all; `count` is per peer. */
export interface AllToAllCall extends DataCall {
  readonly kind: "allToAll";
  readonly count: number;
}

/** An all-to-allv. */
export interface AllToAllvCall extends DataCall {
  readonly kind: "allToAllv";
  /** Row i: what rank i sends to each rank. */
  readonly counts: readonly (readonly number[])[];
  /** `exchange`: `recvCounts` left out on all ranks. */
  readonly give: "exchange" | "both";
  readonly recv: "allocated" | "exact" | "longer";
  /** `packed`: offsets left out; `reversed`: blocks in descending order with a gap before each. */
  readonly order: "packed" | "reversed";
}

/** One call of all ranks. */
export type ProgramCall =
  | ReduceCall
  | BroadcastCall
  | AllToAllCall
  | AllToAllvCall
  | { readonly kind: "barrier" };

/** The same calls on every rank. */
export interface TestProgram {
  readonly size: number;
  /** `each`: await one call after the other; `together`: make all calls, then await them. */
  readonly issue: "each" | "together";
  readonly calls: readonly ProgramCall[];
}

/** What one rank holds after one call. */
export interface RankOutcome {
  /** The received elements; for an all-to-allv the blocks by sender. */
  readonly bytes: Uint8Array;
  readonly recvCounts?: readonly number[];
  readonly recvOffsets?: readonly number[];
}

/** By call, then by rank. */
export type Outcome = readonly (readonly RankOutcome[])[];

/** Runs a program in a world of its own. */
export async function runProgram(backend: Backend, program: TestProgram): Promise<Outcome> {
  const world = await createWorld({ backend, size: program.size });
  try {
    const byRank = await world.run((comm) => runRank(comm, program));
    return program.calls.map((_, call) => byRank.map((outcomes) => outcomes[call] as RankOutcome));
  } finally {
    await world.close();
  }
}

/** One rank's part. */
export async function runRank(comm: Communicator, program: TestProgram): Promise<RankOutcome[]> {
  const outcomes: RankOutcome[] = [];
  const open: Promise<RankOutcome>[] = [];
  for (const call of program.calls) {
    const made = makeCall(comm, call);
    if (program.issue === "each") outcomes.push(await made);
    else open.push(made);
  }
  return program.issue === "each" ? outcomes : Promise.all(open);
}

/** Offsets of blocks: one after another, or last one first with a gap before each. */
export function blockOffsets(
  counts: readonly number[],
  order: "packed" | "reversed",
): { readonly offsets: number[]; readonly length: number } {
  const offsets = new Array<number>(counts.length).fill(0);
  const places = counts.map((_, place) => place);
  if (order === "reversed") places.reverse();
  let at = 0;
  for (const place of places) {
    if (order === "reversed") at += 1;
    offsets[place] = at;
    at += counts[place] as number;
  }
  return { offsets, length: at };
}

/** The elements a rank sends in a call: of a broadcast, the root's. */
export function sentBits(call: ProgramCall, ranks: number, rank: number): bigint[] {
  if (call.kind === "barrier") return [];
  const op = call.kind === "allReduce" ? call.op : "copy";
  const { dtype, payload, seed } = call;
  return payloadBits({ dtype, payload, seed, ranks, op }, rank, sentCount(call, ranks, rank));
}

function sentCount(call: ProgramCall, ranks: number, rank: number): number {
  if (call.kind === "barrier") return 0;
  if (call.kind === "allToAll") return call.count * ranks;
  if (call.kind === "allToAllv") return sum(call.counts[rank] ?? []);
  return call.count;
}

async function makeCall(comm: Communicator, call: ProgramCall): Promise<RankOutcome> {
  switch (call.kind) {
    case "barrier":
      await comm.barrier();
      return { bytes: new Uint8Array(0) };
    case "allReduce":
      return reduceOutcome(comm, call);
    case "broadcast":
      return broadcastOutcome(comm, call);
    case "allToAll":
      return allToAllOutcome(comm, call);
    case "allToAllv":
      return allToAllvOutcome(comm, call);
  }
}

async function reduceOutcome(comm: Communicator, call: ReduceCall): Promise<RankOutcome> {
  const { send, recv } = fields(comm, call, sentBits(call, comm.size, comm.rank));
  const scalar = call.scalars?.[comm.rank];
  const op = scalar === undefined ? call.op : { preMul: scalar };
  const { form } = call.placement;
  if (form === "inPlace") await comm.allReduce({ send: send.data, op });
  else await comm.allReduce({ send: send.data, recv: recv.data, op });
  return finish(send, recv);
}

async function broadcastOutcome(comm: Communicator, call: BroadcastCall): Promise<RankOutcome> {
  const { root, count } = call;
  if (comm.rank !== root) {
    const recv = new GuardedRange(comm, call, guardBits(count));
    await comm.broadcast({ recv: recv.data, root });
    return { bytes: await recv.bytes() };
  }
  const { send, recv } = fields(comm, call, sentBits(call, comm.size, root));
  const { form, lead } = call.placement;
  if (form === "inPlace" && lead % 2 === 0) await comm.broadcast({ send: send.data, root });
  else if (form === "inPlace") await comm.broadcast({ recv: send.data, root });
  else await comm.broadcast({ send: send.data, recv: recv.data, root });
  return finish(send, recv);
}

async function allToAllOutcome(comm: Communicator, call: AllToAllCall): Promise<RankOutcome> {
  const { send, recv } = fields(comm, call, sentBits(call, comm.size, comm.rank));
  await comm.allToAll({ send: send.data, recv: recv.data });
  return finish(send, recv);
}

async function allToAllvOutcome(comm: Communicator, call: AllToAllvCall): Promise<RankOutcome> {
  const { rank, size } = comm;
  const { order, counts, give } = call;
  const sendCounts = counts[rank] ?? [];
  const recvCounts = counts.map((row) => row[rank] ?? 0);
  const out = blockOffsets(sendCounts, order);
  const send = new GuardedRange(comm, call, placed(sentBits(call, size, rank), sendCounts, out));
  const back = blockOffsets(recvCounts, give === "both" ? order : "packed");
  const room = back.length + (call.recv === "longer" ? 3 : 0);
  const recv =
    call.recv === "allocated" ? undefined : new GuardedRange(comm, call, guardBits(room));
  const result = await comm.allToAllv({
    send: send.data,
    sendCounts,
    ...(order === "packed" ? {} : { sendOffsets: out.offsets }),
    ...(recv === undefined ? {} : { recv: recv.data }),
    ...(give === "exchange" ? {} : { recvCounts }),
    ...(give === "both" && order === "reversed" ? { recvOffsets: back.offsets } : {}),
  });
  await send.assertUntouched();
  const whole = recv === undefined ? await hostBytes(result.recv as Data) : await recv.bytes();
  const width = widths[call.dtype];
  const blocks = result.recvCounts.map((count, from) => {
    const at = (result.recvOffsets[from] ?? 0) * width;
    return whole.subarray(at, at + count * width);
  });
  const rest = Uint8Array.from(whole);
  for (const block of blocks)
    rest.fill(guardByte, block.byteOffset, block.byteOffset + block.length);
  if (recv !== undefined) assertGuards(rest, "between and after the received blocks");
  return {
    bytes: Buffer.concat(blocks),
    recvCounts: result.recvCounts,
    recvOffsets: result.recvOffsets,
  };
}

/** Blocks at their places, guards between them. */
function placed(
  bits: readonly bigint[],
  counts: readonly number[],
  { offsets, length }: { readonly offsets: readonly number[]; readonly length: number },
): bigint[] {
  const all = guardBits(length);
  let at = 0;
  counts.forEach((count, block) => {
    for (let i = 0; i < count; i++) all[(offsets[block] as number) + i] = bits[at + i] as bigint;
    at += count;
  });
  return all;
}

function fields(
  comm: Communicator,
  call: DataCall,
  bits: readonly bigint[],
): { readonly send: GuardedRange; readonly recv: GuardedRange } {
  const send = new GuardedRange(comm, call, bits);
  const { form } = call.placement;
  if (form === "inPlace" || form === "same") return { send, recv: send };
  const empty = guardBits(bits.length);
  const recv = new GuardedRange(comm, call, empty, form === "oneBlock" ? send : undefined);
  return { send, recv };
}

async function finish(send: GuardedRange, recv: GuardedRange): Promise<RankOutcome> {
  if (send !== recv) await send.assertUntouched(recv);
  return { bytes: await recv.bytes() };
}

function sum(counts: readonly number[]): number {
  return counts.reduce((total, count) => total + count, 0);
}
