/** One process of a job: its rank, queries to the other processes, losses, and the rebuild. */

import { createHash } from "node:crypto";
import type {
  CommInfo,
  CompareDigests,
  JoinRequest,
  MissingRanks,
  PeerProcesses,
  RemoteEnd,
  RemoteTransfer,
  Session,
} from "../api/backend-entry.ts";
import { CommClosedError } from "../api/errors.ts";
import { longestTimerMs } from "../api/ledger/turns.ts";
import { pause } from "./async.ts";
import { type CompareCalls, CrossCheck, FirstConnections, StoreWaits } from "./before-calls.ts";
import { type CallCounters, CommStatus } from "./comm-status.ts";
import { MissingRankFinder } from "./missing-ranks.ts";
import { type GenerationOpener, openOnAllRanks, type RankOpener, rebuildJob } from "./rebuild.ts";
import type { Membership } from "./rendezvous.ts";

/** Time for calls of other ranks to end where the store cannot tell of their end. */
const lastCallsMs = 1_000;

/** A backend's side of a job: opens the rank of this process, and makes the session of each generation. */
export interface SessionOpener<T, S extends Session> extends RankOpener<T> {
  session(opened: T, job: Job): S;
}

/** Opens the session of this process in the generation of a membership, and by `Job.rejoin` in those that follow. */
export function openJob<T, S extends Session>(
  membership: Membership,
  backend: SessionOpener<T, S>,
  { timeoutMs, signal }: Pick<JoinRequest, "timeoutMs" | "signal">,
  compareCalls?: CompareCalls,
): Promise<S> {
  const open = async (next: Membership, bounds: Pick<JoinRequest, "timeoutMs" | "signal">) => {
    const opened = await openOnAllRanks(next, backend, bounds);
    return backend.session(opened, new Job(next, opener, compareCalls));
  };
  const opener: GenerationOpener = {
    open: (next, boundMs) => open(next, { timeoutMs: boundMs, signal: undefined }),
    timeoutMs,
  };
  return open(membership, { timeoutMs, signal });
}

/** A membership, for a session. */
export class Job implements PeerProcesses {
  readonly #membership: Membership;
  /** The membership of this generation, or of the last one that a rebuild tried. */
  #newest: Membership;
  readonly #opener: GenerationOpener;
  readonly #missingRanks: MissingRankFinder;
  readonly #keys = new CommunicatorKeys();
  #isRebuilding = false;
  /** This process leaves the job, unless a later generation has begun. */
  #isLeaving = false;
  readonly #commStatus: CommStatus;
  readonly crossCheck: CrossCheck;
  readonly firstConnections: FirstConnections;
  readonly #waits = new StoreWaits();

  constructor(
    membership: Membership,
    opener: GenerationOpener,
    compareCalls: CompareCalls = "off",
  ) {
    const keyOf = (comm: CommInfo): string => this.#keys.of(comm);
    this.#commStatus = new CommStatus(membership, keyOf);
    this.#missingRanks = new MissingRankFinder(membership, keyOf, this.#commStatus);
    const remoteEnd = (comm: CommInfo): RemoteEnd | undefined => this.remoteEnd(comm);
    this.crossCheck = new CrossCheck(membership, compareCalls, {
      keyOf,
      onCompare: (comm, number) => this.#noteCompared(comm, number),
      missingRanks: this.#missingRanks,
      waits: this.#waits,
      remoteEnd,
    });
    this.firstConnections = new FirstConnections(membership, keyOf, remoteEnd);
    this.#membership = membership;
    this.#newest = membership;
    this.#opener = opener;
  }

  /** The counters of a communicator, the same object every time. */
  countersOf(comm: CommInfo): CallCounters {
    const counters = this.#commStatus.countersOf(comm);
    // A rank that closed it with its own work done announces nothing.
    counters.onDisconnect ??= () => void this.#noteClosers(comm);
    return counters;
  }

  async #noteClosers(comm: CommInfo): Promise<void> {
    for (const [rank, report] of await this.#missingRanks.findClosers(comm))
      this.#commStatus.noteClosed(comm, rank, report);
  }

  /** The key of a communicator, the same in every process. */
  keyOf(comm: CommInfo): string {
    return this.#keys.of(comm);
  }

  /** Adds the keys of the children that call `number` of the parent made, in the order of every process. */
  addChildren(parent: CommInfo, number: number, children: readonly CommInfo[]): void {
    this.#keys.add(parent, number, children);
  }

  /** A communicator takes no more calls: their waits in the store end. */
  retire(comm: CommInfo): void {
    this.#waits.cancel(comm);
    this.#commStatus.retire(comm);
  }

  /** `JobSession.compare`. */
  get compare(): CompareDigests | undefined {
    const { crossCheck } = this;
    return crossCheck.isEnabled ? crossCheck.compare.bind(crossCheck) : undefined;
  }

  /** `JobSession.compareCaptures`. */
  get compareCaptures(): CompareDigests {
    return this.crossCheck.compareCaptures.bind(this.crossCheck);
  }

