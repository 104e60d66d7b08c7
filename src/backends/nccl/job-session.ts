/** The session of one process of a job: comparisons, first connections, losses, and the rebuild. */
import type {
  CommInfo,
  CompareDigests,
  JobSession,
  PeerBarrier,
  PeerProcesses,
  Session,
  Work,
} from "../../api/backend-entry.ts";
import type { Job } from "../../job/job.ts";
import { abortedError } from "./calls/communicator.ts";
import { callBarrier, messagesBarrier } from "./calls/first-connection.ts";
import type { Progress } from "./device/progress.ts";
import { NcclSession, type SessionParts } from "./session.ts";

/** This process's rank of a job of several processes. */
export class NcclJobSession extends NcclSession implements JobSession {
  readonly generation: number;
  readonly initialRanks: readonly number[];
  readonly compare: CompareDigests | undefined;
  readonly compareCaptures: CompareDigests;
  readonly #job: Job;
  readonly #main: Progress;

  constructor(parts: SessionParts & { readonly job: Job }) {
    super(parts);
    const { job, progress } = parts;
    this.#job = job;
    this.#main = progress;
    this.generation = job.generation;
    this.initialRanks = job.initialRanks;
    this.compare = job.compare;
    this.compareCaptures = job.compareCaptures;
  }

  get peers(): PeerProcesses {
    return this.#job;
  }

  onLost(listener: (rank: number, reason: string) => void): void {
    this.#job.onLost(listener);
  }

  holdsWork(comm: CommInfo): boolean {
    return this.#progressOf(comm).holdsWork;
  }

  #progressOf(comm: CommInfo): Progress {
    return this.openCommunicator(comm)?.progress ?? this.#main;
  }

  barrier(work: Work): PeerBarrier | undefined {
    const progress = this.#progressOf(work.comm);
    const wait: PeerBarrier | undefined = progress.holdsWork
      ? (cancelled) => progress.holdEndsBefore(cancelled)
      : this.#connectionBarrier(work);
    if (wait === undefined) return undefined;
    this.openCommunicator(work.comm)?.countWaiting(work);
    // Each of the two may begin while the other one is waited for.
    return async (cancelled) =>
      (await wait(cancelled)) && ((await this.barrier(work)?.(cancelled)) ?? true);
  }

  #connectionBarrier(work: Work): PeerBarrier | undefined {
    const comm = this.openCommunicator(work.comm);
    const { firstConnections } = this.#job;
    return "transfers" in work
      ? messagesBarrier(firstConnections, comm, work.remote)
      : callBarrier(firstConnections, comm, work);
  }

  /**
   * Resolves while work may be submitted: what follows, such as the call of exchanged counts, is submitted then. Rejects where the
   * communicator ends before.
   */
  override async execute(work: Work): Promise<void> {
    const comm = this.openCommunicator(work.comm);
    await super.execute(work);
    if (await (comm?.progress ?? this.#main).holdEndsBefore(comm?.overSignal)) return;
    throw abortedError(work.comm, comm?.abortReason);
  }

  async rejoin(without: readonly number[] | undefined): Promise<Session> {
    return this.#job.rejoin(without, () => this.endGeneration());
  }
}
