/**
 * The forms of a call on its way to the session: prepared, when its arguments are checked; posted, with an operation and a
 * deadline; matched, when the calls of all ranks were compared and are equal.
 */
import type { CommInfo, PlanCache, RankCall, RepeatedCall } from "../backend.ts";
import {
  allocationOf,
  type DeviceBuffer,
  disposalsSoFar,
  isReleased,
  LastUse,
  memoryOf,
} from "../buffer.ts";
import type { DType } from "../dtype.ts";
import { assignOp, type Operation } from "../op.ts";
import type { ReduceOp } from "../reduce-op.ts";
import type { CollectiveName } from "../specification.ts";

/** A field of a signature: its name and this rank's value. Fields are compared in order, and the first that differs is reported. */
export type SignatureField = readonly [name: string, value: string | number | undefined];

/** The fields that a `RankCall` gets from the arguments; others are `undefined` there, and -1 for the root. */
export interface CallFields {
  readonly dtype?: DType;
  readonly op?: ReduceOp;
  readonly count: number;
  readonly root?: number;
  readonly send?: DeviceBuffer | undefined;
  readonly recv?: DeviceBuffer | undefined;
  readonly blocks?: PreparedBlocks | undefined;
  readonly split?: RankCall["split"];
  readonly recorded?: RankCall["recorded"];
  readonly graph?: RankCall["graph"];
}

/** Blocks of a v-form. */
export type PreparedBlocks = Partial<
  Pick<RankCall, "sendCounts" | "sendOffsets" | "recvCounts" | "recvOffsets">
>;

/** A call, what must be equal on all ranks, and what the caller gets. */
export interface Prepared<T> {
  readonly call: CallFields;
  readonly signature: readonly SignatureField[];
  /** The result for the caller, unless `toResult` makes it of the call. */
  readonly result?: T;
  readonly toResult?: (call: RankCall) => T;
  /** The ledger's finding when this was last the first rank's call. */
  matched?: MatchedCall;
  /** The call as it was made before: where time is real, it is the same again. */
  rankCall?: RankCall;
}

/** The result of a call that is done, for its caller. */
export function resultOf({ result, toResult }: Prepared<unknown>, call: RankCall): unknown {
  return toResult === undefined ? result : toResult(call);
}

/** The call of a rank, at a virtual time. */
export function rankCall(
  collective: CollectiveName,
  rank: number,
  prepared: CallFields,
  nowPs: number,
): RankCall {
  const { dtype, op, count, root = -1, send, recv, blocks, split, recorded, graph } = prepared;
  const call: RankCall = {
    rank,
    collective,
    dtype,
    op,
    count,
    root,
    send,
    recv,
    sendCounts: blocks?.sendCounts,
    sendOffsets: blocks?.sendOffsets,
    recvCounts: blocks?.recvCounts,
    recvOffsets: blocks?.recvOffsets,
    split,
    recorded,
    graph,
    postedAtPs: nowPs,
    // Begins as no integer: V8 stores times above 2^31 in another form, and would convert each call at its end.
    finishedAtPs: Number.NaN,
  };
  call.finishedAtPs = nowPs;
  return call;
}

/** True unless the counts or the buffer that an all-to-allv receives are still to be exchanged and allocated. */
export function hasReceiveCounts({ collective, recv, recvCounts }: RankCall): boolean {
  return collective !== "allToAllv" || (recv !== undefined && recvCounts !== undefined);
}

/** Bytes that a call sends; those of its calls for a replay, none for a capture. */
export function bytesSent(
  collective: CollectiveName,
  { send, recorded }: Pick<CallFields, "send" | "recorded">,
): number {
  if (collective === "replay") return recorded?.sendBytes ?? 0;
  return send?.byteLength ?? 0;
}