  /** Counts a compared call. */
  #noteCompared(comm: CommInfo, number: number): void {
    const counters = this.#commStatus.ownCounters(comm);
    if (counters !== undefined) counters.compared = number + 1;
  }

  /** World ranks that a call waits for. */
  missingRanks(comm: CommInfo, number: number): Promise<MissingRanks> {
    return this.#missingRanks.forCall(comm, number);
  }

  /** Ranks of the job that messages wait for; `undefined` where the store does not answer. */
  missingEnds(
    comm: CommInfo,
    remote: readonly RemoteTransfer[],
  ): Promise<Omit<MissingRanks, "haveDiverged"> | undefined> {
    return this.#missingRanks.forMessages(comm, remote);
  }

  reportOrders(report: (isEcho: boolean) => string): void {
    this.#commStatus.reportOrders = report;
  }

  callOrders(isEcho: boolean): Promise<ReadonlyMap<number, string>> {
    return this.#missingRanks.callOrders(isEcho);
  }

  /** This process has aborted a communicator; `hadWork`: with calls under way on the device. */
  aborted(comm: CommInfo, why: unknown, hadWork?: boolean): void {
    this.#commStatus.announceAborted(comm, why, hadWork);
  }

  /** Resolves once the abort has reached the processes that answer. */
  othersKnow(comm: CommInfo): Promise<void> {
    return this.#missingRanks.haveNews(comm);
  }

  /** Resolves when all ranks end a communicator. Where the store cannot tell, it resolves after a time for their calls to end. */
  async allEnd(comm: CommInfo, signal: AbortSignal): Promise<void> {
    const barrier = { key: `end ${this.#keys.of(comm)}`, ranks: comm.ranks };
    const wait = { timeoutMs: longestTimerMs, signal };
    await this.#membership.awaitBarriers([barrier], wait).catch(() => pause(lastCallsMs, signal));
  }

  /** This process has closed a communicator without the others. */
  announceClosed(comm: CommInfo): void {
    this.#commStatus.announceClosed(comm);
  }

  /** True where another process has aborted the communicator with work under way. */
  isBrokenOff(comm: CommInfo): boolean {
    return this.#commStatus.isBrokenOff(comm);
  }

  /** True where another process has ended the communicator alone, or the job continues without this process. */
  isEndedElsewhere(comm: CommInfo): boolean {
    return this.#commStatus.isEndedElsewhere(comm);
  }

  remoteEnd(comm: CommInfo): RemoteEnd | undefined {
    return this.#commStatus.endOf(comm);
  }

  onRemoteEnd(listener: () => void): () => void {
    return this.#commStatus.onChange(listener);
  }

  /** Counted from 1. */
  get generation(): number {
    return this.#membership.generation + 1;
  }

  get initialRanks(): readonly number[] {
    return this.#membership.initialRanks;
  }

  /** Reports every rank with a lost process. */
  onLost(listener: (rank: number, reason: string) => void): void {
    this.#membership.onLost(({ rank, reason }) => {
      // Without a store the ranks still work; only a rebuild needs it.
      if (rank !== undefined) listener(rank, reason);
    });
  }

  /**
   * Opens the next generation once this one is closed, with the same membership. After a failure it may be called again.
   * `close` closes the session of this generation, without its lost ranks.
   */
  async rejoin(
    without: readonly number[] | undefined,
    close: () => Promise<void>,
  ): Promise<Session> {
    if (this.#isRebuilding) {
      throw new CommClosedError({
        headline: "rebuild: this generation of the job was rebuilt already, or is being rebuilt",
        hint: "use the communicator that the first rebuild() gives",
      });
    }
    // A membership that is needed for the next generation stays when the session closes.
    this.#isRebuilding = true;
    const { initialRanks } = this;
    const released = close().catch(warnOfLeftovers);
    try {
      return await rebuildJob(this.#opener, {
        ...{ from: this.#newest, without: this.#inNewest(without), initialRanks, closed: released },
        onMembership: (membership) => {
          this.#newest = membership;
        },
      });
    } catch (error) {
      await released;
      this.#isRebuilding = false;
      if (this.#isLeaving) await this.leave();
      throw error;
    }
  }

  async leave(): Promise<void> {
    this.#isLeaving = true;
    if (this.#isRebuilding) return;
    // A generation that did not open has communicators of its own.
    const isOwn = this.#newest === this.#membership;
    await this.#newest.leave(isOwn ? this.#commStatus.lastStatus() : undefined);
  }

  /** Ranks of this generation as ranks of the newest membership, without those that are not in it. */
  #inNewest(ranks: readonly number[] | undefined): readonly number[] | undefined {
    if (this.#newest === this.#membership) return ranks;
    const { initialRanks } = this.#newest;
    return ranks
      ?.map((rank) => initialRanks.indexOf(this.initialRanks[rank] as number))
      .filter(isRank);
  }
}

/** Resources that could not be released do not stop the rebuild. */
function warnOfLeftovers(error: unknown): void {
  process.emitWarning(`rebuild: not all resources of the last generation were released: ${error}`, {
    type: "TwincclClose",
  });
}

function isRank(found: number): boolean {
  return found >= 0;
}

/** Longest key: keys of the store are short. */
const maxLength = 64;

/**
 * Keys of communicators, the same in every process.
 *
 * @internal
 */
export class CommunicatorKeys {
  readonly #keys = new WeakMap<CommInfo, string>();

  /** The key of a communicator: the key of its parent and the call that made it. */
  of(comm: CommInfo): string {
    return this.#keys.get(comm) ?? "world";
  }

  /** Adds the keys of the children that call `number` of the parent made, in the order of every process. */
  add(parent: CommInfo, number: number, children: readonly CommInfo[]): void {
    for (const [index, child] of children.entries()) {
      this.#keys.set(child, short(`${this.of(parent)}/${number}.${index}`));
    }
  }
}

/** A key, or the hash of one that is too long. */
function short(key: string): string {
  if (key.length <= maxLength) return key;
  return `#${createHash("sha256").update(key).digest("hex").slice(0, 32)}`;
}
