/**
 * The call ledger of one communicator: ranks post calls, the ledger matches them and dispatches complete ones, one at a time.
 *
 * The calls of a rank are dispatched in the order in which it made them: a collective call when it is at the head of all ranks'
 * queues, sends and receives when a pair of them is. A wrong call fails on every rank and is then over, so the communicator
 * stays in step and usable.
 */
import type { CommInfo, VirtualClock } from "../backend.ts";
import type { CommError } from "../errors.ts";
import { invariant } from "../invariant.ts";
import type { Prepared } from "../member/prepared.ts";
import type { CommOp, OpMaker, Resumption } from "../op.ts";
import { Windows } from "./compare.ts";
import { absent, Deadlines, firstDue, type Holdup, holdupOf, timeoutError } from "./deadlines.ts";
import type { Monitor } from "./deadlock/monitor.ts";
import { ComingTogether, serveSlot, serveTransfers } from "./dispatch.ts";
import {
  type Cancelled,
  type Death,
  deathAfter,
  errorByCall,
  type FailedCall,
  Failures,
  tellOthers,
  UnservedError,
} from "./failures.ts";
import { Batch } from "./messages.ts";
import { type Goings, goingsOf, repeated, repeatsFreely } from "./persistent.ts";
import type { Posting, TransferPosting } from "./posting.ts";
import { CallNumbers, headWait, Lines, type OpenWait, openWaits, Slots } from "./queues.ts";
import type { ServeHost } from "./settle.ts";
import { CallQueue, type QueuedCall, type Turns } from "./submission.ts";
import { Quiet, type ReadyQueue, type Settling } from "./wake-ups.ts";

/** The world's side of a ledger. */
export interface LedgerHost extends Pick<ServeHost, "session" | "prepare" | "organise"> {
  /** An operation of this ledger has failed unobserved. */
  unseen(ledger: Ledger): void;
  /** Wakes the ranks of all its ledgers. */
  readonly settling: Settling;
  /** Present where ranks resume one at a time. */
  readonly ready: ReadyQueue | undefined;
}

/** Matches the calls of all ranks of one communicator. */
export class Ledger {
  readonly comm: CommInfo;
  readonly makers: Makers;
  readonly #serve: ServeHost;
  readonly #monitor: Monitor;
  readonly #lines: Lines;
  readonly numbers: CallNumbers;
  readonly #slots: Slots;
  #executing = false;
  readonly #repeatsFreely: boolean;
  /** Calls that the session has queued. */
  readonly #queued: CallQueue;
  /** Calls that are made again one right behind the other. */
  readonly goings: Goings;
  /** Where time is real. */
  readonly #deadlines: Deadlines | undefined;
  readonly #quiet: Quiet;
  readonly #ready: ReadyQueue | undefined;
  /** Where this process has one rank of several. */
  readonly #turns: Turns | undefined;
  /** So many of its calls have had their turn. */
  #granted = 0;
  #death: Death | undefined;
  /** The failed calls of each rank; an unobserved one makes every later call fail too. */
  readonly failures: Failures;

  constructor(comm: CommInfo, monitor: Monitor, host: LedgerHost, turns?: Turns) {
    this.comm = comm;
    this.#turns = turns;
    this.#ready = host.ready;
    this.#quiet = new Quiet(monitor, host.settling, () => this.#atRest);
    this.#monitor = monitor;
    this.#lines = new Lines(comm);
    this.#slots = new Slots(comm);
    this.#queued = new CallQueue(host.session, monitor, (call, error) => this.#left(call, error));
    const { clock } = host.session;
    this.failures = new Failures(comm, () => this.#unseen(host));
    this.makers = new Makers(comm, monitor, clock, (op) => this.failures.note(op), host.ready);
    this.#deadlines = clock ? undefined : new Deadlines((posting) => this.#expire(posting));
    this.numbers = new CallNumbers(comm);
    this.#repeatsFreely = repeatsFreely(host.session);
    this.#serve = {
      session: host.session,
      comm,
      windows: new Windows(),
      coming: new ComingTogether(),
      prepare: (set) => host.prepare(set),
      organise: (set) => host.organise(set),
      fail: (posting, error) => this.failures.add(posting.op, error),
      later: (settle, work) => this.#quiet.later(settle, work),
      queue: (postings, hand) => this.#queued.add(postings, hand),
      queueAgain: (call, known, number) => this.#queued.addAgain(call, known, number),
      abandon: ({ op }) => this.#abortAfter(op, op.error as CommError, "gave up"),
      overdue: (posting, missing) => this.timeOut(posting, absent(missing)),
    };
    this.goings = goingsOf(comm, {
      serve: this.#serve,
      numbers: this.numbers,
      watch: (posting) => this.#deadlines?.watch(posting),
      place: (rank, posting, number) => this.#place(rank, posting, number),
    });
  }

