/**
 * Checks the buffers of a complete call. None was disposed or written since its rank posted the call, and no output is memory
 * of another rank. A fault fails the call on every rank, and nothing is written.
 */
import type { CallSet, CommInfo, RankCall, WriteFault } from "../backend.ts";
import { type DeviceBuffer, memoryOf, overlapBytes } from "../buffer.ts";
import { ranksText } from "../error-text.ts";
import { CommClosedError, CommError, InvalidArgumentError } from "../errors.ts";
import type { Memory } from "../memory.ts";
import { MemoryUses } from "../memory-uses.ts";
import { PerRankError, postedFacts } from "./failures.ts";
import { hasReleasedBuffer, type Posting, someBuffer } from "./posting.ts";
import type { MatchedPair, MessageBatch } from "./queues.ts";

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
