/**
 * A posted operation: a promise that records whether it is awaited.
 *
 * Programs see it as a `CommOp`; the library settles it and adds callbacks to it as an `Operation`. Both are the same object.
 *
 * It is not a native promise on purpose. A call of `then` parks the rank, which makes deadlocks decidable. It also observes a
 * failure; an unobserved failure poisons the communicator and never becomes an unhandled rejection. The native promise inside is
 * created only on demand.
 */
import { CallSite, showCallSite } from "./call-site.ts";
import { CommError } from "./errors.ts";

/** State of an operation. */
export type OpStatus = "waiting" | "submitted" | "done" | "failed";

/**
 * The promise of one call on one rank: await it, and the result is readable. It goes wherever a `Promise` goes.
 *
 * An operation that is never awaited is no floating promise: its failure refuses the rank's later calls on its communicator. So
 * the type declares the methods of a promise instead of extending it, and linters let calls in a group stand alone.
 */
export interface CommOp<T = unknown> {
  /** Rank in the communicator. */
  readonly rank: number;
  /**
   * Number of the call on its communicator, from 0; sends and receives are counted separately from collective calls. -1 before
   * posting.
   */
  readonly call: number;
  /** State of the operation. `submitted` may appear only at the end of the turn of the submission. */
  readonly status: OpStatus;
  /** True while neither done nor failed. */
  readonly pending: boolean;
  /** Reason of the failure; `undefined` unless failed. Reading it observes no failure: await the operation for that. */
  readonly error: unknown;
  /** Call site in the program as `file:line:column`; `undefined` unless the world records `callSites`. */
  readonly place: string | undefined;
  /**
   * Resolves once every local rank has made the call and it is submitted; later device work may follow it. Rejects with the
   * operation's error if the call is never submitted.
   */
  readonly enqueued: Promise<void>;
  /** Waits for the outcome. The first call of `then`, `catch` or `finally` marks the rank as waiting, and a failure as seen. */
  then<A = T, B = never>(
    onDone?: ((value: T) => A | PromiseLike<A>) | null,
    // biome-ignore lint/suspicious/noExplicitAny: a handler may name the class of the error, as with a Promise
    onFailed?: ((reason: any) => B | PromiseLike<B>) | null,
  ): Promise<A | B>;
  /** As `then`, for failures alone. */
  // biome-ignore lint/suspicious/noExplicitAny: as with a Promise
  catch<B = never>(onFailed?: ((reason: any) => B | PromiseLike<B>) | null): Promise<T | B>;
  /** As `then`, for either outcome, which the promise keeps. */
  finally(onSettled?: (() => void) | null): Promise<T>;
  readonly [Symbol.toStringTag]: string;
}

/** Called when a rank starts and ends waiting for an operation. */
export interface OpObserver {
  /** `then` was called for the first time. */
  awaited(op: Operation): void;
  /** The operation settled after it was observed. */
  resumed(op: Operation): void;
}

/** Resumes the programs that await settled operations, one at a time. */
export interface Resumption {
  /** Schedules `resume` for the turn of that world rank. */
  add(worldRank: number, resume: () => void): void;
}

/** The rank of operations: one object for all calls of a rank. */
export interface CallContext {
  /** Rank in the communicator. */
  readonly rank: number;
  /** Rank in the world; read by the observer. */
  readonly worldRank: number;
  /**
   * World rank of the program that makes the calls and waits for them. It differs from `worldRank` if a program uses another
   * rank's communicator.
   */
  readonly callingRank: number;
  readonly observer: OpObserver;
  /** Present if ranks resume one at a time. */
  readonly resumption?: Resumption | undefined;
  /** True if operations record their call sites. */
  readonly callSites?: boolean;
  /** Called for a completed operation that fails with the error of one of its callbacks. */
  onCallbackError?(op: Operation): void;
}

/** The deadline of an operation. */
export interface OpDeadline {
  /** Called when the operation settles. */
  settled(): void;
}

/** Virtual times of an operation, in picoseconds. */
interface Times {
  submittedPs: number;
  finishedPs: number;
}

/** The error of a callback, of any type. */
interface Fault {
  readonly error: unknown;
}

/** One callback, as each part of a group has it, or several. */
type Callbacks<A extends unknown[]> = ((...given: A) => void) | ((...given: A) => void)[];

function withCallback<A extends unknown[]>(
  known: Callbacks<A> | undefined,
  added: (...given: A) => void,
): Callbacks<A> {
  if (known === undefined) return added;
  if (typeof known === "function") return [known, added];
  known.push(added);
  return known;
}

