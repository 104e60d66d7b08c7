/**
 * The NCCL calls of one call of all ranks, with all arguments. The steps of `nccl-steps.ts` are recorded once, and replayed for
 * repeated calls without checks of counts, offsets or types. A call that is repeated often becomes one list.
 */

import type { Completion, RepeatedCall } from "../../../api/backend-entry.ts";
import type { Progress } from "../device/progress.ts";
import type { LaunchList } from "../result/cuda.ts";
import type { NcclCalls, NcclList, RecordedCall } from "../result/nccl.ts";
import type { NcclCommunicator } from "./communicator.ts";
import type { CapturedGraph } from "./graphs.ts";
import type { DataCalls, NcclCallArgs, NcclStep } from "./nccl-steps.ts";

/**
 * From which repeat on a list is written. It takes about 20 µs with cold code and saves 0.05 to 0.5 µs per call. By then the
 * calls have taken much longer, and more of them are likely.
 */
const listFromRepeat = 64;

/** The session's side of repeated calls. */
export interface RepeatHost {
  readonly progress: Pick<Progress, "whenDone">;
  /** Records NCCL's plans of a communicator since the previous call. */
  readonly readPlans?: ((comm: string) => void) | undefined;
}

/** A call with all its arguments, submitted again as further calls of its communicator. */
abstract class PreparedCall implements RepeatedCall {
  readonly #comm: NcclCommunicator;
  readonly #host: RepeatHost;

  constructor(comm: NcclCommunicator, host: RepeatHost) {
    this.#comm = comm;
    this.#host = host;
  }

  /** Makes the driver's calls. */
  protected abstract replay(): void;

  submit(number: number, completion: Completion): void {
    const comm = this.#comm;
    if (completion.acceptsMore) {
      this.replay();
      comm.countSubmitted(number);
      return;
    }
    comm.assertOpen();
    try {
      this.replay();
    } catch (error) {
      comm.deferRemoteError(error, completion);
      comm.countSubmitted(number);
      return;
    }
    comm.countSubmitted(number);
    const { progress, readPlans } = this.#host;
    progress.whenDone(comm.devices, comm, completion);
    if (readPlans === undefined) return;
    // Each call's plan is logged.
    readPlans(comm.info.name);
    completion.acceptsMore = false;
  }
}

/** The NCCL calls of a collective with their arguments. */
export class PreparedNcclCall extends PreparedCall {
  readonly #nccl: NcclCalls;
  /** One group a step; none for a step that moves nothing. */
  readonly #groups: readonly (readonly RecordedCall[])[];
  #list: NcclList | undefined;
  #repeats = 0;

  constructor(
    nccl: NcclCalls,
    comm: NcclCommunicator,
    host: RepeatHost,
    steps: readonly NcclStep[],
    parts: readonly NcclCallArgs[],
  ) {
    super(comm, host);
    this.#nccl = nccl;
    const { hasAllToAll } = nccl;
    this.#groups = steps
      .map((step) => {
        const recorded: RecordedCall[] = [];
        const recording = recorder(hasAllToAll, recorded);
        for (const part of parts) step(recording, part);
        return recorded;
      })
      .filter(({ length }) => length > 0);
  }

  protected replay(): void {
    if (this.#list !== undefined) this.#list.run();
    else this.#replayUnlisted();
  }

  /** Makes the NCCL calls for the first time. */
  make(): void {
    const nccl = this.#nccl;
    for (const recorded of this.#groups) {
      if (recorded.length === 1) (recorded[0] as RecordedCall)(nccl);
      else
        nccl.group(() => {
          for (const call of recorded) call(nccl);
        });
    }
  }

  #replayUnlisted(): void {
    if (++this.#repeats < listFromRepeat) {
      this.make();
      return;
    }
    // Where there are no lists, each is made by itself as before.
    this.#list = this.#nccl.listed(this.#groups) ?? { run: () => this.make() };
    this.#list.run();
  }
}

/** Records calls with their arguments instead of making them. */
function recorder(hasAllToAll: boolean, recorded: RecordedCall[]): DataCalls {
  const record = (call: RecordedCall): void => void recorded.push(call);
  return {
    hasAllToAll,
    allReduce: (from, into, count, type, op, comm, stream) =>
      record((nccl) => nccl.allReduce(from, into, count, type, op, comm, stream)),
    reduce: (from, into, count, type, op, root, comm, stream) =>
      record((nccl) => nccl.reduce(from, into, count, type, op, root, comm, stream)),
    reduceScatter: (from, into, count, type, op, comm, stream) =>
      record((nccl) => nccl.reduceScatter(from, into, count, type, op, comm, stream)),
    allGather: (from, into, count, type, comm, stream) =>
      record((nccl) => nccl.allGather(from, into, count, type, comm, stream)),
    broadcast: (from, into, count, type, root, comm, stream) =>
      record((nccl) => nccl.broadcast(from, into, count, type, root, comm, stream)),
    allToAll: (from, into, count, type, comm, stream) =>
      record((nccl) => nccl.allToAll(from, into, count, type, comm, stream)),
    send: (buffer, count, type, peer, comm, stream) =>
      record((nccl) => nccl.send(buffer, count, type, peer, comm, stream)),
    recv: (buffer, count, type, peer, comm, stream) =>
      record((nccl) => nccl.recv(buffer, count, type, peer, comm, stream)),
  };
}

/**
 * From which repeat on a list is written. It takes about 20 µs with cold code and saves about 0.2 µs per GPU and replay. By
 * then the replays have taken much longer.
 */
const launchListFromRepeat = 8;

export class PreparedGraphLaunch extends PreparedCall {
  readonly #graph: CapturedGraph;
  /** As long as the recording lives: no rank can replay it once any has given back its part. */
  #list: LaunchList | undefined;
  #repeats = 0;

  constructor(comm: NcclCommunicator, host: RepeatHost, graph: CapturedGraph) {
    super(comm, host);
    this.#graph = graph;
  }

  protected replay(): void {
    if (this.#list !== undefined) this.#list.run();
    else this.#launchUnlisted();
  }

  #launchUnlisted(): void {
    if (++this.#repeats === launchListFromRepeat) this.#list = this.#graph.launchList();
    if (this.#list !== undefined) this.#list.run();
    else this.#graph.launch();
  }
}
