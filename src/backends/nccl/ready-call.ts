/**
 * The NCCL calls of one call of all ranks, with all their arguments: what `issue.ts` asks for is noted, and made as often
 * as the same call comes again, without a look at counts, offsets or types.
 */
import type { NcclCommunicator } from "./communicators.ts";
import type { Issuing, Part, Step } from "./issue.ts";
import type { NcclCalls } from "./result/nccl.ts";

/** An NCCL call, or a group of them. */
type Deed = () => void;

/** A call that can be made again and again. */
export class ReadyCall {
  readonly comm: NcclCommunicator;
  readonly #deeds: readonly Deed[];

  /** One group a step, where more than one NCCL call is in it. */
  constructor(
    nccl: NcclCalls,
    comm: NcclCommunicator,
    steps: readonly Step[],
    parts: readonly Part[],
  ) {
    this.comm = comm;
    this.#deeds = steps.flatMap((step) => {
      const deeds: Deed[] = [];
      const issuing = noting(nccl, deeds);
      for (const part of parts) step(issuing, part);
      return deeds.length > 1 ? [() => nccl.group(() => allOf(deeds))] : deeds;
    });
  }

  /** Makes the NCCL calls. */
  make(): void {
    allOf(this.#deeds);
  }
}

function allOf(deeds: readonly Deed[]): void {
  for (const deed of deeds) deed();
}

/** Notes calls with their arguments instead of making them. */
function noting(nccl: Issuing, deeds: Deed[]): Issuing {
  const note = (deed: Deed): void => void deeds.push(deed);
  return {
    hasBlocks: nccl.hasBlocks,
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
    gather: (from, into, count, type, root, comm, stream) =>
      note(() => nccl.gather(from, into, count, type, root, comm, stream)),
    scatter: (from, into, count, type, root, comm, stream) =>
      note(() => nccl.scatter(from, into, count, type, root, comm, stream)),
    send: (buffer, count, type, peer, comm, stream) =>
      note(() => nccl.send(buffer, count, type, peer, comm, stream)),
    recv: (buffer, count, type, peer, comm, stream) =>
      note(() => nccl.recv(buffer, count, type, peer, comm, stream)),
  };
}
