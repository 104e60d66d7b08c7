/**
 * The communicators of a world: the one of all ranks, and those of splits.
 *
 * A communicator from a split stays in memory until all its ranks have closed it, or until it is aborted. A long run with many
 * splits therefore takes memory for its open communicators only. An id is never used twice.
 */
import type { CommInfo } from "../backend.ts";
import { type CallOrder, CommAbortedError, type CommError } from "../errors.ts";
import type { WorldContext } from "../ledger/comm-state.ts";
import { commsIn, deadlocked, orderErrors } from "../ledger/deadlock/report.ts";
import { type Failures, type Termination, terminationOf } from "../ledger/failures.ts";
import { Ledger } from "../ledger/ledger.ts";
import { type CommRequests, Member } from "../member/member.ts";
import { runAll } from "../run-all.ts";
import {
  type AbortScope,
  abortedError,
  closedElsewhereErrors,
  lostErrors,
} from "./world-errors.ts";

/** One communicator: its ledger, and each rank's end of it. */
interface CommEntry {
  readonly ledger: Ledger;
  readonly members: readonly Member[];
  /** Number of ends that their ranks have not closed. */
  open: number;
  aborted: boolean;
}

/** An unobserved failure, as the error of its rank's later calls. */
export type UnobservedFailure = readonly [worldRank: number, poison: CommError];

/** Makes, finds and forgets the communicators of one world. */
export class Communicators {
  /** Each rank's end of the communicator of all ranks. */
  readonly members: readonly Member[];
  readonly #world: WorldContext;
  readonly #abortWorld: (reason: unknown) => void;
  /** The communicators in use, oldest first. */
  readonly #entries = new Map<CommInfo, CommEntry>();

  constructor(name: string, world: WorldContext, abortWorld: (reason: unknown) => void) {
    this.#world = world;
    this.#abortWorld = abortWorld;
    const { size, localRanks: local } = world.session.info;
    const ranks = Array.from({ length: size }, (_, rank) => rank);
    this.members = [...this.open({ id: world.nextId++, name, ranks, local }).values()];
  }