/** A checked collective call with its result; `lengths` must be equal on all ranks, and are its count where they are no others. */
export function preparedCall<T>(
  collective: CollectiveName,
  call: CallFields,
  result: T,
  lengths: readonly SignatureField[] = [["count", call.count]],
): Prepared<T> {
  const { root, dtype, op } = call;
  const fields: SignatureField[] = [["collective", collective]];
  if (root !== undefined) fields.push(["root", root]);
  fields.push(["dtype", dtype]);
  // The scalar of a pre-multiplied sum may differ.
  if (op !== undefined) fields.push(["op", typeof op === "string" ? op : "preMul"]);
  return { call, signature: fields.concat(lengths), result };
}

/** A send or a receive of a call. Its result is that of the call, unless the call has two halves. */
export interface PreparedHalf extends Prepared<unknown> {
  readonly direction: "send" | "recv";
  readonly peer: number;
}

/** A point-to-point call, counted as its send where it has one, with its sends and receives. */
export interface PreparedTransfer<T> extends Prepared<T> {
  readonly transfers: readonly PreparedHalf[];
}

/** From now until it settles, the operation has the call's memory; reads of it wait. */
export function markInUse(op: Operation, { send, recv }: Pick<CallFields, "send" | "recv">): void {
  // A refused call was not made, and has no number.
  if (op.status === "failed" && op.call < 0) return;
  // A session may settle a call while it is submitted. A failure is that of the memory too, as on ranks that made the call before.
  const lastUse = op.status === "done" ? undefined : new LastUse(op);
  if (send !== undefined) allocationOf(send).lastUse = lastUse;
  if (recv !== undefined) allocationOf(recv).lastUse = lastUse;
}

/** The buffers of a prepared call. */
export function buffersIn({ call: { send, recv } }: Prepared<unknown>): DeviceBuffer[] {
  return [send, recv].filter((buffer) => buffer !== undefined);
}

// Posted calls.

/** One rank's posted call. */
export interface Posting {
  readonly call: RankCall;
  /** The checked call: the signature, which must be equal on all ranks, and the caller's result. */
  readonly prepared: Prepared<unknown>;
  readonly op: Operation;
  /** Virtual time at which the rank made the call: inside of a group, before it was posted. */
  readonly calledAtPs: number;
  /** Time from then on within which the call must be done, virtual or real; `undefined` or `Infinity` for no deadline. */
  readonly timeoutMs: number | undefined;
  /** A signal may still cancel it. */
  readonly cancellable: boolean;
}

/** A rank's call of messages. */
export interface PostedMessage extends Pick<Posting, "call" | "op"> {
  readonly prepared: PreparedTransfer<unknown>;
}

/** A rank's send or receive. */
export interface TransferPosting extends Posting {
  /** The call that it is a part of. */
  readonly whole: PostedMessage;
  readonly direction: "send" | "recv";
  /** The other rank in the communicator; it may be this one. */
  readonly peer: number;
  /** Its place among the messages of the two ranks. The ledger assigns it where their processes are not the same. */
  number: number;
  /** False once it is matched or cancelled. */
  isOpen: boolean;
}

/** Virtual time at which a call must be done; `Infinity` without a deadline. */
export function deadlineOf({ calledAtPs, timeoutMs = Infinity }: Posting): number {
  return calledAtPs + timeoutMs * 1e9;
}

/** The posting of a call as it was made before; where time is virtual, now. */
export function repeatedPosting(
  prepared: Prepared<unknown>,
  op: Operation,
  timeoutMs: number | undefined,
  nowPs?: number,
  calledAtPs = nowPs ?? 0,
): Posting {
  const before = prepared.rankCall as RankCall;
  // Where time is real, open calls may share one object: no time is noted in it.
  const call =
    nowPs === undefined ? before : rankCall(before.collective, before.rank, prepared.call, nowPs);
  return { call, prepared, op, calledAtPs, timeoutMs, cancellable: false };
}

