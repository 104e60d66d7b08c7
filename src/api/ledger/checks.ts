/**
 * The checks of a complete call, before a byte moves: the comparison of the calls of all ranks, and the state of their buffers.
 *
 * NCCL calls a mismatch undefined behaviour. Here it is an error on every rank, which names the first field that differs and the
 * ranks in the minority.
 */
import type {
  CallDigest,
  CallSet,
  CommInfo,
  JobSession,
  RankCall,
  WriteFault,
} from "../backend.ts";
import {
  type Allocation,
  allocationOf,
  type DeviceBuffer,
  memoryOf,
  overlapBytes,
  reachedBuffers,
  symmetricPlace,
} from "../buffer.ts";
import { type DType, isDType } from "../dtype.ts";
import { type ErrorText, numbersText, outliers, rankRows, ranksText } from "../error-text.ts";
import {
  CollectiveMismatchError,
  CommClosedError,
  CommError,
  InvalidArgumentError,
} from "../errors.ts";
import { getOrCreate } from "../get-or-create.ts";
import type { Memory } from "../memory.ts";
import { MemoryUses } from "../memory-uses.ts";
import { PerRankError, postedFacts } from "./failures.ts";
import {
  hasReleasedBuffer,
  type Posting,
  type Prepared,
  type SignatureField,
  someBuffer,
} from "./posting.ts";
import type { MatchedPair, MessageBatch, PendingCollective } from "./queues.ts";

/** A short text about a call. */
interface CallSummary {
  /** The operation and its sizes. */
  readonly call: string;
  /** Where it was made, as `file:line:column`, if that is kept. */
  readonly place: string | undefined;
}

/** A difference between the ranks of one call. */
export interface Mismatch {
  readonly field: string;
  /** The ranks that differ from most others. */
  readonly ranks: readonly number[];
  /** Each rank's value, by rank. */
  readonly values: readonly string[];
  /** Each rank's call, where ranks of other processes are compared. */
  readonly calls?: readonly CallSummary[];
  /** The rule, where it is not equality, and the remedy. */
  readonly rule?: string;
  readonly remedy?: string;
}

/**
 * The first difference between the calls of a complete collective; `undefined` when they are equal. Makes the windows of their
 * symmetric memory.
 *
 * Recorded calls are compared at the capture, as if they were made then. So are the ends of recorded messages: a replay of one
 * end alone may wait in NCCL without an end.
 */
export function mismatchOf(
  { posted, postings }: PendingCollective,
  calls: readonly RankCall[],
  windows: SymmetricWindows,
): Mismatch | undefined {
  const isAllHere = posted.length === postings.length;
  // Of one rank there is nothing to compare.
  const signatures = posted.length === 1 ? [] : posted.map(({ prepared }) => prepared.signature);
  const first = calls[0] as RankCall;
  const hasAllEnds = isAllHere && first.recorded !== undefined;
  const mismatch =
    signatureMismatch(signatures) ?? (hasAllEnds ? messagesMismatch(calls.map(endsOf)) : undefined);
  if (mismatch !== undefined) return mismatch;
  for (const index of callsIn(first).keys()) {
    const made = calls.map((call) => callsIn(call)[index] as RankCall);
    const mismatch = (isAllHere ? transposeMismatch(made) : undefined) ?? windows.assign(made);
    if (mismatch !== undefined)
      return { ...mismatch, field: prefixOf(first, index) + mismatch.field };
  }
  return undefined;
}

/** The first field in which signatures differ, given by rank. */
function signatureMismatch(
  signatures: readonly (readonly SignatureField[])[],
): Mismatch | undefined {
  for (const [at, [field]] of (signatures[0] ?? []).entries()) {
    const found = signatures.map((signature) => signature[at]?.[1]);
    if (found.every((value) => value === found[0])) continue;
    const values = found.map(String);
    return { field, values, ranks: outliers(values) };
  }
  return undefined;
}

/** The fields of a call that hold the lengths of its blocks. */
type CallLengths = Pick<
  RankCall,
  "collective" | "rank" | "count" | "root" | "sendCounts" | "recvCounts"
>;

