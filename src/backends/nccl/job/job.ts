/** A process as a member of a job: its rank, the news about the others, and the way to the next life of the job. */

import { createHash } from "node:crypto";
import {
  CommClosedError,
  type CommInfo,
  type MissingRanks,
  type PeerProcesses,
  type RemoteEnd,
  type RemoteTransfer,
  type Session,
} from "../../../api/index.ts";
import { CallCounters } from "../calls/call-counters.ts";
import type { RemoteEnds } from "../calls/communicator-ends.ts";
import type { Membership } from "../rendezvous/index.ts";
import { CommStatus } from "./comm-status.ts";
import { type CompareCalls, CrossCheck, StoreWaits } from "./cross-check.ts";
import { FirstContacts } from "./first-contact.ts";
import { MissingRankFinder } from "./missing-ranks.ts";
import { type GenerationOpener, rebuildJob } from "./rebuild.ts";

/** Of so many communicators that are over it is remembered what was made on them. */
const mostRetired = 64;

/** A membership as a session sees it. */
export class Job implements PeerProcesses, RemoteEnds {
  readonly #membership: Membership;
  /** That of this life, until one of a later life was tried. */
  #newest: Membership;
  readonly #opener: GenerationOpener;
  readonly #missingRanks: MissingRankFinder;
  readonly #keys = new CommunicatorKeys();
  /** The calls that this process has made: by communicator, and by its key. */
  readonly #counters = new WeakMap<CommInfo, CallCounters>();
  readonly #countersByKey = new Map<string, CallCounters>();
  readonly #retired: string[] = [];
  #isRebuilding = false;
  /** This process is to be in the job no more, unless a later life has begun. */
  #isLeaving = false;
  readonly #commStatus: CommStatus;
  readonly crossCheck: CrossCheck;
  readonly firstContacts: FirstContacts;
  readonly #waits = new StoreWaits();

  constructor(membership: Membership, lives: GenerationOpener, compareCalls: CompareCalls = "off") {
    const keyOf = (comm: CommInfo): string => this.#keys.of(comm);
    this.crossCheck = new CrossCheck(membership, compareCalls, {
      keyOf,
      onCompare: (comm, number) => this.#noteCompared(comm, number),
      notSubmitted: (comm, number) => this.#missingRanks.notSubmitted(comm, number),
      waits: this.#waits,
    });
    this.firstContacts = new FirstContacts(membership, keyOf);
    this.#commStatus = new CommStatus(membership, keyOf);
    this.#membership = membership;
    this.#newest = membership;
    this.#opener = lives;
    this.#missingRanks = new MissingRankFinder(membership, keyOf, this.#countersByKey);
  }

  /** The calls that this process has made on a communicator, by the same object every time. */
  countersOf(comm: CommInfo): CallCounters {
    let made = this.#counters.get(comm);
    if (made === undefined) {
      made = new CallCounters(comm.ranks.length);
      this.#counters.set(comm, made);
      this.#countersByKey.set(this.#keys.of(comm), made);
    }
    return made;
  }

  /** Communicators that call `number` of their parent made: all of them, in the order that every process has. */
  addChildren(parent: CommInfo, number: number, children: readonly CommInfo[]): void {
    this.#keys.add(parent, number, children);
  }

  /** A communicator takes no more calls: what they wait for ends. Others may ask what was made on it, if it is one of the last. */
  retire(comm: CommInfo): void {
    this.#waits.cancel(comm);
    const made = this.#counters.get(comm);
    if (made !== undefined) made.isOver = true;
    this.#retired.push(this.#keys.of(comm));
    if (this.#retired.length > mostRetired)
      this.#countersByKey.delete(this.#retired.shift() as string);
  }

  /** A call is compared with those of the others. */
  #noteCompared(comm: CommInfo, number: number): void {
    const made = this.#countersByKey.get(this.#keys.of(comm));
    if (made !== undefined) made.compared = number + 1;
  }

  /** Ranks that have not come to a call, by their own words. */
  missingRanks(comm: CommInfo, number: number): Promise<MissingRanks> {
    return this.#missingRanks.forCall(comm, number);
  }

  /** World ranks without which messages that were made together cannot go on; `undefined` where no rank can be queried. */
  missingEnds(comm: CommInfo, halves: readonly RemoteTransfer[]): Promise<number[] | undefined> {
    return this.#missingRanks.forMessages(comm, halves);
  }