/** The sends and receives of a message call to other processes as they were made before, with their numbers. */
export function repeatedTransfers(
  prepared: PreparedTransfer<unknown>,
  op: Operation,
  timeoutMs: number | undefined,
  numbers: readonly number[],
): TransferPosting[] {
  const whole: PostedMessage = { call: prepared.rankCall as RankCall, op, prepared };
  return prepared.transfers.map((half, at) => ({
    ...repeatedPosting(half, op, timeoutMs),
    ...{ whole, direction: half.direction, peer: half.peer, number: numbers[at] as number },
    isOpen: true,
  }));
}

// Message numbers.

/** The number of every rank's next send or receive; collective calls are counted apart. */
export class MessageNumbers {
  readonly #messages: number[];
  readonly #comm: CommInfo;
  /** The next of the messages to, and from, a rank of another process, which numbers them alike: by both ranks. */
  readonly #next = { send: new Map<number, number>(), recv: new Map<number, number>() };

  constructor(comm: CommInfo) {
    const size = comm.ranks.length;
    this.#comm = comm;
    this.#messages = new Array<number>(size).fill(0);
  }

  /** The number of a rank's next send, receive or both. */
  next(rank: number): number {
    return this.#messages[rank] as number;
  }

  /** Numbers a rank's next sends and receives; both ends of a call have its number. */
  assign(rank: number, transfers: readonly TransferPosting[]): void {
    const { local, ranks } = this.#comm;
    const isHere = local.length === ranks.length;
    for (let at = 0; at < transfers.length; at++) {
      const transfer = transfers[at] as TransferPosting;
      this.#message(rank, transfer.op);
      if (isHere || local.includes(transfer.peer)) continue;
      transfer.number = this.#take(rank, transfer);
    }
  }

  /** Numbers a call of messages to other processes that is made again, and gives the numbers of its sends and receives. */
  assignAgain(rank: number, op: Operation, { transfers }: PreparedTransfer<unknown>): number[] {
    this.#message(rank, op);
    return transfers.map((half) => this.#take(rank, half));
  }

  #take(rank: number, { direction, peer }: Pick<PreparedHalf, "direction" | "peer">): number {
    const both = rank * this.#comm.ranks.length + peer;
    const number = this.#next[direction].get(both) ?? 0;
    this.#next[direction].set(both, number + 1);
    return number;
  }

  #message(rank: number, op: Operation): void {
    const { call } = op.callOp;
    if (call >= 0) {
      assignOp(op, call);
      return;
    }
    const number = this.#messages[rank] as number;
    this.#messages[rank] = number + 1;
    assignOp(op, number);
  }

  /** Back to 0. */
  reset(): void {
    this.#messages.fill(0);
  }
}

// Matched calls.
//
// Loops make the same calls again and again. A rank's call is then the same `Prepared` object. One identity check per rank replaces
// the comparison, and the backend's work on the arguments is reused.

/** The part of a posting that a matched call keeps. */
type MatchedPosting = Pick<Posting, "call" | "prepared">;

/** The times of a call, which a repetition sets. */
interface TimedCall {
  postedAtPs: number;
  finishedAtPs: number;
}

/** A matched call, which backends get as the `cache` of work. */
export class MatchedCall implements PlanCache {
  // What a repetition reads comes first: it is one line of the processor's cache.
  repeat: RepeatedCall | undefined;
  /** The prepared calls of the ranks. */
  readonly prepared: readonly Prepared<unknown>[];
  /** Number of disposals when the buffers of its calls were last seen to live. */
  #checkedAt = -1;
  planned: object | undefined;
  /** The calls, by rank: those of this process. */
  readonly calls: readonly RankCall[];
  /** True when only a disposal of its buffers can invalidate it: no counts are exchanged, and no host memory is lent. */
  readonly isFixed: boolean;
  #repeated: readonly RankCall[] | undefined;
  /** The messages that were made together with this call; `undefined` for a collective. */
  readonly messages: MatchedMessages | undefined;

  constructor(
    postings: readonly MatchedPosting[],
    calls: readonly RankCall[],
    messages?: MatchedMessages,
  ) {
    this.calls = calls;
    this.messages = messages;
    this.prepared = postings.map(({ prepared }) => prepared);
    this.isFixed = calls.every((call) => hasReceiveCounts(call) && !someBuffer(call, isBorrowed));
  }