/** The mismatch of lengths that must fit each other across ranks without being equal. */
function transposeMismatch(calls: readonly CallLengths[]): Mismatch | undefined {
  const root = calls[calls[0]?.root ?? -1];
  switch (calls[0]?.collective) {
    case "allToAllv":
      return calls[0].recvCounts === undefined ? undefined : allToAllvMismatch(calls);
    case "gather":
      return rootedMismatch(calls, root, "recvCounts", "sends");
    case "scatter":
      return rootedMismatch(calls, root, "sendCounts", "receives");
    default:
      return undefined;
  }
}

/** The mismatch of counts that are given on both sides: what i sends to j must be what j expects from i. */
function allToAllvMismatch(calls: readonly CallLengths[]): Mismatch | undefined {
  for (let from = 0; from < calls.length; from++) {
    for (let to = 0; to < calls.length; to++) {
      const sent = calls[from]?.sendCounts?.[to];
      const expected = calls[to]?.recvCounts?.[from];
      if (sent === expected) continue;
      return {
        field: `sendCounts[${to}]`,
        ranks: [...new Set([from, to])].sort((a, b) => a - b),
        values: calls.map((_, rank) => {
          if (rank === from) return `sends ${sent} to rank ${to}`;
          return rank === to ? `expects ${expected} from rank ${from}` : "-";
        }),
        rule: `sendCounts[${to}] of rank ${from} must equal recvCounts[${from}] of rank ${to}`,
        remedy:
          "recvCounts say what the others send; leave them out on all ranks to have them exchanged",
      };
    }
  }
  return undefined;
}

/** The mismatch of a rank's length with what the root has for it. */
function rootedMismatch(
  calls: readonly CallLengths[],
  root: CallLengths | undefined,
  field: "recvCounts" | "sendCounts",
  verb: string,
): Mismatch | undefined {
  const counts = root?.[field] ?? [];
  const rank = calls.findIndex((call) => call.count !== counts[call.rank]);
  if (root === undefined || rank < 0) return undefined;
  return {
    field: `${field}[${rank}]`,
    ranks: [rank],
    values: calls.map((call) => `${verb} ${call.count}, the root has ${counts[call.rank]}`),
    rule: `the count of rank ${rank} must equal ${field}[${rank}] of the root, rank ${root.rank}`,
    remedy: `where ranks have different lengths, the root gives them: ${field}, one a rank`,
  };
}

/** The error of each rank for a mismatch; the texts of all ranks are equal. */
export function mismatchErrors(
  pending: PendingCollective,
  mismatch: Mismatch,
): (rank: number) => CollectiveMismatchError {
  const { field, ranks, values, rule } = mismatch;
  const { remedy = "make the same call on every rank, with equal arguments" } = mismatch;
  const { calls = pending.postings.map(summaryOf) } = mismatch;
  const { name } = pending.comm;
  const rows = values.map((value, rank) => {
    const { call = "-", place = "" } = calls[rank] ?? {};
    return { rank, cells: [call, value, place] };
  });
  const heading = calls.some(({ place }) => place !== undefined) ? ["made at"] : [];
  const text: ErrorText = {
    headline: `call ${pending.number} on "${name}": ${ranksText(ranks)} ${ranks.length === 1 ? "differs" : "differ"} in ${field}${
      rule === undefined ? "" : `: ${rule}`
    }`,
    table: [["rank", "call", field, ...heading], ...rankRows(rows, numbersText)],
    hint: `nothing was written; ${remedy}`,
  };
  return (rank) =>
    new CollectiveMismatchError(text, {
      ...{ rank, size: calls.length, comm: name },
      collective: pending.postings[rank]?.call.collective,
      ...{ call: pending.number, ranks, field, values },
    });
}