  /** This process's end of a communicator was aborted. */
  aborted(comm: CommInfo, why: unknown): void {
    this.#commStatus.reportAborted(comm, why);
  }

  /** This process has closed its end of a communicator, and the others did not come to it. */
  async reportClosedAlone(comm: CommInfo): Promise<void> {
    const made = this.#counters.get(comm);
    if (made !== undefined) await this.#commStatus.reportClosed(comm, made);
  }

  /** True where another process has ended a communicator alone, so that calls of this process never end. */
  isEndedElsewhere(comm: CommInfo): Promise<boolean> {
    return this.#commStatus.isEndedElsewhere(comm);
  }

  /** The end of a communicator without calls that this process waits for. */
  async remoteEnd(comm: CommInfo): Promise<RemoteEnd | undefined> {
    const own = this.#countersByKey.get(this.#keys.of(comm));
    const ended = await this.#commStatus.endOf(comm, own);
    if (ended !== undefined || own?.disconnected !== true) return ended;
    // A rank that closed it, without waiting for the others, has left no word.
    const rank = await this.#missingRanks.findCloser(comm, own);
    return rank === undefined ? undefined : { rank, aborted: undefined };
  }

  get rank(): number {
    return this.#membership.rank;
  }

  /** Counted from 0. */
  get generation(): number {
    return this.#membership.generation;
  }

  get initialRanks(): readonly number[] {
    return this.#membership.initialRanks;
  }

  /** Reports every rank with a lost process. */
  onLost(listener: (rank: number, reason: string) => void): void {
    this.#membership.onLost(({ rank, reason }) => {
      // Without the place itself the ranks still work; only a rebuild would miss it.
      if (rank !== undefined) listener(rank, reason);
    });
  }

  /** The membership goes on in the next life, so that closing the session does not end it. */
  beginRebuild(): void {
    if (this.#isRebuilding) {
      throw new CommClosedError({
        headline: "rebuild: this life of the job was rebuilt already, or is about to be",
        hint: "use the communicator that the first rebuild() gives",
      });
    }
    this.#isRebuilding = true;
  }

  /** Opens the next life once this one is closed. Where that fails the membership is this life's again: it may try again. */
  async rejoin(without: readonly number[] | undefined, closed: Promise<void>): Promise<Session> {
    const { initialRanks } = this;
    const given = closed.catch(warnOfLeftovers);
    try {
      return await rebuildJob(this.#opener, {
        ...{ from: this.#newest, without: this.#inNewest(without), initialRanks, closed: given },
        onMembership: (membership) => {
          this.#newest = membership;
        },
      });
    } catch (error) {
      await given;
      this.#isRebuilding = false;
      if (this.#isLeaving) await this.leave();
      throw error;
    }
  }

  async leave(): Promise<void> {
    this.#isLeaving = true;
    if (this.#isRebuilding) return;
    this.#missingRanks.end();
    await this.#newest.leave();
  }

  /** Ranks of this life in the numbers of the newest membership: without those that are not in it. */
  #inNewest(ranks: readonly number[] | undefined): readonly number[] | undefined {
    if (this.#newest === this.#membership) return ranks;
    const { initialRanks } = this.#newest;
    return ranks
      ?.map((rank) => initialRanks.indexOf(this.initialRanks[rank] as number))
      .filter(isRank);
  }
}

/** Parts of a life that could not be given back stay; its ranks go on. */
function warnOfLeftovers(error: unknown): void {
  process.emitWarning(`rebuild: not all of the life before could be given back: ${error}`, {
    type: "TwincclClose",
  });
}

function isRank(found: number): boolean {
  return found >= 0;
}

/** Names stand in keys of the store, which are short. */
const mostLength = 64;

/**
 * The names that one process gives.
 *
 * @internal
 */
export class CommunicatorKeys {
  readonly #keys = new WeakMap<CommInfo, string>();

  /** The name of a communicator: it says which call of which other one made it. */
  of(comm: CommInfo): string {
    return this.#keys.get(comm) ?? "world";
  }

  /** Communicators that call `number` of their parent made: all of them, in the order that every process has. */
  add(parent: CommInfo, number: number, children: readonly CommInfo[]): void {
    for (const [index, child] of children.entries()) {
      this.#keys.set(child, short(`${this.of(parent)}/${number}.${index}`));
    }
  }
}

/** A long name, of splits of splits of splits, by its hash. */
function short(name: string): string {
  if (name.length <= mostLength) return name;
  return `#${createHash("sha256").update(name).digest("hex").slice(0, 32)}`;
}
