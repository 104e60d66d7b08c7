/** One call on one rank: its memory, its arguments, and what it leaves behind. */
import {
  type AllToAllvResult,
  bytesOf,
  type CommOp,
  type Communicator,
  type Data,
  type ReduceOp,
} from "../api/index.ts";
import { CallMemory, hostBytes } from "./call-memory.ts";
import { type Block, type Layout, layoutOf } from "./layout.ts";
import { payloadBytes } from "./payload.ts";
import type { ProgramCall, ProgramDataCall } from "./program.ts";

/** The data that one rank sent in a call, and that it holds afterwards. */
export interface RankOutcome {
  /** The elements sent, block after block; none where the rank sends nothing. */
  readonly sent: Uint8Array;
  /** The elements received, block after block; none where the rank receives nothing. */
  readonly bytes: Uint8Array;
  /** The value of an all-to-allv, unless it was captured. */
  readonly recvCounts?: readonly number[] | undefined;
  readonly recvOffsets?: readonly number[] | undefined;
}

const nothing = new Uint8Array(0);

/** A call that can be made, several times when it was captured. */
export class CallSite {
  readonly #comm: Communicator;
  readonly #call: ProgramCall;
  readonly #memory: CallMemory | undefined;
  readonly #layout: Layout | undefined;
  #sent = nothing;
  #result: CommOp | undefined;

  constructor(comm: Communicator, call: ProgramCall) {
    this.#comm = comm;
    this.#call = call;
    if (call.kind === "barrier") return;
    this.#layout = layoutOf(call, comm.size, comm.rank);
    this.#memory = new CallMemory(comm, call, this.#layout, isInPlace(call, this.#layout));
    this.refill(0);
  }