/** The error of a send and a receive that do not fit; `undefined` when they do. */
export function transferMismatch(
  comm: CommInfo,
  { send: from, recv: to, ends }: MatchedPair,
): ((posting: Posting) => CollectiveMismatchError) | undefined {
  if (from.dtype === to.dtype && from.count === to.count) return undefined;
  const field = from.dtype !== to.dtype ? "dtype" : "count";
  const values = [`${from[field]}`, `${to[field]}`];
  const remedy =
    field === "dtype"
      ? `receive into ${from.dtype}, as it is sent`
      : "both ends need equal lengths: take a subarray of the longer side";
  const places = ends.map(({ op }) => op.place);
  const heading = places.every((place) => place === undefined) ? [] : ["made at"];
  const ranks = [...new Set([from.rank, to.rank])].sort((a, b) => a - b);
  return (posting) =>
    new CollectiveMismatchError(
      {
        headline: `send and receive on "${comm.name}" differ in ${field}`,
        table: [
          ["rank", "call", field, ...heading],
          [from.rank, `send to ${to.rank}`, values[0] as string, places[0] ?? ""],
          [to.rank, `receive from ${from.rank}`, values[1] as string, places[1] ?? ""],
        ],
        hint: `nothing was written; ${remedy}`,
      },
      { ...postedFacts(comm, posting), ranks, field, values },
    );
}

/** The cells of a call in the table of a mismatch. */
function summaryOf(posting: Posting | undefined): CallSummary {
  if (posting === undefined) return { call: "-", place: undefined };
  const { call, op } = posting;
  const { collective, dtype, count } = call;
  return {
    call: dtype === undefined ? collective : `${collective} ${dtype}[${count}]`,
    place: op.place,
  };
}

// Ranks of several processes. They compare digests: the signature, the lengths that must be transposes, and the windows of
// symmetric memory that the call would use.

/** The fields of a rank's call that other processes compare. */
interface DigestDetails {
  readonly call: CallSummary;
  readonly signature: readonly SignatureField[];
  /** Lengths of the call, or of each call that it records, where they are transposes; `null` elsewhere. */
  readonly lengths: readonly (CallLengths | null)[];
  readonly windows: readonly SignatureField[];
  readonly messages: readonly RecordedEnd[];
}

/** Compares a call with those of other processes, where there are any and comparisons are on; a capture always. */
export function compareAcrossProcesses(
  comm: CommInfo,
  windows: SymmetricWindows,
  job: JobSession,
  { number, posted, postings }: PendingCollective,
): Promise<Mismatch | undefined> | undefined {
  const [own] = posted;
  if (own === undefined || posted.length === postings.length) return undefined;
  const digest = (): CallDigest => digestOf(own, windows);
  return own.call.collective === "capture"
    ? job.compareCaptures(comm, number, digest, compareDigests)
    : job.compare?.(comm, number, digest, compareDigests);
}

/** Kinds of calls without symmetric memory: no window changes them. */
const plainKinds = new WeakMap<Prepared<unknown>, string>();

/** The digest of a rank's own call. */
function digestOf(posting: Posting, windows: SymmetricWindows): CallDigest {
  const { call, prepared } = posting;
  const { signature } = prepared;
  const fields = () => windows.fieldsOf(call);
  let kind = plainKinds.get(prepared);
  if (kind === undefined) {
    kind = JSON.stringify([signature, fields()]);
    if (!callsIn(call).some(isSymmetric)) plainKinds.set(prepared, kind);
  }
  const details = (): string => {
    const lengths = callsIn(call).map(lengthsOf);
    const digest: DigestDetails = {
      call: summaryOf(posting),
      signature,
      lengths,
      windows: fields(),
      messages: endsOf(call),
    };
    return JSON.stringify(digest);
  };
  return { kind, details };
}

/** The mismatch of the calls of all ranks, given their digests by rank. */
function compareDigests(details: readonly string[]): Mismatch | undefined {
  const read = details.map(readDigest);
  const digests = read.filter((each) => each !== undefined);
  const calls = read.map((each) => each?.call ?? { call: "-", place: undefined });
  const mismatch = digests.length < read.length ? formMismatch(read) : digestsMismatch(digests);
  return mismatch && { ...mismatch, calls };
}

