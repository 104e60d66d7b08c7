/**
 * A posted operation: a promise that knows whether it is awaited.
 *
 * It is no native promise on purpose. A call of `then` parks the rank (which makes a deadlock decidable) and observes a failure
 * (an unobserved one poisons the communicator and never becomes an unhandled rejection). The native promise inside is made
 * only on demand.
 */
import { CallSite, showCallSite } from "./call-site.ts";
import { CommError } from "./errors.ts";

/** Where an operation stands. */
export type OpStatus = "waiting" | "submitted" | "done" | "failed";

/** Called when a rank starts and ends waiting for an operation. */
export interface OpObserver {
  /** `then` was called for the first time. */
  awaited(op: CommOp): void;
  /** The operation settled after it was observed. */
  resumed(op: CommOp): void;
}

/** Resumes the programs that await settled operations, one at a time. */
export interface Resumption {
  /** Has `resume` run when it is the turn of that world rank. */
  add(worldRank: number, resume: () => void): void;
}

/** The rank of operations: one object for all calls of a rank. */
export interface CallContext {
  /** Rank in the communicator. */
  readonly rank: number;
  /** The rank in its world; for the watcher. */
  readonly worldRank: number;
  /**
   * The world rank with the program that makes the calls, and waits for them: another one than `worldRank` when a program uses
   * the communicator of that rank.
   */
  readonly callingRank: number;
  readonly observer: OpObserver;
  /** Present where ranks resume one at a time. */
  readonly resumption?: Resumption | undefined;
  /** True where operations keep the place of their call. */
  readonly callSites?: boolean;
  /** Called for an operation that would be done, and failed with the error of one of its callbacks. */
  onCallbackError?(op: CommOp): void;
}

/** The deadline of an operation. */
export interface OpDeadline {
  /** It settled. */
  settled(): void;
}

/** When things happened in virtual time, in picoseconds. */
interface Times {
  submittedPs: number;
  finishedPs: number;
}

/** The error of a callback, of any type. */
interface Fault {
  readonly error: unknown;
}

/** Rare properties of operations. */
interface Extras {
  site?: CallSite;
  enqueued?: CommOp<void>;
  onSubmitted?: (() => void)[];
  /** The error of one of these callbacks. */
  fault?: Fault;
  onSettled?: ((error: unknown) => void)[];
  onFinal?: ((error: unknown) => void)[];
  whole?: CommOp;
  half?: boolean;
}

// The library's side of an operation. Programs hold operations and cannot settle them, so none of these is a method.

/** Gives an operation the number of its call. */
export let assignOp: (op: CommOp, call: number) => void;

/** The call of an operation was submitted. */
export let submitOp: (op: CommOp) => void;

/** The call of an operation was numbered and submitted at once. */
export let submitOpAs: (op: CommOp, call: number) => void;

/** An operation is done, unless it settled before. */
export let completeOp: <T>(op: CommOp<T>, value: T) => void;

/** An operation failed, unless it settled before. */
export let failOp: (op: CommOp, error: unknown) => void;

/**
 * The promise of one call on one rank: await it, and the result is readable.
 *
 * Calls back to back leave as many operations as are under way, so each is kept small.
 */
export class CommOp<T = unknown> implements Promise<T> {
  /** Settles before all callbacks of the operation. */
  deadline: OpDeadline | undefined;
  #call = -1;
  #status: OpStatus = "waiting";
  #observed = false;
  /** The result, or the error. */
  #outcome: unknown;
  /** For `then` before the operation settles. */
  #native: NativePromise<T> | undefined;
  /** `undefined` as long as both are 0, which they stay where time is real. */
  #times: Times | undefined;
  #extras: Extras | undefined;
  readonly #context: CallContext;

  constructor(maker: CallContext) {
    this.#context = maker;
    if (maker.callSites === true) this.#ensureExtras().site = new CallSite();
  }

  /** Rank in the communicator. */
  get rank(): number {
    return this.#context.rank;
  }

  /** The rank in its world. */
  get worldRank(): number {
    return this.#context.worldRank;
  }

  /** The world rank with the program that made the call. */
  get callingRank(): number {
    return this.#context.callingRank;
  }

  get [Symbol.toStringTag](): string {
    return "CommOp";
  }

  /**
   * Number of the call on its communicator, counted from 0; sends and receives are counted apart from collective
   * calls. -1 while it was not posted.
   */
  get call(): number {
    return this.#call;
  }

  /** Virtual time at which the outcome is there, in picoseconds. */
  get finishedAtPs(): number {
    return this.#times?.finishedPs ?? 0;
  }

  set finishedAtPs(ps: number) {
    if (ps !== this.finishedAtPs) this.#ensureTimes().finishedPs = ps;
  }