  /** New contents, for the next run of a captured call. */
  refill(round: number): void {
    const call = this.#call;
    if (call.kind === "barrier") return;
    const { size, rank } = this.#comm;
    const { dtype, payload } = call;
    const op = "op" in call ? call.op : undefined;
    const seed = call.seed + Math.imul(round, 0x51ed270b);
    const count = (this.#layout?.send?.blocks ?? []).reduce((sum, block) => sum + block.count, 0);
    this.#sent = payloadBytes({ dtype, payload, op, size, seed }, rank, count) as typeof nothing;
    this.#memory?.refill(this.#sent);
  }

  /** Makes the call; `undefined` where this rank has no part in it. */
  post(): CommOp | undefined {
    this.#result = this.record();
    return this.#result;
  }

  /** Makes the call to have it captured: it resolves to nothing. */
  record(): CommOp | undefined {
    return this.#post() as CommOp | undefined;
  }

  /** The contents after the call, once it is done. */
  async outcome(): Promise<RankOutcome> {
    const call = this.#call;
    const sent = this.#sent;
    if (this.#memory === undefined || call.kind === "barrier") return { sent, bytes: nothing };
    const result = await this.#result;
    const bytes = await this.#memory.received();
    if (call.kind !== "allToAllv" || result === undefined) return { sent, bytes };
    const { recv, recvCounts, recvOffsets } = result as AllToAllvResult<Data>;
    if (call.recv !== "allocated") return { sent, bytes, recvCounts, recvOffsets };
    const whole = await hostBytes(recv);
    if ("allocation" in recv) recv.dispose();
    const width = bytesOf(call.dtype);
    const blocks = recvCounts.map((count, from) => {
      const at = (recvOffsets[from] ?? 0) * width;
      return whole.subarray(at, at + count * width);
    });
    return { sent, bytes: joined(blocks), recvCounts, recvOffsets };
  }

  /** Gives the call's memory back, once every outcome was taken. */
  dispose(): void {
    this.#memory?.dispose();
  }

  #post(): CommOp<unknown> | undefined {
    const comm = this.#comm;
    const call = this.#call;
    const memory = this.#memory;
    const layout = this.#layout;
    if (call.kind === "barrier" || memory === undefined || layout === undefined) {
      return comm.barrier();
    }
    const { send = none, recv = none } = memory;
    const given = { send, recv };
    switch (call.kind) {
      case "allReduce":
        return comm.allReduce({ ...inPlaceOr(given, call), op: opOf(call, comm.rank) });
      case "reduce": {
        const { root } = call;
        const data = comm.rank === root ? inPlaceOr(given, call) : { send };
        return comm.reduce({ ...data, root, op: opOf(call, comm.rank) });
      }
      case "reduceScatter":
        return comm.reduceScatter({ ...given, op: opOf(call, comm.rank) });
      case "reduceScatterv": {
        const sendCounts = call.counts;
        return comm.reduceScatterv({ ...given, sendCounts, op: opOf(call, comm.rank) });
      }
      case "allToAll":
        return comm.allToAll(given);
      case "allGather":
        return comm.allGather(given);
      case "allGatherv":
        return comm.allGatherv({ ...given, recvCounts: call.counts, ...recvOffsets(call, layout) });
      case "sendRecv":
        return comm.sendRecv({
          ...given,
          to: call.to[comm.rank] ?? -1,
          from: call.to.indexOf(comm.rank),
        });
      case "pair":
        if (comm.rank === call.from) return comm.send({ send, peer: call.to });
        return comm.rank === call.to ? comm.recv({ recv, peer: call.from }) : undefined;
      default:
        return postRooted(comm, call, layout, given) ?? postAllToAllv(comm, call, layout, given);
    }
  }
}

const none = new Uint8Array(0) as Data;

interface Given {
  readonly send: Data;
  readonly recv: Data;
}

function postRooted(
  comm: Communicator,
  call: ProgramDataCall,
  layout: Layout,
  { send, recv }: Given,
): CommOp<unknown> | undefined {
  if (call.kind === "broadcast") {
    const { root } = call;
    if (comm.rank !== root) return comm.broadcast({ recv, root });
    if (call.placement.form !== "inPlace") return comm.broadcast({ send, recv, root });
    return call.seed % 2 === 0 ? comm.broadcast({ send, root }) : comm.broadcast({ recv, root });
  }
  if (call.kind === "gather") {
    const { root, counts, order } = call;
    if (comm.rank !== root) return comm.gather({ send, root });
    const where = order === "even" ? {} : { recvCounts: counts, ...recvOffsets(call, layout) };
    return comm.gather({ send, recv, root, ...where });
  }
  if (call.kind !== "scatter") return undefined;
  const { root, counts, order } = call;
  if (comm.rank !== root) return comm.scatter({ recv, root });
  const where = order === "even" ? {} : { sendCounts: counts, ...sendOffsets(call, layout) };
  return comm.scatter({ send, recv, root, ...where });
}

function postAllToAllv(
  comm: Communicator,
  call: ProgramDataCall,
  layout: Layout,
  { send, recv }: Given,
): CommOp<unknown> | undefined {
  if (call.kind !== "allToAllv") return undefined;
  const sendCounts = call.counts[comm.rank] ?? [];
  const recvCounts = call.counts.map((row) => row[comm.rank] ?? 0);
  return comm.allToAllv({
    send,
    sendCounts,
    ...sendOffsets(call, layout),
    ...(call.recv === "allocated" ? {} : { recv }),
    ...(call.give === "both" ? { recvCounts, ...recvOffsets(call, layout) } : {}),
  });
}

/** True when the call's `send` lies at the in-place position of `recv`. */
function isInPlace(call: ProgramDataCall, layout: Layout): boolean {
  return call.placement.form === "inPlace" && layout.inPlaceAt !== undefined;
}

/** In place by leaving `recv` out or, every other time, by passing the same range as both. */
function inPlaceOr(given: Given, call: ProgramDataCall): { send: Data; recv?: Data } {
  const leavesOut = call.placement.form === "inPlace" && call.seed % 2 === 0;
  return leavesOut ? { send: given.send } : given;
}

function opOf(
  call: { readonly op: ReduceOp; readonly scalars?: readonly (number | bigint)[] | undefined },
  rank: number,
): ReduceOp {
  const scalar = call.scalars?.[rank];
  return scalar === undefined ? call.op : { preMul: scalar };
}

function sendOffsets(call: ProgramDataCall, layout: Layout): { sendOffsets?: number[] } {
  return "order" in call && call.order === "reversed"
    ? { sendOffsets: offsets(layout.send?.blocks) }
    : {};
}

function recvOffsets(call: ProgramDataCall, layout: Layout): { recvOffsets?: number[] } {
  return "order" in call && call.order === "reversed"
    ? { recvOffsets: offsets(layout.recv?.blocks) }
    : {};
}

function offsets(blocks: readonly Block[] = []): number[] {
  return blocks.map(({ offset }) => offset);
}

function joined(blocks: readonly Uint8Array[]): Uint8Array {
  const all = new Uint8Array(blocks.reduce((sum, { length }) => sum + length, 0));
  let at = 0;
  for (const block of blocks) {
    all.set(block, at);
    at += block.length;
  }
  return all;
}