/** The mismatch where ranks describe their calls in a form of another version, or none. */
function formMismatch(read: readonly (DigestDetails | undefined)[]): Mismatch {
  return {
    field: "form",
    ranks: read.flatMap((each, rank) => (each === undefined ? [rank] : [])),
    values: read.map((each) => (each === undefined ? "none of this version" : "of this version")),
    rule: "ranks describe their calls to each other in one form",
    remedy: "run the same version of twinccl on every rank",
  };
}

/** The digest in a text of another process; `undefined` for anything else. */
function readDigest(text: string): DigestDetails | undefined {
  try {
    // What lacks a part, or has another value in its place, throws in one of the checks.
    const digest = JSON.parse(text) as DigestDetails;
    const { call, place = "" } = digest.call;
    const isDigest =
      [call, place].every((each) => typeof each === "string") &&
      digest.signature.every(isField) &&
      digest.windows.every(isField) &&
      digest.lengths.every(isLengths) &&
      digest.messages.every(isRecordedEnd);
    return isDigest ? digest : undefined;
  } catch {
    return undefined;
  }
}

function isField(field: SignatureField): boolean {
  const [name, value] = field as readonly unknown[];
  // JSON has `null` for a value that is `undefined`.
  const isValue = value === null || typeof value === "string" || Number.isFinite(value);
  return Array.isArray(field) && field.length === 2 && typeof name === "string" && isValue;
}

function isLengths(lengths: CallLengths | null): boolean {
  if (lengths === null) return true;
  const { collective, rank, count, root, sendCounts = [], recvCounts = [] } = lengths;
  const counts = [[rank, count, root], sendCounts, recvCounts];
  return typeof collective === "string" && counts.every((each) => each.every(Number.isInteger));
}

function digestsMismatch(digests: readonly DigestDetails[]): Mismatch | undefined {
  return (
    signatureMismatch(digests.map(({ signature }) => signature)) ??
    lengthsMismatch(digests) ??
    windowsMismatch(digests.map(({ windows }) => windows)) ??
    messagesMismatch(digests.map(({ messages }) => messages))
  );
}

/** The call itself, or those that it records. */
function callsIn(call: RankCall): readonly RankCall[] {
  return call.collective === "capture" ? (call.recorded?.calls ?? []) : [call];
}

function prefixOf({ collective }: Pick<RankCall, "collective">, index: number): string {
  return collective === "capture" ? `calls[${index}].` : "";
}

function lengthsOf({ collective, rank, count, root, ...call }: RankCall): CallLengths | null {
  const { sendCounts, recvCounts } = call;
  const isTransposed = ["allToAllv", "gather", "scatter"].includes(collective);
  return isTransposed ? { collective, rank, count, root, sendCounts, recvCounts } : null;
}

/** The signatures agree by now, so that all ranks mean the same collectives. */
function lengthsMismatch(digests: readonly DigestDetails[]): Mismatch | undefined {
  const [first] = digests;
  const collective = first?.signature[0]?.[1] as RankCall["collective"];
  for (const index of first?.lengths.keys() ?? []) {
    const calls = digests.flatMap(({ lengths }) => lengths[index] ?? []);
    const mismatch = calls.length < digests.length ? undefined : transposeMismatch(calls);
    if (mismatch !== undefined) {
      return { ...mismatch, field: prefixOf({ collective }, index) + mismatch.field };
    }
  }
  return undefined;
}

// Recorded messages.

/** A recorded send or receive. */
type RecordedEnd = readonly [direction: "send" | "recv", peer: number, dtype: DType, count: number];

/** The sends and receives that a capture records, in order. */
function endsOf({ recorded }: RankCall): RecordedEnd[] {
  const ends = recorded?.messages.flatMap((together) => together.ends) ?? [];
  return ends.map(({ direction, peer, call: { dtype, count } }): RecordedEnd => {
    return [direction, peer, dtype as DType, count];
  });
}

function isRecordedEnd([direction, peer, dtype, count]: RecordedEnd): boolean {
  const isDirection = direction === "send" || direction === "recv";
  return isDirection && isDType(dtype) && [peer, count].every(Number.isInteger);
}