  /** True when some rank has calls that are not done. */
  get busy(): boolean {
    return !this.#lines.empty || this.#queued.size > 0;
  }

  /** Takes a rank's next collective call. */
  post(rank: number, posting: Posting): void {
    this.goings.seal();
    if (!this.#admit(rank, posting)) return;
    this.#place(rank, posting, this.numbers.collective(rank, posting.op));
  }

  /** A rank's call takes its place in line. */
  #place(rank: number, posting: Posting, number: number): void {
    const slot = this.#slots.numbered(number);
    invariant(slot.postings[rank] === undefined, "a rank posts a call once");
    slot.postings[rank] = posting;
    slot.arrived++;
    this.#lines.join(rank, slot);
    this.#deadlines?.watch(posting);
    this.#monitor.moved();
    if (slot.complete) this.#pump();
  }

  /**
   * Takes a call that the rank has made before with the same arguments, where the session asks for nothing more about it;
   * false where it has to be posted as others are. With nothing open it needs no place in line.
   */
  repeat(prepared: Prepared<unknown>, op: CommOp, timeoutMs?: number): boolean {
    const { made } = prepared;
    if (made === undefined || !this.#repeatsFreely) return false;
    const { rank } = op;
    const posting = repeated(prepared, op, timeoutMs);
    const isNext = this.#lines.empty && !this.#executing && this.#turns?.taken !== true;
    if (!isNext) this.post(rank, posting);
    else if (this.#admit(rank, posting) && !this.goings.begin(rank, posting, timeoutMs)) {
      this.post(rank, posting);
    }
    return true;
  }

  /** Takes sends and receives of a rank that may meet their counterparts in any order. */
  exchange(rank: number, transfers: readonly TransferPosting[]): void {
    this.goings.seal();
    const admitted = transfers.filter((transfer) => this.#admit(rank, transfer));
    if (admitted.length === 0) return;
    this.numbers.messages(rank, admitted);
    this.#lines.join(rank, new Batch(rank, admitted));
    for (const transfer of admitted) this.#deadlines?.watch(transfer);
    this.#monitor.moved();
    this.#pump();
  }

  /** Fails an operation that was never posted; unless someone awaits it, it poisons the rank. */
  refuse(op: CommOp, error: unknown): void {
    this.failures.add(op, error);
  }

  /** A rank's calls that have not settled. */
  pending(rank: number): Posting[] {
    const queued = this.#queued.postings().filter(({ op }) => op.rank === rank);
    return [...queued, ...this.#lines.postings(rank)].filter(({ op }) => op.pending);
  }

  /**
   * Takes back a call that is still waiting for other ranks; they fail when they make it. One that was submitted, or that
   * other processes know of, cannot be taken back: it fails, and the communicator with it.
   */
  cancel(op: CommOp, errorOf: (how: Cancelled) => CommError): void {
    if (!op.pending) return;
    const wasSubmitted = op.status === "submitted";
    const isAwaited = this.#isApart && this.#executing && this.#lines.isAtHead(op);
    const begun = wasSubmitted || isAwaited;
    const error = errorOf({ wasSubmitted, endsAll: begun || this.#isApart });
    this.failures.add(op, error);
    this.#lines.cancel(op);
    if (begun) this.#abortAfter(op, error, "was cancelled in");
    this.#monitor.moved();
    if (this.#turns === undefined) this.#serveAll();
    else this.#turns.take(this.#serveGranted);
  }

  /** A call was not done in time: it fails, and the communicator with it. */
  timeOut(posting: Posting, holdup: Holdup): void {
    const error = timeoutError(this.comm, posting, holdup, this.#deadlines === undefined);
    posting.op.finishedAtPs = posting.deadlinePs ?? 0;
    this.failures.add(posting.op, error);
    this.#abortAfter(posting.op, error, "timed out in");
  }

  #abortAfter(op: CommOp, cause: CommError, what: string): void {
    this.abort(deathAfter(this.comm, op, cause, what), op.finishedAtPs);
  }

  /**
   * Ends the communicator, at a virtual time if one is known, and gives up what its session has queued where that can
   * be done.
   */
  abort(death: Death, atPs = 0): void {
    const { session, coming } = this.#serve;
    const isFirst = this.#death === undefined;
    if (isFirst) tellOthers(session.peers, this.comm, death);
    // Ranks of other processes may be at what is open here, or wait for what will not be made.
    const isAwaited = this.#isApart && (isFirst || !this.#lines.empty);
    this.kill(death, atPs);
    // What is executed before a call is queued, such as an exchange of counts, may hang as well.
    const isBusy = this.#queued.size > 0 || this.#executing;
    if (!(isBusy || isAwaited) || session.abort === undefined) return;
    for (const posting of this.#queued.postings()) {
      const { op } = posting;
      this.failures.add(op, death(op.rank, op.asker, this.#failed(posting)));
    }
    const refuse = (rank: number, posting: Posting): CommError =>
      death(rank, this.comm.ranks[rank] as number, this.#failed(posting));
    if (coming.isOpen) coming.giveUp();
    else session.abort(this.comm, new UnservedError(refuse));
  }

  /**
   * Ends the communicator: open calls and all later ones fail, at a virtual time if one is known. A call that is being
   * executed still finishes.
   */
  kill(death: Death, atPs = 0): void {
    this.goings.seal();
    if (this.#death !== undefined) return;
    this.#death = death;
    this.comm.ranks.forEach((_, rank) => {
      for (const posting of this.#lines.postings(rank)) {
        const { op } = posting;
        if (op.status !== "waiting") continue;
        op.finishedAtPs = atPs;
        this.failures.add(op, death(rank, op.asker, this.#failed(posting)));
      }
    });
    if (!this.#executing) this.#lines.clear();
    this.#slots.clear();
  }

  /** Back to call 0 on every rank, as new. */
  reset(): void {
    invariant(this.#atRest, "a ledger is reset when nothing runs");
    this.goings.seal();
    this.#death = undefined;
    this.#lines.clear();
    this.#slots.clear();
    this.numbers.reset();
    this.failures.forgive();
  }

  /** Resolves when no complete call is being executed or about to wake its ranks. */
  drained(): Promise<void> {
    return this.#quiet.reached();
  }

  /** The wait of a rank at the head of its line; `undefined` when it has no open call. */
  headWait(rank: number): OpenWait | undefined {
    return headWait(this.comm, this.#lines, rank);
  }

  /** The waits through every rank's end. */
  waits(): OpenWait[] {
    return openWaits(this.comm, this.#lines);
  }

  /** The same with the calls that every rank here has made and that are not done. */
  openWaits(): OpenWait[] {
    const given = this.#queued.postings().filter(({ op }) => op.pending);
    return [
      ...given.map((posting) => ({ posting, comm: this.comm.name, missing: [] })),
      ...this.waits(),
    ];
  }

  /** An operation that is open and awaited. */
  get awaited(): CommOp | undefined {
    const open = [...this.#queued.postings(), ...this.#lines.open()];
    return open.find(({ op }) => op.pending && op.isObserved)?.op;
  }

  /** The operation that has been open for longest. */
  get oldest(): CommOp | undefined {
    return (this.#queued.postings()[0] ?? this.#lines.open()[0])?.op;
  }

  /** True when a signal may still cancel an open call. */
  get cancellable(): boolean {
    return this.#lines.open().some(({ cancellable }) => cancellable);
  }

  /** The open call that must be done first; `undefined` when none has a deadline. */
  firstDeadline(): Posting | undefined {
    return firstDue(this.#lines.open());
  }

  /** A deadline has passed in real time. */
  async #expire(posting: Posting): Promise<void> {
    const areHeld = this.#turns !== undefined && this.#lines.left >= this.#granted;
    const open = { lines: this.#lines, queued: this.#queued, areHeld };
    const holdup = await holdupOf(this.#serve.session, this.comm, posting, open);
    if (posting.op.pending) this.timeOut(posting, holdup);
  }

  /** An unobserved failure keeps every later call from going on as before. */
  #unseen(host: LedgerHost): void {
    this.goings.seal();
    host.unseen(this);
  }

  /** A call as the error of its communicator's end names it. */
  #failed({ call: { collective }, op: { callOp } }: Posting): FailedCall {
    return { collective, call: callOp.call, comm: this.comm.name };
  }

  #admit(rank: number, posting: Posting): boolean {
    const { op } = posting;
    const death = this.#death?.(rank, op.asker, this.#failed(posting));
    const refusal = death ?? this.failures.poison(rank);
    if (refusal !== undefined) this.failures.refuse(op, refusal);
    return refusal === undefined;
  }

  /** One more call can be served, or the one that kept others waiting is over. */
  #pump(): void {
    if (this.#turns !== undefined) this.#turns.take(this.#turn);
    else this.#serveAll();
  }

  /** Serves whatever has come together, until nothing has or the session needs time. */
  #serveAll(): void {
    while (!this.#executing && this.#death === undefined) {
      const served = this.#serveNext();
      if (served === undefined) break;
      if (served instanceof Promise) void this.#follow(served, () => this.#serveAll());
      else this.#monitor.moved();
    }
    this.#stop();
  }

  /** One more call may be served, which is this process's alone. */
  readonly #turn = (): undefined | Promise<void> => {
    this.#granted++;
    return this.#serveGranted();
  };

  /** Serves as many calls as have had their turn. */
  readonly #serveGranted = (): undefined | Promise<void> => {
    while (this.#death === undefined && this.#lines.left < this.#granted) {
      const served = this.#serveNext();
      if (served === undefined) break;
      if (!(served instanceof Promise)) continue;
      return this.#follow(served, () => undefined).then(this.#serveGranted);
    }
    this.#monitor.moved();
    this.#stop();
    return undefined;
  };

  /** `undefined`: there is none to serve; true: served. */
  #serveNext(): true | Promise<void> | undefined {
    return this.#serveCollective() ?? serveTransfers(this.#serve, this.#lines);
  }

  /** Nothing more is served for now. */
  #stop(): void {
    if (this.#executing) return;
    if (this.#death !== undefined) this.#lines.clear();
    this.#quiet.look();
  }

  /** `undefined`: there is none to serve; true: served. */
  #serveCollective(): true | Promise<void> | undefined {
    const slot = this.#slots.first;
    if (slot === undefined || !slot.complete || !this.#lines.allAt(slot)) return undefined;
    this.#slots.shift();
    const served = serveSlot(this.#serve, slot);
    if (served instanceof Promise) return served.then(() => this.#lines.allLeave());
    this.#lines.allLeave();
    return true;
  }

  /** Ranks of it live in other processes. */
  get #isApart(): boolean {
    return this.comm.local.length < this.comm.ranks.length;
  }

  /** No call is at work, nor will be when its turn comes. */
  get #atRest(): boolean {
    const waits = this.#turns?.taken === true && !this.#lines.empty;
    return !this.#executing && this.#queued.size === 0 && !waits;
  }

  /** A call has left the queue. */
  #left(call: QueuedCall, error: unknown): void {
    this.goings.seal();
    if (error === undefined) call.complete();
    else {
      const errorOf = errorByCall(error, this.#serve);
      for (const posting of call.postings) this.failures.add(posting.op, errorOf(posting));
    }
    this.#monitor.moved();
    this.#quiet.look();
  }

  #follow(served: Promise<void>, then: () => void): Promise<void> {
    this.#executing = true;
    this.#monitor.executing(1);
    this.#ready?.executing(1);
    return served.then(() => {
      this.#executing = false;
      this.#monitor.executing(-1);
      then();
      this.#ready?.executing(-1);
    });
  }
}

/** The makers of one communicator's calls. */
class Makers {
  readonly #makers: readonly OpMaker[];
  readonly #monitor: Monitor;
  readonly #isVirtual: boolean;

  /** `faulted` gets calls that fail with the error of a callback. */
  constructor(
    { ranks }: CommInfo,
    monitor: Monitor,
    clock: VirtualClock | undefined,
    faulted: (op: CommOp) => void,
    ready: Resumption | undefined,
  ) {
    this.#monitor = monitor;
    this.#isVirtual = clock !== undefined;
    this.#makers = ranks.map((worldRank, rank) => {
      const { callSites } = monitor;
      return { rank, worldRank, asker: worldRank, watcher: monitor, callSites, faulted, ready };
    });
  }

  /** The maker of all calls of a rank; `undefined` where another rank's program may make some, as far as is known. */
  always(rank: number): OpMaker | undefined {
    return this.#isVirtual ? undefined : this.#makers[rank];
  }

  /** The maker of a rank's next call. */
  now(rank: number): OpMaker {
    const maker = this.#makers[rank] as OpMaker;
    const { asker } = this.#monitor;
    return asker === undefined || asker === maker.asker ? maker : { ...maker, asker };
  }
}