/** Rare properties of operations. */
interface Extras {
  site?: CallSite;
  enqueued?: Operation<void>;
  onSubmitted?: Callbacks<[op: Operation]>;
  /** The error of one of these callbacks. */
  fault?: Fault;
  onSettled?: ((error: unknown) => void)[];
  onFinal?: Callbacks<[error: unknown, op: Operation]>;
  /** The operation that this is a part of: a group, a replay, or the `sendRecv` of a half. */
  whole?: Operation;
  /** True for the send or the receive of a `sendRecv`, its `whole`: both have one call number. */
  half?: boolean;
}

function withSite(): Extras {
  return { site: new CallSite() };
}

// The functions below settle operations. They are not methods, because programs hold operations and must not settle them.

/** Sets the call number of an operation. */
export let assignOp: (op: Operation, call: number) => void;

/** Marks an operation as submitted. */
export let submitOp: (op: Operation) => void;

/** Sets the call number and marks the operation as submitted. */
export let submitOpAs: (op: Operation, call: number) => void;

/** Marks an operation as submitted, and sets the virtual times of its submission and its end. */
export let submitOpAt: (op: Operation, submittedPs: number, finishedPs: number) => void;

/** Completes an operation that has not settled. */
export let completeOp: <T>(op: Operation<T>, value: T) => void;

/** Fails an operation that has not settled. */
export let failOp: (op: Operation, error: unknown) => void;

/** The operation as the library uses it. Each call in progress holds one, so that operations are small. */
export class Operation<T = unknown> implements CommOp<T>, Promise<T> {
  /** Settles before all callbacks of the operation. */
  deadline: OpDeadline | undefined;
  #call = -1;
  #status: OpStatus = "waiting";
  #observed = false;
  /** The result, or the error. */
  #outcome: unknown;
  /** For `then` before the operation settles. */
  #native: NativePromise<T> | undefined;
  /** `undefined` while both are 0, always so with real time. */
  #times: Times | undefined;
  #extras: Extras | undefined;
  readonly #context: CallContext;

  constructor(context: CallContext) {
    this.#context = context;
    if (context.callSites === true) this.#extras = withSite();
  }

  get rank(): number {
    return this.#context.rank;
  }

  /** The rank in its world. */
  get worldRank(): number {
    return this.#context.worldRank;
  }

  /** World rank of the calling program. */
  get callingRank(): number {
    return this.#context.callingRank;
  }

  get [Symbol.toStringTag](): string {
    return "CommOp";
  }

  get call(): number {
    return this.#call;
  }

  /** Virtual time of the outcome, in picoseconds. */
  get finishedAtPs(): number {
    return this.#times?.finishedPs ?? 0;
  }

  set finishedAtPs(ps: number) {
    if (ps !== this.finishedAtPs) this.#ensureTimes().finishedPs = ps;
  }

  /** Virtual time of the last rank's call, in picoseconds. */
  get submittedAtPs(): number {
    return this.#times?.submittedPs ?? 0;
  }

  set submittedAtPs(ps: number) {
    if (ps !== this.submittedAtPs) this.#ensureTimes().submittedPs = ps;
  }

  get status(): OpStatus {
    return this.#status;
  }

  get place(): string | undefined {
    return this.#extras?.site?.place;
  }

  get pending(): boolean {
    return this.#status === "waiting" || this.#status === "submitted";
  }