/** The first recorded message that lacks an end, or has two that differ; `undefined` where all have two. */
function messagesMismatch(ends: readonly (readonly RecordedEnd[])[]): Mismatch | undefined {
  for (const { from, to, send, recv } of recordedPairs(ends)) {
    for (let index = 0; index < Math.max(send.length, recv.length); index++) {
      const [sent, received] = [endText("send", send[index]), endText("receive", recv[index])];
      const field = differingEndField(send[index], recv[index]);
      if (field === undefined) continue;
      return {
        field,
        ranks: [...new Set([from, to])].sort((a, b) => a - b),
        values: ends.map((_, rank) => {
          const own = [rank === from ? sent : [], rank === to ? received : []].flat();
          return own.length === 0 ? "-" : own.join(", ");
        }),
        rule: `message ${index + 1} from rank ${from} to rank ${to} is recorded ${
          field === "messages" ? "at one end alone" : "otherwise at its other end"
        }`,
        remedy: "record the send and its receive in the same capture, with one dtype and count",
      };
    }
  }
  return undefined;
}

/** The recorded sends from one rank to another, and the receives there. */
interface RecordedPair {
  readonly from: number;
  readonly to: number;
  readonly send: RecordedEnd[];
  readonly recv: RecordedEnd[];
}

function recordedPairs(ends: readonly (readonly RecordedEnd[])[]): Iterable<RecordedPair> {
  const pairs = new Map<number, RecordedPair>();
  for (const [rank, own] of ends.entries()) {
    for (const end of own) {
      const [direction, peer] = end;
      const [from, to] = direction === "send" ? [rank, peer] : [peer, rank];
      const key = from * ends.length + to;
      getOrCreate(pairs, key, () => ({ from, to, send: [], recv: [] }))[direction].push(end);
    }
  }
  return pairs.values();
}

/** The field in which the ends of a message differ. */
function differingEndField(send?: RecordedEnd, recv?: RecordedEnd): string | undefined {
  if (send === undefined || recv === undefined) return "messages";
  if (send[2] !== recv[2]) return "dtype";
  return send[3] === recv[3] ? undefined : "count";
}

function endText(verb: string, end: RecordedEnd | undefined): string {
  return end === undefined ? `no ${verb}` : `${verb} ${end[2]}[${end[3]}]`;
}

// Windows of symmetric memory.
//
// The first call that uses an allocation of every rank forms one window of them, like a collective registration. From then on
// these allocations belong together. Allocations of different windows in one call are a mismatch, which real registration would
// leave as a hang.

/** A buffer of a call that lies in symmetric memory. */
type Side = "send" | "recv";

const sides: readonly Side[] = ["send", "recv"];

/** Numbers the windows of one communicator. */
export class SymmetricWindows {
  readonly #numbers = new WeakMap<Allocation, number>();
  /** Windows that these ones come in addition to. */
  readonly #base: SymmetricWindows | undefined;
  #count: number;

  constructor(base?: SymmetricWindows) {
    this.#base = base;
    this.#count = base === undefined ? 0 : base.#count;
  }

