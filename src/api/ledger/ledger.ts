/**
 * The call ledger of one communicator: ranks post calls, it matches them by number, compares their signatures and
 * hands complete, checked sets to the session, one at a time and in order.
 *
 * A wrong set never reaches the session. Every rank of it gets the same typed error; the call number is used up on
 * all of them, so the communicator stays in step and usable.
 */
import type { CallSet, CommInfo, Session } from "../backend.ts";
import { ranksText } from "../error-text.ts";
import { CommAbortedError, type CommError } from "../errors.ts";
import { invariant } from "../invariant.ts";
import { CommOp } from "../op.ts";
import { mismatchError, mismatchOf } from "./compare.ts";
import { andThen, exchangeCounts } from "./counts-exchange.ts";
import type { Monitor } from "./monitor.ts";
import { type Posting, Slot } from "./slot.ts";
import { UnservedError } from "./unserved.ts";

/** Makes the error that a rank of a dead communicator gets. */
export type Death = (rank: number) => CommError;

/** Prepares a complete set: allocates what could not be known before. Throws when it cannot be served. */
export type Prepare = (set: CallSet) => void;

/** Matches the calls of all ranks of one communicator. */
export class Ledger {
  readonly comm: CommInfo;
  readonly #session: Session;
  readonly #monitor: Monitor;
  readonly #prepare: Prepare;
  #next: number[];
  #slots: Slot[] = [];
  #firstNumber = 0;
  #current: Slot | undefined;
  #idle: (() => void)[] = [];
  #death: Death | undefined;
  #unseen: CommOp[][];

  constructor(comm: CommInfo, session: Session, monitor: Monitor, prepare: Prepare) {
    this.comm = comm;
    this.#session = session;
    this.#monitor = monitor;
    this.#prepare = prepare;
    this.#next = comm.ranks.map(() => 0);
    this.#unseen = comm.ranks.map(() => []);
  }

  /** Calls that some rank has not made yet, oldest first. */
  get openSlots(): readonly Slot[] {
    return this.#slots.filter((slot) => !slot.complete);
  }