  /** Virtual time at which the last rank had made the call, in picoseconds. */
  get submittedAtPs(): number {
    return this.#times?.submittedPs ?? 0;
  }

  set submittedAtPs(ps: number) {
    if (ps !== this.submittedAtPs) this.#ensureTimes().submittedPs = ps;
  }

  /** The state of the operation. `submitted` may show as late as the end of the turn in which it was. */
  get status(): OpStatus {
    return this.#status;
  }

  /** The place of the call in the program as `file:line:column`, if that is kept. */
  get place(): string | undefined {
    return this.#extras?.site?.place;
  }

  /** True while neither done nor failed. */
  get pending(): boolean {
    return this.#status === "waiting" || this.#status === "submitted";
  }

  /** True once the outcome was read: of this operation, of the one it is part of, or of its submission that failed. */
  get isObserved(): boolean {
    if (this.#observed || this.#extras === undefined) return this.#observed;
    const { whole, enqueued } = this.#extras;
    return whole?.isObserved === true || (enqueued?.status === "failed" && enqueued.isObserved);
  }

  /** Why it failed; `undefined` unless it did. */
  get error(): unknown {
    return this.#status === "failed" ? this.#outcome : undefined;
  }

  /**
   * Resolves when every local rank has made the call and it was submitted; device work may follow it from then on.
   * Rejects with the operation's error when it never was.
   */
  get enqueued(): Promise<void> {
    const extras = this.#ensureExtras();
    if (extras.enqueued === undefined) {
      extras.enqueued = new CommOp<void>(this.#context);
      if (this.#status === "failed") this.#failEnqueued();
      else if (this.#status !== "waiting") this.#completeEnqueued();
    }
    return extras.enqueued;
  }

  // biome-ignore lint/suspicious/noThenProperty: being awaited is what this class is for
  then<A = T, B = never>(
    onDone?: ((value: T) => A | PromiseLike<A>) | null,
    // biome-ignore lint/suspicious/noExplicitAny: a handler may name the class of the error, as with a Promise
    onFailed?: ((reason: any) => B | PromiseLike<B>) | null,
  ): Promise<A | B> {
    if (!this.#observed) {
      this.#observed = true;
      this.#context.observer.awaited(this);
    }
    return this.#promise().then(onDone, onFailed);
  }

  // biome-ignore lint/suspicious/noExplicitAny: as with a Promise
  catch<B = never>(onFailed?: ((reason: any) => B | PromiseLike<B>) | null): Promise<T | B> {
    return this.then(undefined, onFailed);
  }

  finally(onSettled?: (() => void) | null): Promise<T> {
    return this.then().finally(onSettled);
  }

  /**
   * Calls `callback` when the operation settles, before programs that await it go on. An error that it throws becomes the error
   * of an operation that would be done.
   */
  whenSettled(callback: (error: unknown) => void): void {
    if (!this.pending) callback(this.error);
    else {
      const extras = this.#ensureExtras();
      extras.onSettled ??= [];
      extras.onSettled.push(callback);
    }
  }

  /**
   * Calls `callback` with the final outcome: after all callbacks of `whenSettled`, any of which can still fail the operation. It
   * must not throw.
   */
  whenFinal(callback: (error: unknown) => void): void {
    if (!this.pending) callback(this.error);
    else {
      const extras = this.#ensureExtras();
      extras.onFinal ??= [];
      extras.onFinal.push(callback);
    }
  }

  /**
   * Calls `callback` when the operation is submitted, which it never is when it fails before. An error that it throws becomes the
   * operation's error.
   */
  whenSubmitted(callback: () => void): void {
    if (this.#status === "submitted" || this.#status === "done") callback();
    else {
      const extras = this.#ensureExtras();
      extras.onSubmitted ??= [];
      extras.onSubmitted.push(callback);
    }
  }

  #assign(call: number): void {
    this.#call = call;
    if (this.#extras?.whole?.call === -1) this.#extras.whole.#assign(call);
  }

  /** This operation, or the one it is part of, is a part of `whole`: reading the outcome of that one reads this one too. */
  partOf(whole: CommOp): this {
    const extras = this.#ensureExtras();
    if (extras.whole === undefined) extras.whole = whole;
    else if (extras.whole !== whole) extras.whole.partOf(whole);
    return this;
  }

  /** This operation is one half of the call `whole`: a call counts once, however many halves it has. */
  halfOf(whole: CommOp): this {
    this.#ensureExtras().half = true;
    return this.partOf(whole);
  }

  /** The operation of the call as it was made: the whole of a half, else this one. */
  get callOp(): CommOp {
    const { half = false, whole } = this.#extras ?? none;
    return half && whole !== undefined ? whole : (this as CommOp);
  }

  #submit(): void {
    if (this.#status !== "waiting") return;
    this.#status = "submitted";
    if (this.#extras === undefined) return;
    for (const callback of this.#extras.onSubmitted ?? []) {
      try {
        callback();
      } catch (error) {
        this.#extras.fault ??= { error };
      }
    }
    this.#completeEnqueued();
  }

  #submitAs(call: number): void {
    if (this.#extras !== undefined) {
      this.#assign(call);
      this.#submit();
      return;
    }
    this.#call = call;
    this.#status = "submitted";
  }

  #complete(value: T): void {
    if (!this.pending) return;
    this.#submit();
    this.#status = "done";
    this.#outcome = value;
    this.#clearDeadline();
    if (this.#extras !== undefined) this.#notifyDone(this.#extras);
    if (this.#observed) this.#context.observer.resumed(this);
    if (this.#native !== undefined) this.#resume(this.#native);
  }

  #fail(error: unknown): void {
    if (!this.pending) return;
    this.#status = "failed";
    this.#outcome = error;
    this.#clearDeadline();
    const site = this.#extras?.site;
    if (site !== undefined && error instanceof CommError) showCallSite(error, site);
    this.#failEnqueued();
    if (this.#extras !== undefined) {
      notifySettled(this.#extras, error);
      notifyFinal(this.#extras, error);
    }
    if (this.#observed) this.#context.observer.resumed(this);
    if (this.#native !== undefined) this.#resume(this.#native);
  }

  /** It holds the call, which must not stay in memory for as long as the operation. */
  #clearDeadline(): void {
    if (this.deadline === undefined) return;
    this.deadline.settled();
    this.deadline = undefined;
  }

  #ensureExtras(): Extras {
    this.#extras ??= {};
    return this.#extras;
  }

  #completeEnqueued(): void {
    const enqueued = this.#extras?.enqueued;
    if (enqueued === undefined) return;
    enqueued.finishedAtPs = this.submittedAtPs;
    enqueued.#complete(undefined);
  }

  #failEnqueued(): void {
    const enqueued = this.#extras?.enqueued;
    if (enqueued?.pending !== true) return;
    enqueued.finishedAtPs = this.finishedAtPs;
    enqueued.#fail(this.#outcome);
  }

  /** The error of a callback, now or at the submission, becomes the outcome. */
  #notifyDone(extras: Extras): void {
    const fault = notifySettled(extras, undefined);
    if (fault !== undefined) {
      this.#status = "failed";
      this.#outcome = fault.error;
      this.#context.onCallbackError?.(this);
    }
    notifyFinal(extras, this.error);
  }

  /** The program that awaits the operation goes on: at once, or when it is its rank's turn. */
  #resume(native: NativePromise<T>): void {
    const { resumption, worldRank } = this.#context;
    if (resumption !== undefined) resumption.add(worldRank, () => this.#deliver(native));
    else this.#deliver(native);
  }

  #deliver(native: NativePromise<T>): void {
    if (this.#status === "done") native.resolve(this.#outcome);
    else native.reject(this.#outcome);
  }

  #ensureTimes(): Times {
    this.#times ??= { submittedPs: 0, finishedPs: 0 };
    return this.#times;
  }

  static {
    assignOp = (op, call) => op.#assign(call);
    submitOp = (op) => op.#submit();
    submitOpAs = (op, call) => op.#submitAs(call);
    completeOp = (op, value) => op.#complete(value);
    failOp = (op, error) => op.#fail(error);
  }

  #promise(): Promise<T> {
    if (this.#native !== undefined) return this.#native.promise;
    const { resumption } = this.#context;
    if (resumption === undefined) {
      if (this.#status === "done") return Promise.resolve(this.#outcome as T);
      if (this.#status === "failed") return Promise.reject(this.#outcome);
    }
    this.#native = new NativePromise<T>();
    if (!this.pending) this.#resume(this.#native);
    return this.#native.promise;
  }
}

const none: Extras = {};

/** Calls all callbacks; returns the first error, or that of a callback of the submission. */
function notifySettled({ fault, onSettled }: Extras, error: unknown): Fault | undefined {
  let first = fault;
  if (onSettled === undefined) return first;
  for (const callback of onSettled) {
    try {
      callback(error);
    } catch (thrown) {
      first ??= { error: thrown };
    }
  }
  return first;
}

function notifyFinal({ onFinal }: Extras, error: unknown): void {
  if (onFinal === undefined) return;
  for (const callback of onFinal) callback(error);
}

/** A promise of the language that is settled from outside. */
export class NativePromise<T> {
  readonly promise: Promise<T>;
  resolve!: (value: unknown) => void;
  reject!: (error: unknown) => void;

  constructor() {
    this.promise = new Promise<T>((resolve, reject) => {
      this.resolve = resolve as (value: unknown) => void;
      this.reject = reject;
    });
  }
}