  /** The mismatch of a complete call whose buffers lie in no common windows; makes new windows where there is none. */
  assign(calls: readonly RankCall[]): Mismatch | undefined {
    if (!calls.some(isSymmetric)) return undefined;
    const mismatch = windowsMismatch(calls.map((call) => this.#fieldsOf(call, "")));
    if (mismatch === undefined) for (const side of sides) this.#open(calls, side);
    return mismatch;
  }

  /**
   * Fields about the windows of one rank's call, or of the calls that it records, one after another. They are equal on ranks
   * whose calls lie in common windows. Makes no window.
   */
  fieldsOf(whole: RankCall): readonly SignatureField[] {
    const trial = new SymmetricWindows(this);
    return callsIn(whole).flatMap((call, index) => {
      const fields = trial.#fieldsOf(call, prefixOf(whole, index));
      if (isSymmetric(call)) for (const side of sides) trial.#open([call], side);
      return fields;
    });
  }

  /** Fields about the windows of one call. */
  #fieldsOf(call: RankCall, prefix: string): readonly SignatureField[] {
    const place = symmetricPlace(call);
    if (place === undefined) return [[`${prefix}symmetric send`, "none"]];
    const reached = reachedBuffers[call.collective];
    return sides.flatMap((side): SignatureField[] => {
      const window: SignatureField = [`${prefix}symmetric ${side}`, this.#window(call, side)];
      const at: SignatureField = [`${prefix}place of ${side}`, `byte ${place[side]} of it`];
      return reached?.[side] === true ? [window, at] : [window];
    });
  }

  numberOf(allocation: Allocation): number | undefined {
    return this.#numbers.get(allocation) ?? this.#base?.numberOf(allocation);
  }

  #window(call: RankCall, side: Side): string {
    const allocation = allocationOf(call[side] as DeviceBuffer);
    const number = this.numberOf(allocation);
    if (number !== undefined) return `window ${number}`;
    // In place, or beside its input, the output makes no window of its own.
    const { send } = call;
    if (side === "recv" && send !== undefined && allocation === allocationOf(send))
      return "the window of send";
    return `a new window of ${allocation.memory.byteLength} bytes`;
  }

  #open(calls: readonly RankCall[], side: Side): void {
    const isNew = calls.some(({ [side]: buffer }) => {
      return buffer !== undefined && this.numberOf(allocationOf(buffer)) === undefined;
    });
    if (!isNew) return;
    for (const { [side]: buffer } of calls) {
      if (buffer !== undefined) this.#numbers.set(allocationOf(buffer), this.#count);
    }
    this.#count++;
  }
}

/** The mismatch of the fields about windows of all ranks. */
function windowsMismatch(fields: readonly (readonly SignatureField[])[]): Mismatch | undefined {
  const mismatch = signatureMismatch(fields);
  const isPlace = mismatch?.field.includes("place of");
  return mismatch && { ...mismatch, rule: isPlace ? placeRule : windowRule };
}

/** The required windows of all ranks. */
const windowRule = "ranks use symmetric memory together, in the same order and equally long";
const placeRule = "ranks reach it at the same place of everyone's window";

function isSymmetric(call: RankCall): boolean {
  return symmetricPlace(call) !== undefined;
}

// Buffers. None was disposed or written since its rank posted the call, and no output is memory of another rank.

/** Refuses a call with buffers that were disposed, or transferred away, after the rank made it and before it settles. */
export function assertLive({ comm, collective, calls }: CallSet): void {
  const errorOf = releasedErrors(comm, calls, collective);
  if (errorOf !== undefined) throw new PerRankError(errorOf);
}

/**
 * The error of calls that failed under way. Where a buffer was disposed or transferred away meanwhile, an untyped error is that
 * buffer's, and so is one of a wrong argument: the session has taken a view of memory that is gone.
 */
export function releasedUnderWay(
  comm: CommInfo,
  postings: readonly Posting[],
  error: unknown,
): unknown {
  const isArgument = error instanceof InvalidArgumentError;
  if ((error instanceof CommError && !isArgument) || error instanceof PerRankError) return error;
  const calls = postings.map(({ call }) => call);
  const errorOf = releasedErrors(comm, calls, undefined, error);
  return errorOf === undefined ? error : new PerRankError(errorOf);
}

/**
 * The errors of calls with a buffer that was disposed or transferred away while in use; `undefined` where all live. `collective`:
 * that of recorded calls, where it is not the one that the rank has posted.
 */
export function releasedErrors(
  comm: CommInfo,
  calls: readonly RankCall[],
  collective?: string,
  cause?: unknown,
): ((posting: Posting) => CommClosedError) | undefined {
  if (!calls.some(hasReleasedBuffer)) return undefined;
  const released = calls.filter(hasReleasedBuffer);
  const ranks = released.map(({ rank }) => rank);
  const isDisposed = released.some((call) => someBuffer(call, ({ disposed }) => disposed));
  const [did, doing] = isDisposed ? ["disposed", "disposing"] : ["transferred", "transferring"];
  return (posting) => {
    const facts = postedFacts(comm, posting, collective);
    return new CommClosedError(
      {
        headline: `${facts.collective}: ${ranksText(ranks)} ${did} a buffer while it was lent, needs it until the call settles`,
        hint: `await the operation before ${doing} its buffers`,
      },
      { ...facts, ranks, cause },
    );
  };
}