  /** The ledgers in use: that of all ranks first, then those of splits, oldest first. */
  get ledgers(): readonly Ledger[] {
    return Array.from(this.#entries.values(), ({ ledger }) => ledger);
  }

  /** A run begins: all as new, but what was aborted or closed stays so. */
  reset(): void {
    this.#world.unobserved.clear();
    for (const [comm, entry] of this.#entries) {
      if (isOver(entry)) this.#entries.delete(comm);
      else entry.ledger.reset();
    }
    for (const member of this.members) member.reopen();
  }

  /** Unobserved failures, by world rank: those of the oldest communicator first. */
  poisons(): Iterable<UnobservedFailure> {
    return this.#ofUnobserved((failures, rank) => failures.poison(rank));
  }

  /** Unobserved failures that neither a refused call nor closing has reported. */
  unreported(): Iterable<UnobservedFailure> {
    return this.#ofUnobserved((failures, rank) => failures.unreported(rank));
  }

  *#ofUnobserved(
    errorOf: (failures: Failures, rank: number) => CommError | undefined,
  ): Iterable<UnobservedFailure> {
    const comms = [...this.#world.unobserved].sort((a, b) => a.comm.id - b.comm.id);
    for (const { comm, failures } of comms) {
      for (const [rank, worldRank] of comm.ranks.entries()) {
        const poison = errorOf(failures, rank);
        if (poison !== undefined) yield [worldRank, poison];
      }
    }
  }

  /** Aborts one communicator, and calls its hooks. */
  abort(comm: CommInfo, reason: unknown, scope: AbortScope = scopeOf(comm)): void {
    const entry = this.#entries.get(comm);
    if (entry === undefined || entry.aborted) return;
    const { text, facts } = abortedError(comm.name, reason, scope);
    entry.ledger.abort(terminationOf(CommAbortedError, comm, text, facts));
    this.#forgetLater(entry);
    notifyAborted([entry], reason);
  }

  /** Aborts every communicator, and calls the hooks of those that were not aborted before. */
  abortAll(termination: Termination, reason: unknown): void {
    this.#endEach((ledger) => ledger.abort(termination));
    notifyAborted([...this.#entries.values()], reason);
  }

  /** Ends every communicator that a lost world rank is a member of. */
  onRankLost(lost: number, reason: string): void {
    this.#endEach((ledger) => {
      const { comm } = ledger;
      const lostRank = comm.ranks.indexOf(lost);
      if (lostRank >= 0) ledger.abort(lostErrors(comm, lostRank, reason));
    });
  }

  /** Ends a communicator, of which another process has closed its end. */
  onRemoteClose(comm: CommInfo, closer: number): void {
    const { ledger } = this.#entries.get(comm) ?? {};
    ledger?.abort(closedElsewhereErrors(comm, comm.ranks.indexOf(closer)));
  }

  /** Ends every communicator, or those that a world rank is a member of. */
  terminateAll(termination: Termination, worldRank?: number): void {
    this.#endEach((ledger) => {
      const { ranks } = ledger.comm;
      // The first communicator has all ranks of the world, each at its own place.
      const isConcerned = worldRank === undefined || ranks[worldRank] === worldRank;
      if (isConcerned || ranks.includes(worldRank)) ledger.terminate(termination);
    });
  }

  /** Ends communicators of calls that wait for each other, across processes. */
  endInverted(orders: readonly CallOrder[]): void {
    const { errorOf } = orderErrors(orders, deadlocked);
    const comms = commsIn(orders);
    this.#endEach((ledger) => {
      if (comms.has(ledger.comm.name)) ledger.abort(errorOf(ledger.comm));
    });
  }

  #endEach(end: (ledger: Ledger) => void): void {
    this.#world.endTogether(() => this.ledgers.forEach(end));
  }

  /** Resolves when no call is being executed or about to wake its ranks. */
  async drained(): Promise<void> {
    for (const ledger of this.ledgers) await ledger.drained();
  }

  /** The world is closed: lets go of all communicators but that of all ranks, which still explains calls. */
  release(): void {
    for (const comm of this.#entries.keys()) if (comm.id !== 0) this.#entries.delete(comm);
  }

  /** Forgets a communicator as soon as nothing of it is under way. */
  #forgetLater(entry: CommEntry): void {
    const { ledger } = entry;
    void ledger.drained().then(() => {
      if (!isOver(entry) || ledger.isBusy || !this.#entries.delete(ledger.comm)) return;
      this.#world.session.release(ledger.comm);
      this.#forgetObserved();
    });
  }

  /** Forgets failures that the program has observed since, and the communicators that they keep. */
  #forgetObserved(): void {
    for (const each of this.#world.unobserved) {
      const { comm, failures } = each;
      for (const rank of comm.ranks.keys()) failures.poison(rank);
      if (failures.allObserved) this.#world.unobserved.delete(each);
    }
  }

  /** Makes a communicator: the ends of its ranks here, by world rank. */
  open(comm: CommInfo): ReadonlyMap<number, Member> {
    const ledger = new Ledger(comm, this.#world);
    const requests: CommRequests = {
      abort: (reason) => (comm.id === 0 ? this.#abortWorld(reason) : this.abort(comm, reason)),
      closed: () => this.#onClosed(comm),
    };
    const members = comm.local.map((rank) => new Member(rank, ledger, requests));
    this.#entries.set(comm, { ledger, members, open: members.length, aborted: false });
    return new Map(members.map((member) => [comm.ranks[member.rank] as number, member]));
  }

  /** A rank has closed its end. A communicator without open ends is forgotten. */
  #onClosed(comm: CommInfo): void {
    const entry = this.#entries.get(comm);
    if (entry === undefined) return;
    entry.open--;
    if (isOver(entry)) this.#forgetLater(entry);
  }
}

/** The scope of the abort of one communicator: that of all ranks is the world. */
function scopeOf({ id }: CommInfo): AbortScope {
  return id === 0 ? "world" : "split";
}

/** True for a split's communicator that no rank can use any more. */
function isOver({ ledger, open, aborted }: CommEntry): boolean {
  return ledger.comm.id !== 0 && (aborted || open === 0);
}

/** Calls the hooks of communicators that were not aborted before; then throws the first error of them. */
function notifyAborted(ended: readonly CommEntry[], reason: unknown): void {
  const entries = ended.filter(({ aborted }) => !aborted);
  for (const entry of entries) entry.aborted = true;
  const members = entries.flatMap((entry) => entry.members);
  runAll(
    members.map(
      ({ hooks }) =>
        (): void =>
          hooks.notifyAborted(reason),
    ),
  );
}