  /** Takes a rank's next call. The operation fails at once when the communicator is dead or poisoned. */
  post(rank: number, posting: Omit<Posting, "op">): CommOp {
    const number = this.#next[rank] as number;
    const op = new CommOp(number, rank, this.comm.ranks[rank] as number, this.#monitor);
    const refusal = this.#death?.(rank) ?? this.poison(rank);
    if (refusal !== undefined) {
      this.#failed(op, refusal);
      return op;
    }
    this.#next[rank] = number + 1;
    const index = number - this.#firstNumber;
    this.#slots[index] ??= new Slot(number, this.comm);
    const slot = this.#slots[index];
    invariant(slot !== undefined && slot.postings[rank] === undefined, "a rank posts a call once");
    slot.postings[rank] = { ...posting, op };
    slot.arrived++;
    this.#monitor.moved();
    if (slot.complete) this.#pump();
    return op;
  }

  /** A failure of this rank that nobody has looked at; it makes every later call fail too. */
  poison(rank: number): CommError | undefined {
    const unseen = this.#unseen[rank] as CommOp[];
    if (unseen.length === 0) return undefined;
    const still = unseen.filter((op) => !op.isObserved);
    this.#unseen[rank] = still;
    const first = still[0];
    if (first === undefined) return undefined;
    return new CommAbortedError(
      {
        headline: `call ${first.call} on "${this.comm.name}" failed and nobody awaited it`,
        hint: "await every operation, or handle its rejection",
      },
      {
        rank,
        size: this.comm.ranks.length,
        comm: this.comm.name,
        call: first.call,
        cause: first.error,
      },
    );
  }

  /** An operation that was refused before it was posted; unless someone awaits it, it poisons the rank. */
  refuse(rank: number, error: unknown): CommOp {
    const op = new CommOp(-1, rank, this.comm.ranks[rank] as number, this.#monitor);
    this.#failed(op, error);
    return op;
  }

  /** The operations of a rank that have not settled. */
  pending(rank: number): CommOp[] {
    const slots = this.#current === undefined ? this.#slots : [this.#current, ...this.#slots];
    const ops = slots.flatMap((slot) => slot.postings[rank]?.op ?? []);
    return ops.filter((op) => op.pending);
  }

  /** Takes back a call that is still waiting for other ranks; they fail when they make it. */
  cancel(op: CommOp, error: CommError): boolean {
    if (op.status !== "waiting") return false;
    this.#failed(op, error);
    this.#monitor.moved();
    return true;
  }

  /** Ends the communicator: open calls and all later ones fail. Calls that are being executed still finish. */
  kill(death: Death): void {
    if (this.#death !== undefined) return;
    this.#death = death;
    const open = this.#slots.filter((slot) => !slot.complete);
    this.#slots = this.#slots.filter((slot) => slot.complete);
    for (const slot of open) {
      for (const posting of slot.postings) {
        if (posting !== undefined) this.#failed(posting.op, death(posting.op.rank));
      }
    }
  }

  /** Back to call 0 on every rank, as new. */
  reset(): void {
    invariant(this.#current === undefined, "a ledger is reset when nothing runs");
    this.#death = undefined;
    this.#slots = [];
    this.#firstNumber = 0;
    this.#next = this.comm.ranks.map(() => 0);
    this.#unseen = this.comm.ranks.map(() => []);
  }

  /** Resolves when no complete call is waiting or being executed. */
  drained(): Promise<void> {
    if (this.#current === undefined) return Promise.resolve();
    return new Promise((resolve) => this.#idle.push(resolve));
  }

  #pump(): void {
    while (this.#current === undefined) {
      const slot = this.#slots[0];
      if (slot === undefined || !slot.complete) break;
      this.#slots.shift();
      this.#firstNumber = slot.number + 1;
      this.#serve(slot);
    }
    if (this.#current === undefined) {
      const waiting = this.#idle;
      this.#idle = [];
      for (const resolve of waiting) resolve();
    }
  }

  #serve(slot: Slot): void {
    const postings = slot.postings as Posting[];
    const cancelled = postings.flatMap(({ op }, rank) => (op.pending ? [] : [rank]));
    const mismatch = cancelled.length === 0 ? mismatchOf(slot) : undefined;
    if (cancelled.length > 0) {
      this.#fail(postings, (rank) => cancelError(slot, cancelled, rank));
    } else if (mismatch !== undefined) {
      this.#fail(postings, (rank) => mismatchError(slot, mismatch, rank));
    } else this.#perform(slot, postings);
  }

  #perform(slot: Slot, postings: readonly Posting[]): void {
    const calls = postings.map((posting) => posting.call);
    const { comm, number } = slot;
    const set: CallSet = { comm, number, collective: calls[0]?.collective ?? "barrier", calls };
    try {
      const done = this.#submit(set, postings);
      if (!(done instanceof Promise)) {
        this.#complete(set, postings);
        return;
      }
      this.#current = slot;
      this.#monitor.executing(1);
      done.then(
        () => this.#ended(() => this.#complete(set, postings)),
        (error: unknown) => this.#ended(() => this.#fail(postings, errorByRank(error))),
      );
    } catch (error) {
      this.#fail(postings, errorByRank(error));
    }
  }

  #submit(set: CallSet, postings: readonly Posting[]): void | Promise<void> {
    const ready =
      set.collective === "allToAllv" && set.calls.some((call) => call.recvCounts === undefined)
        ? exchangeCounts(this.#session, set)
        : undefined;
    return andThen(ready, () => {
      this.#prepare(set);
      const done = this.#session.execute(set);
      for (const { op } of postings) op.submit();
      return done;
    });
  }

  #ended(settle: () => void): void {
    this.#current = undefined;
    settle();
    this.#monitor.executing(-1);
    this.#pump();
  }

  #complete(set: CallSet, postings: readonly Posting[]): void {
    this.#monitor.moved();
    for (const rank of this.#session.wakeOrder(set)) {
      const posting = postings[rank] as Posting;
      posting.op.finishedAtPs = posting.call.finishedAtPs;
      posting.op.complete(posting.resultOf(posting.call));
    }
  }

  #fail(postings: readonly Posting[], errorOf: (rank: number) => unknown): void {
    this.#monitor.moved();
    postings.forEach(({ op }, rank) => {
      this.#failed(op, errorOf(rank));
    });
  }

  #failed(op: CommOp, error: unknown): void {
    if (!op.pending) return;
    if (!op.isObserved) this.#unseen[op.rank]?.push(op);
    op.fail(error);
  }
}

function errorByRank(error: unknown): (rank: number) => unknown {
  return error instanceof UnservedError ? error.forRank : () => error;
}

function cancelError(slot: Slot, ranks: readonly number[], rank: number): CommAbortedError {
  return new CommAbortedError(
    {
      headline: `call ${slot.number} on "${slot.comm.name}": ${ranksText(ranks)} cancelled it`,
      hint: "nothing was written; the communicator is still in step",
    },
    { rank, size: slot.postings.length, comm: slot.comm.name, call: slot.number, ranks },
  );
}