/** The error of a call with a buffer that was written while in use. */
export function writtenError(
  comm: CommInfo,
  { rank, field }: WriteFault,
): (posting: Posting) => InvalidArgumentError {
  return (posting) =>
    new InvalidArgumentError(
      {
        headline: `${posting.call.collective}: ${field}: rank ${rank} wrote it while it was lent, needs it untouched until the call settles`,
        hint: "await the operation before writing its buffers",
      },
      { ...postedFacts(comm, posting), ranks: [rank], field },
    );
}

// Aliasing between ranks.
//
// In one process a TypedArray made outside of the program is the same memory on every rank. As `recv` there, ranks would
// overwrite each other's results in silence.

/** A call that writes the caller's own host memory. */
type HostWriter = RankCall & { readonly recv: DeviceBuffer };

/** Refuses a call in which a rank writes memory that another rank reads or writes. */
export function assertNoAliasing({ comm, calls }: CallSet): void {
  const writers = calls.filter(writesHostMemory);
  if (writers.length === 0) return;
  const otherOf = otherUsers(calls);
  for (const writer of writers) {
    const other = otherOf(writer);
    if (other === undefined) continue;
    throw new PerRankError((posting) => aliasingError(comm, posting, writer, other));
  }
}

/**
 * Finds errors of messages that arrive in memory which another rank reads or writes in the same exchange. Calls at the head of
 * a queue count, even if that part of the call is done. There is none when the memory is the receiver's own.
 */
export function aliasingErrors(
  comm: CommInfo,
  pairs: readonly MatchedPair[],
  sharers: (memory: Memory) => readonly MessageBatch[],
): (pair: MatchedPair) => ((posting: Posting) => InvalidArgumentError) | undefined {
  const written = pairs.map(({ recv }) => recv).filter(writesHostMemory);
  if (written.length === 0) return () => undefined;
  const memories = new Set(written.map(({ recv }) => memoryOf(recv)));
  const batches = new Set([...memories].flatMap(sharers));
  const byRank = [...batches].sort((a, b) => a.rank - b.rank);
  const calls = byRank.flatMap(({ transfers }) => transfers.map(({ call }) => call));
  const otherOf = otherUsers(calls);
  return ({ recv: writer }) => {
    const other = writesHostMemory(writer) ? otherOf(writer) : undefined;
    return other && ((posting) => aliasingError(comm, posting, writer, other));
  };
}

/** Finds the call of another rank that uses what a call writes. */
function otherUsers(calls: readonly RankCall[]): (writer: HostWriter) => RankCall | undefined {
  const uses = new MemoryUses();
  for (const { rank, send, recv } of calls) {
    if (send !== undefined) uses.add(send, rank);
    if (recv !== undefined) uses.add(recv, rank);
  }
  return (writer) =>
    uses.isShared(writer.recv, writer.rank)
      ? calls.find((call) => aliases(writer, call))
      : undefined;
}

function writesHostMemory(call: RankCall): call is HostWriter {
  return call.recv !== undefined && memoryOf(call.recv).borrowed;
}

function aliases(writer: HostWriter, { rank, send, recv }: RankCall): boolean {
  return rank !== writer.rank && (overlaps(writer.recv, send) || overlaps(writer.recv, recv));
}

function overlaps(written: DeviceBuffer, other: DeviceBuffer | undefined): boolean {
  return other !== undefined && overlapBytes(written, other) > 0;
}

/** The error of a call whose output is memory of another rank: that of either end, for a message. */
function aliasingError(
  comm: CommInfo,
  posting: Posting,
  { rank: writer, collective }: RankCall,
  other: RankCall,
): InvalidArgumentError {
  const ranks = [writer, other.rank].sort((a, b) => a - b);
  return new InvalidArgumentError(
    {
      headline: `${collective}: recv: ranks ${ranks.join(" and ")} were given the same memory, needs memory of their own`,
      hint: "make the array inside the program, once per rank",
    },
    { ...postedFacts(comm, posting, collective), ranks, field: "recv" },
  );
}
