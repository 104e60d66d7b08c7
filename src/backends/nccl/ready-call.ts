/**
 * The NCCL calls of one call of all ranks, with all their arguments: what `issue.ts` asks for is noted, and made as often
 * as the same call comes again, without a look at counts, offsets or types.
 */
import type { NcclCommunicator } from "./communicators.ts";
import type { Issuing, Part, Step } from "./issue.ts";
import type { NcclCalls } from "./result/nccl.ts";

/** Makes an NCCL call, or a group of them. */
type Noted = () => void;

/** A call that can be made again and again. */
export class ReadyCall {
  readonly comm: NcclCommunicator;
  readonly #noted: readonly Noted[];
  /** The only one of them, which most calls have: it is made without a look at the list. */
  readonly #only: Noted | undefined;

  /** One group a step, where more than one NCCL call is in it; nothing for a step that moves nothing. */
  constructor(
    nccl: NcclCalls,
    comm: NcclCommunicator,
    steps: readonly Step[],
    parts: readonly Part[],
  ) {
    this.comm = comm;
    this.#noted = steps.flatMap((step) => {
      const noted: Noted[] = [];
      const issuing = noting(nccl, noted);
      for (const part of parts) step(issuing, part);
      return noted.length > 1 ? [() => nccl.group(() => makeAll(noted))] : noted;
    });
    this.#only = this.#noted.length === 1 ? this.#noted[0] : undefined;
  }

  /** Makes the NCCL calls as a further call of the communicator. */
  makeAgain(number: number): void {
    this.comm.count(number);
    this.make();
  }

  /** Makes the NCCL calls. */
  make(): void {
    if (this.#only === undefined) makeAll(this.#noted);
    else this.#only();
  }
}

function makeAll(noted: readonly Noted[]): void {
  for (const make of noted) make();
}

/** Notes calls with their arguments instead of making them. */
function noting(nccl: Issuing, noted: Noted[]): Issuing {
  const note = (make: Noted): void => void noted.push(make);
  return {
    hasAllToAll: nccl.hasAllToAll,
    allReduce: (from, into, count, type, op, comm, stream) =>
      note(() => nccl.allReduce(from, into, count, type, op, comm, stream)),
    reduce: (from, into, count, type, op, root, comm, stream) =>
      note(() => nccl.reduce(from, into, count, type, op, root, comm, stream)),
    reduceScatter: (from, into, count, type, op, comm, stream) =>
      note(() => nccl.reduceScatter(from, into, count, type, op, comm, stream)),
    allGather: (from, into, count, type, comm, stream) =>
      note(() => nccl.allGather(from, into, count, type, comm, stream)),
    broadcast: (from, into, count, type, root, comm, stream) =>
      note(() => nccl.broadcast(from, into, count, type, root, comm, stream)),
    allToAll: (from, into, count, type, comm, stream) =>
      note(() => nccl.allToAll(from, into, count, type, comm, stream)),
    send: (buffer, count, type, peer, comm, stream) =>
      note(() => nccl.send(buffer, count, type, peer, comm, stream)),
    recv: (buffer, count, type, peer, comm, stream) =>
      note(() => nccl.recv(buffer, count, type, peer, comm, stream)),
  };
}