  /** True once the outcome of this operation, of its enclosing operation or of its failed submission was read. */
  get isObserved(): boolean {
    if (this.#observed || this.#extras === undefined) return this.#observed;
    const { whole, enqueued } = this.#extras;
    return whole?.isObserved === true || (enqueued?.status === "failed" && enqueued.isObserved);
  }

  get error(): unknown {
    return this.#status === "failed" ? this.#outcome : undefined;
  }

  get enqueued(): Promise<void> {
    const extras = this.#ensureExtras();
    if (extras.enqueued === undefined) {
      extras.enqueued = new Operation<void>(this.#context);
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
   * Calls `callback` when the operation settles, before awaiting programs continue. If it throws, a completed operation fails
   * with that error.
   */
  whenSettled(callback: (error: unknown) => void): void {
    if (!this.pending) callback(this.error);
    else {
      const extras = this.#ensureExtras();
      if (extras.onSettled === undefined) extras.onSettled = [callback];
      else extras.onSettled.push(callback);
    }
  }

  /**
   * Calls `callback` with the final outcome: after all callbacks of `whenSettled`, any of which can still fail the operation. It
   * must not throw.
   */
  whenFinal(callback: (error: unknown, op: Operation) => void): void {
    if (!this.pending) callback(this.error, this as Operation);
    else {
      const extras = this.#ensureExtras();
      extras.onFinal = withCallback(extras.onFinal, callback);
    }
  }

  /**
   * Calls `callback` when the operation is submitted; an operation that fails earlier never calls it. If `callback` throws, the
   * operation fails with that error.
   */
  whenSubmitted(callback: (op: Operation) => void): void {
    if (this.#status === "submitted" || this.#status === "done") callback(this as Operation);
    else {
      const extras = this.#ensureExtras();
      extras.onSubmitted = withCallback(extras.onSubmitted, callback);
    }
  }

  #assign(call: number): void {
    this.#call = call;
    if (this.#extras?.whole?.call === -1) this.#extras.whole.#assign(call);
  }

  /** Makes this operation, or its enclosing one, a part of `whole`: reading the outcome of `whole` reads this one too. */
  partOf(whole: Operation): this {
    const extras = this.#ensureExtras();
    if (extras.whole === undefined) extras.whole = whole;
    else if (extras.whole !== whole) extras.whole.partOf(whole);
    return this;
  }

  /** Makes this operation a part of `whole`, with callbacks as `whenSubmitted` and `whenFinal` take them. */
  partWith(
    whole: Operation,
    onSubmitted: (op: Operation) => void,
    onFinal: (error: unknown, op: Operation) => void,
  ): void {
    // One object with all of it: a group has thousands of parts.
    if (this.#extras === undefined && this.#status === "waiting") {
      this.#extras = { whole, onSubmitted, onFinal };
      return;
    }
    this.partOf(whole);
    this.whenSubmitted(onSubmitted);
    this.whenFinal(onFinal);
  }

  /** Makes this operation one half of the call `whole`, which counts as one call. */
  halfOf(whole: Operation): this {
    this.#ensureExtras().half = true;
    return this.partOf(whole);
  }

  /** The operation of the program's call: the whole of a half, otherwise this one. */
  get callOp(): Operation {
    const { half = false, whole } = this.#extras ?? none;
    return half && whole !== undefined ? whole : (this as Operation);
  }

  #submit(): void {
    if (this.#status !== "waiting") return;
    this.#status = "submitted";
    const extras = this.#extras;
    if (extras === undefined) return;
    const { onSubmitted } = extras;
    if (typeof onSubmitted === "function") this.#notifySubmitted(extras, onSubmitted);
    else for (const each of onSubmitted ?? []) this.#notifySubmitted(extras, each);
    this.#completeEnqueued();
  }

  #notifySubmitted(extras: Extras, callback: (op: Operation) => void): void {
    try {
      callback(this as Operation);
    } catch (error) {
      extras.fault ??= { error };
    }
  }

  #submitAs(call: number): void {
    this.#assign(call);
    this.#submit();
  }

  #submitAt(submittedPs: number, finishedPs: number): void {
    if (submittedPs > 0 || finishedPs > 0) this.#times = { submittedPs, finishedPs };
    this.#submit();
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
      this.#notifyFinal(this.#extras, error);
    }
    if (this.#observed) this.#context.observer.resumed(this);
    if (this.#native !== undefined) this.#resume(this.#native);
  }

  /** The deadline references the call, which must not stay in memory as long as the operation. */
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

  /** Runs the callbacks; an error of a callback, now or at the submission, becomes the outcome. */
  #notifyDone(extras: Extras): void {
    const fault = notifySettled(extras, undefined);
    if (fault !== undefined) {
      this.#status = "failed";
      this.#outcome = fault.error;
      this.#context.onCallbackError?.(this);
    }
    this.#notifyFinal(extras, this.error);
  }

  #notifyFinal({ onFinal }: Extras, error: unknown): void {
    if (typeof onFinal === "function") onFinal(error, this as Operation);
    else for (const callback of onFinal ?? []) callback(error, this as Operation);
  }

  /** Resumes the awaiting program: at once, or in its rank's turn. */
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
    submitOpAs = (op, call) => {
      if (op.#extras !== undefined) return op.#submitAs(call);
      op.#call = call;
      op.#status = "submitted";
    };
    submitOpAt = (op, submittedPs, finishedPs) => op.#submitAt(submittedPs, finishedPs);
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

/** Calls `callback` when an operation settles, without awaiting it: the rank does not count as waiting for it. */
export function whenSettled(op: CommOp, callback: (error: unknown) => void): void {
  (op as Operation).whenSettled(callback);
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

/** A native promise with its two settling functions. */
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