  /** The matched call of these postings; `undefined` when they have to be compared. */
  static lookup(postings: readonly Posting[]): MatchedCall | undefined {
    const known = postings[0]?.prepared.matched;
    const isSame = known?.prepared.every((each, at) => each === postings[at]?.prepared);
    return isSame === true ? known : undefined;
  }

  /** Caches the result for calls that are equal. */
  static store(postings: readonly Posting[], calls: readonly RankCall[]): MatchedCall {
    const matched = new MatchedCall(postings, calls);
    const [first] = postings;
    if (first !== undefined) first.prepared.matched = matched;
    return matched;
  }

  /** True for messages that were made together with others before them. */
  get isBehind(): boolean {
    return this.messages !== undefined && this.messages.calls[0] !== this;
  }

  /** The calls, made again at these virtual times. The next repetition changes them. */
  repeatedAt(postedAtPs: readonly number[]): readonly RankCall[] {
    this.#repeated ??= this.calls.map((call) => ({ ...call }));
    for (let at = 0; at < postedAtPs.length; at++) {
      const call = this.#repeated[at] as TimedCall;
      call.postedAtPs = postedAtPs[at] as number;
      call.finishedAtPs = call.postedAtPs;
    }
    return this.#repeated;
  }

  /** True when no buffer of its calls was disposed: they are checked only after disposals. */
  buffersLive(): boolean {
    const disposals = disposalsSoFar();
    if (this.#checkedAt === disposals) return true;
    if (this.calls.some(hasReleasedBuffer)) return false;
    this.#checkedAt = disposals;
    return true;
  }
}

/** The messages that the only rank here has made together, none of them with itself: they are submitted as one. */
export class MatchedMessages implements PlanCache {
  repeat: RepeatedCall | undefined;
  planned: object | undefined;
  /** One for each call of the program. */
  readonly calls: readonly MatchedCall[];

  private constructor(made: readonly MatchedPosting[]) {
    this.calls = made.map((each) => new MatchedCall([each], [each.call], this));
  }

  /** Those of these messages, cached with the first of their calls; new ones where they were not made together before. */
  static of(transfers: readonly TransferPosting[]): MatchedMessages | undefined {
    const made = [...new Set(transfers.map(({ whole }) => whole))];
    const [first, ...behind] = made;
    if (first === undefined) return undefined;
    const known = first.prepared.matched?.messages;
    if (known?.areMadeWith(behind) === true) return known;
    for (const { prepared, call } of transfers) prepared.rankCall = call;
    for (const { prepared, call } of made) prepared.rankCall = call;
    const messages = new MatchedMessages(made);
    first.prepared.matched = messages.calls[0] as MatchedCall;
    return messages;
  }

  /** True where the calls behind the first one are the same as before. */
  areMadeWith(behind: readonly Pick<MatchedPosting, "prepared">[]): boolean {
    if (this.calls.length !== behind.length + 1) return false;
    return behind.every(({ prepared }, at) => this.calls[at + 1]?.prepared[0] === prepared);
  }
}

/** True where a buffer of a call passes a test; those of its recorded calls count. */
export function someBuffer(
  { send, recv, recorded }: RankCall,
  test: (buffer: DeviceBuffer) => boolean,
): boolean {
  if (send !== undefined && test(send)) return true;
  if (recv !== undefined && test(recv)) return true;
  return recorded?.buffers.some(test) === true;
}

/** True for a buffer in the caller's own host memory, which may be transferred away. */
function isBorrowed(buffer: DeviceBuffer): boolean {
  return memoryOf(buffer).borrowed;
}

/** True when a buffer of a call was disposed, or transferred away. */
export function hasReleasedBuffer(call: RankCall): boolean {
  return someBuffer(call, isBufferReleased);
}

function isBufferReleased(buffer: DeviceBuffer): boolean {
  return isReleased(allocationOf(buffer));
}
