/** One call on one rank: its memory, its arguments, and its results. */
import { postCall } from "../api/collectives/call-layout.ts";
import {
  type AllToAllvResult,
  bytesOf,
  type CommOp,
  type Communicator,
  type Data,
  type ReduceOp,
} from "../api/index.ts";
import {
  CallMemory,
  type CollectiveDataCall,
  hasOffsets,
  hostBytes,
  type Layout,
  layoutOf,
  offsetsOf,
} from "./call-memory.ts";
import { payloadBytes } from "./payload.ts";
import type { ProgramCall, ProgramDataCall } from "./program.ts";

/** One rank's sent data of a call, and its data afterwards. */
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

/** One rank's part of a call, made once, or several times if captured. */
export class CallExecution {
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

  /** Makes the call; `undefined` if this rank takes no part in it. */
  post(): CommOp | undefined {
    this.#result = this.record();
    return this.#result;
  }

  /** Makes the call inside of a capture, where it resolves to undefined. */
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
    if ("toHost" in recv) recv.dispose();
    const width = bytesOf(call.dtype);
    const blocks = recvCounts.map((count, from) => {
      const at = (recvOffsets[from] ?? 0) * width;
      return whole.subarray(at, at + count * width);
    });
    return { sent, bytes: joined(blocks), recvCounts, recvOffsets };
  }

  /** Frees the call's memory, after every outcome was read. */
  dispose(): void {
    this.#memory?.dispose();
  }

  #post(): CommOp<unknown> | undefined {
    const comm = this.#comm;
    const call = this.#call;
    const { send, recv } = this.#memory ?? {};
    if (call.kind === "barrier") return comm.barrier();
    if (call.kind === "pair") {
      if (send !== undefined) return comm.send({ send, peer: call.to });
      return recv && comm.recv({ recv, peer: call.from });
    }
    if (call.kind === "sendRecv") {
      const peers = { to: call.to[comm.rank] ?? -1, from: call.to.indexOf(comm.rank) };
      return comm.sendRecv({ send: send as Data, recv: recv as Data, ...peers });
    }
    return postCall(comm, call.kind, {
      ...buffersOf(call, { send, recv }),
      ...countsOf(call, comm.rank),
      ...(hasOffsets(call, "send") && { sendOffsets: offsetsOf(this.#layout?.send) }),
      ...(hasOffsets(call, "recv") && { recvOffsets: offsetsOf(this.#layout?.recv) }),
      op: "op" in call ? opOf(call, comm.rank) : undefined,
      root: "root" in call ? call.root : undefined,
    });
  }
}

/** The passed buffers. In place, every other call omits one of them if the call allows it. */
function buffersOf(
  call: CollectiveDataCall,
  { send, recv }: Pick<CallMemory, "send" | "recv">,
): Partial<Pick<CallMemory, "send" | "recv">> {
  if (call.kind === "allToAllv" && call.recv === "allocated") return { send };
  const mayLeaveOut =
    call.kind === "allReduce" || call.kind === "reduce" || call.kind === "broadcast";
  if (!mayLeaveOut || call.placement.form !== "inPlace") return { send, recv };
  if (send === undefined || recv === undefined) return { send, recv };
  if (call.seed % 2 === 0) return { send };
  return call.kind === "broadcast" ? { recv } : { send, recv };
}

/** The counts that a rank's call gives. */
function countsOf(
  call: CollectiveDataCall,
  rank: number,
): { readonly sendCounts?: readonly number[]; readonly recvCounts?: readonly number[] } {
  if (!("counts" in call)) return {};
  if (call.kind !== "allToAllv") {
    const isEven = "order" in call && call.order === "even";
    return isEven ? {} : { sendCounts: call.counts, recvCounts: call.counts };
  }
  const sendCounts = call.counts[rank] ?? [];
  if (call.give !== "both") return { sendCounts };
  return { sendCounts, recvCounts: call.counts.map((row) => row[rank] ?? 0) };
}

/** True when the call's `send` lies at the in-place position of `recv`. */
function isInPlace(call: ProgramDataCall, layout: Layout): boolean {
  return call.placement.form === "inPlace" && layout.inPlaceAt !== undefined;
}

function opOf(
  call: { readonly op: ReduceOp; readonly scalars?: readonly (number | bigint)[] | undefined },
  rank: number,
): ReduceOp {
  const scalar = call.scalars?.[rank];
  return scalar === undefined ? call.op : { preMul: scalar };
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
