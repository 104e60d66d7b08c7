/**
 * Wrong use of lent memory: the errors of a call with buffers that were disposed or written before it
 * was served. A careless rank fails the call on every rank of it, and nothing is written.
 */

import type { CallSet, CommInfo, RankCall, WriteFault } from "../../backend.ts";
import type { DeviceBuffer } from "../../buffer.ts";
import { ranksText } from "../../error-text.ts";
import { CommClosedError, type CommError, InvalidArgumentError } from "../../errors.ts";
import type { Meeting } from "../calls/batch.ts";
import type { Posting } from "../calls/posting.ts";
import { UnservedError } from "../calls/unserved.ts";

/** A rank, and the number of its call, for the error. */
interface Told {
  readonly comm: CommInfo;
  readonly collective: RankCall["collective"];
  readonly rank: number;
  readonly call: number;
}

/** Refuses a call with buffers that were disposed, or transferred away, after the rank made it: they were lent until it settles. */
export function assertLent(set: CallSet): void {
  if (!set.calls.some(isGone)) return;
  const careless = set.calls.filter(isGone);
  throw new UnservedError((rank) => goneError(toldIn(set, rank), careless));
}

/** Refuses a call with buffers that were written after the rank made it. */
export function refuseWritten(set: CallSet, fault: WriteFault): UnservedError {
  return new UnservedError((rank) => writtenError(toldIn(set, rank), fault));
}

/** The error of a transfer with a buffer that was disposed or transferred away while it was lent; `undefined` when both are alive. */
export function disposedTransfer(
  comm: CommInfo,
  { send, recv }: Meeting,
): ((posting: Posting) => CommError) | undefined {
  const careless = [send.call, recv.call].find(isGone);
  if (careless === undefined) return undefined;
  return (posting) => goneError(toldOf(comm, posting), [careless]);
}

/** The error of a send or receive with its other end elsewhere, and a buffer that was disposed or transferred away. */
export function disposedHalf(comm: CommInfo, half: Posting): CommError {
  return goneError(toldOf(comm, half), [half.call]);
}

/** The error of a transfer with a buffer that was written while it was lent. */
export function writtenTransfer(
  comm: CommInfo,
  fault: WriteFault,
): (posting: Posting) => CommError {
  return (posting) => writtenError(toldOf(comm, posting), fault);
}

/** True when a buffer of a call was disposed, or transferred away. */
export function isGone({ send, recv, recorded }: RankCall): boolean {
  return isLost(send) || isLost(recv) || recorded?.buffers.some(isLost) === true;
}

function isLost(buffer: DeviceBuffer | undefined): boolean {
  if (buffer === undefined) return false;
  return buffer.disposed || buffer.allocation.memory.detached === true;
}

function isDisposed({ send, recv, recorded }: RankCall): boolean {
  return (
    send?.disposed === true ||
    recv?.disposed === true ||
    recorded?.buffers.some(({ disposed }) => disposed) === true
  );
}

function toldIn({ comm, collective, number }: CallSet, rank: number): Told {
  return { comm, collective, rank, call: number };
}

function toldOf(comm: CommInfo, { op, call }: Posting): Told {
  return { comm, collective: call.collective, rank: op.rank, call: op.call };
}

function goneError(told: Told, careless: readonly RankCall[]): CommClosedError {
  const ranks = careless.map(({ rank }) => rank);
  const did = careless.some(isDisposed) ? "disposed" : "transferred";
  const doing = did === "disposed" ? "disposing" : "transferring";
  return new CommClosedError(
    {
      headline: `${told.collective}: ${ranksText(ranks)} ${did} a buffer while it was lent, needs it until the call settles`,
      hint: `await the operation before ${doing} its buffers`,
    },
    factsOf(told, ranks),
  );
}

function writtenError(told: Told, { rank, field }: WriteFault): InvalidArgumentError {
  return new InvalidArgumentError(
    {
      headline: `${told.collective}: ${field}: rank ${rank} wrote it while it was lent, needs it untouched until the call settles`,
      hint: "await the operation before writing its buffers",
    },
    { ...factsOf(told, [rank]), field },
  );
}

function factsOf({ comm, collective, rank, call }: Told, ranks: readonly number[]) {
  return { rank, size: comm.ranks.length, comm: comm.name, collective, call, ranks };
}
