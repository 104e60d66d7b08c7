/**
 * Posts the calls of one rank: checks arguments, calls hooks, and counts. Every refusal becomes a rejected operation, so that
 * wrong calls fail in one way, awaited or not.
 *
 * Inside `group`, `capture` and `prepare` calls are checked and collected, and posted (or kept) when the callback has returned.
 */
import type { CommInfo, RankCall, Session } from "../backend.ts";
import { isMemoryOver } from "../buffer.ts";
import type { CallOptions } from "../calls.ts";
import { closeOnce } from "../close-once.ts";
import { Validator } from "../collectives/validate.ts";
import { type Caller, CommClosedError, type CommError, InvalidArgumentError } from "../errors.ts";
import { HookList } from "../hooks.ts";
import type { RankCalls } from "../ledger/batch.ts";
import type { Ledger } from "../ledger/ledger.ts";
import {
  hasReceiveCounts,
  markInUse,
  type PostedMessage,
  type Posting,
  type Prepared,
  type PreparedHalf,
  type PreparedTransfer,
  rankCall,
  type TransferPosting,
} from "../ledger/posting.ts";
import { type CallContext, Operation } from "../op.ts";
import { invalid, textOf } from "../option-kinds.ts";
import type { CollectiveName } from "../specification.ts";
import { type CachedCall, CallCache, type CollectedCall } from "./call-cache.ts";
import {
  type CallbackAction,
  type CallCollector,
  collectCalls,
  completeTogether,
  innermost,
  isMessage,
  type VirtualWork,
} from "./call-collector.ts";
import { cancelledError, cancelOnSignal } from "./cancellation.ts";
import { CallStats, notifyPosted, subscribedChannels } from "./observers.ts";

/** Checks the arguments of a rank's call, an object, given the number of ranks; throws the first error. */
type Prepare<A, T> = (
  check: Validator,
  args: A,
  rank: number,
  size: number,
) => Prepared<T> | PreparedTransfer<T>;

/** Sends and receives that were made as one call. */
type CollectedMessage = CollectedCall & PostedMessage;

/** Posts the calls of one rank to the ledger. */
export class Poster {
  readonly check: Validator;
  readonly hooks: HookList;
  readonly cache: CallCache;
  readonly worldRank: number;
  readonly facts: Caller;
  readonly #session: Session;
  readonly #ledger: Ledger;
  /** Called when the rank has closed its end, and its calls are done. */
  readonly #onClosed: () => void;
  readonly #stats = new CallStats();
  /** Calls that single calls can be appended to. */
  readonly #batch: RankCalls;
  readonly #timeoutMs: number | undefined;
  readonly #context: CallContext | undefined;
  #end = closeOnce(() => this.#close());
  #closing = false;
  #closings = 0;

  constructor(rank: number, ledger: Ledger, onClosed: () => void) {
    const { session } = ledger;
    const { ranks, name } = ledger.comm;
    this.worldRank = ranks[rank] as number;
    this.facts = { rank, size: ranks.length, comm: name };
    this.hooks = new HookList(this.facts);
    this.check = new Validator(session, ledger.comm, this.facts);
    this.#session = session;
    this.#timeoutMs = session.info.timeoutMs;
    this.#ledger = ledger;
    this.#context = ledger.fixedContext(rank);
    this.#batch = ledger.batches.ofRank(rank);
    this.cache = new CallCache(this.#stats, this.hooks, ledger, this.#context);
    this.#onClosed = onClosed;
  }

  /**
   * Checks a call and posts it. What is wrong becomes the operation's rejection; inside a callback that is collected it is
   * thrown instead, and ends that callback. `kept` is a call that its owner has cached, with buffers that live.
   */
  post<T, A extends CallOptions | undefined>(
    collective: CollectiveName,
    args: A,
    prepare: Prepare<A, T> | undefined,
    kept?: CachedCall,
  ): Operation<T> {
    const { current } = this.#batch;
    // Calls inside of a callback are collected, and appended to no batch.
    if (innermost !== undefined) this.assertOwn(collective);
    else if (current !== undefined) {
      const appended = this.cache.tryAppend(current, collective, args, kept);
      if (appended !== undefined) return appended as Operation<T>;
    }
    return this.#post(collective, args, prepare, kept);
  }

  #post<T, A extends CallOptions | undefined>(
    collective: CollectiveName,
    args: A,
    prepare: Prepare<A, T> | undefined,
    kept: CachedCall | undefined,
  ): Operation<T> {
    const op = this.createOp<T>();
    const { collector } = this;
    try {
      this.assertOpen(collective);
      // Arguments are read once: getters may answer otherwise later.
      const isPlain = isPlainObject(args);
      const read = isPlain ? args && { ...args } : this.check.given(collective, args);
      const known = kept ?? this.cache.lookup(collective, read);
      const isSame = isPlain && known !== undefined && this.cache.coversAll(known, read);
      if (isPlain && !isSame) this.check.names(collective, read);
      const options = isSame ? undefined : this.check.options(read);
      const isAlone = collector === undefined && options?.signal === undefined;
      if (known && isAlone && this.cache.repeat(known, op, options?.timeoutMs)) return op;
      const prepared =
        known?.prepared ?? this.#prepared(collective, read, prepare as Prepare<A, T>);
      this.assertNotCancelled(collective, options);
      const { nowPs: calledAtPs } = this;
      const made = {
        collective,
        prepared,
        options,
        op,
        cached: known,
        calledAtPs,
        call: undefined,
      };
      if (collector !== undefined) collector.steps.push([made]);
      else if ("transfers" in prepared) this.postCollected([made]);
      else {
        this.announce(made);
        this.#postCollective(made, prepared);
      }
    } catch (error) {
      if (collector !== undefined) throw error;
      this.refuse(op, error);
    }
    return op;
  }

  /** The call, checked now. */
  #prepared<T, A extends CallOptions | undefined>(
    collective: CollectiveName,
    args: A,
    prepare: Prepare<A, T>,
  ): Prepared<T> | PreparedTransfer<T> {
    const { rank, size } = this.facts;
    // One without parameters is of a call without arguments.
    if (prepare.length > 0) this.check.begin(collective, args);
    const prepared = prepare(this.check, args, rank, size);
    const parts = "transfers" in prepared ? prepared.transfers : [prepared];
    for (const { call } of parts) this.check.supported(collective, call);
    this.cache.store(collective, args, prepared);
    return prepared;
  }

  /** Fails an operation that cannot be posted, or not as a whole: others do not go on with calls that failed with it. */
  refuse(op: Operation, error: unknown): void {
    this.#ledger.batches.seal();
    this.#ledger.failures.fail(op, error);
  }

  /** An operation that its creator settles. */
  createOp<T>(): Operation<T> {
    return new Operation<T>(this.#context ?? this.#ledger.currentContext(this.facts.rank));
  }

  /** Virtual time on this rank's clock, 0 without one. */
  get nowPs(): number {
    return this.#session.scheduler.clock?.now(this.worldRank) ?? 0;
  }

  /** Throws when the communicator was closed, or when this rank makes no calls now. */
  assertOpen(action: string): void {
    const reason = this.#closing
      ? "the communicator was closed"
      : this.#ledger.world.monitor.refusal(this.worldRank);
    if (reason !== undefined) {
      throw new CommClosedError(
        { headline: `${action}: ${reason}, needs an open one` },
        this.facts,
      );
    }
  }

  /** Runs a synchronous callback and returns its calls, checked and not posted. There are no `options`: given ones are refused. */
  collect(action: CallbackAction, callback: () => void, options: unknown): CallCollector {
    this.assertOpen(action);
    if (typeof callback !== "function") {
      const isPrepared = action === "prepare";
      const facts = isPrepared ? this.facts : { ...this.facts, collective: action };
      const field = isPrepared ? "call" : "calls";
      throw invalid(action, field, textOf(callback), "a function", undefined, facts);
    }
    if (options !== undefined) {
      const takers = { group: "the calls in it", capture: "replay", prepare: "start" };
      const hint = `pass timeoutMs and signal to ${takers[action]}`;
      const facts = { ...this.facts, collective: action };
      throw invalid(action, "options", textOf(options), "the callback alone", hint, facts);
    }
    return collectCalls(action, this, this.facts, callback);
  }

  /** The calls of the innermost running callback so far; `undefined` outside of one. */
  get collector(): CallCollector | undefined {
    return innermost?.owner === this ? innermost : undefined;
  }

  /** Throws inside of another communicator's callback: the call would be posted at once, and not be a part of it. */
  assertOwn(action: string): void {
    if (innermost === undefined || innermost.owner === this) return;
    throw this.fault(
      { collective: action, field: "calls" },
      `${action}: called on "${this.facts.comm}" inside of another communicator's ${innermost.action}`,
      `calls in a ${innermost.action} are of one communicator: make this one before or behind it, or in one of its own`,
    );
  }

  /** Throws inside of the communicator's own callback, whose calls are not posted and cannot be waited for. */
  assertOutside(collective: "close" | "replay"): void {
    const { collector } = this;
    if (collector === undefined) return;
    throw this.fault(
      { collective, field: "calls" },
      `${collective}: called on "${this.facts.comm}" inside of its own ${collector.action}, needs a place outside`,
      `${collective} behind the ${collector.action}`,
    );
  }

  /** An error about what this rank calls, or where. */
  fault(
    about: { readonly collective: string; readonly field: string },
    headline: string,
    hint?: string,
  ): InvalidArgumentError {
    return new InvalidArgumentError({ headline, hint }, { ...this.facts, ...about });
  }

  /** Posts checked calls that belong together, or leaves them to the callback that is running. */
  postTogether(calls: readonly CollectedCall[]): void {
    const { collector } = this;
    if (collector === undefined) this.postCollected(calls);
    else collector.steps.push(calls);
  }

  /** Virtual compute: now, or at every replay where it is being recorded. */
  work(work: VirtualWork): void {
    this.assertOwn("work");
    if (this.collector?.addWork(work) === true) return;
    this.#session.scheduler.clock?.work(this.worldRank, work.durationNs, work.label);
  }

  /**
   * Posts checked calls: collective ones in order, then all sends and receives together. A refusal leaves none of them behind.
   * `areAnnounced` where the session has accepted them already.
   */
  postCollected(calls: readonly CollectedCall[], areAnnounced = false): void {
    const messages: CollectedMessage[] = [];
    for (let at = 0; at < calls.length; at++) {
      const { collective, options } = calls[at] as CollectedCall;
      if (options !== undefined) this.assertNotCancelled(collective, options);
    }
    const wereMade = calls[0]?.prepared.rankCall !== undefined && calls.every(isMessage);
    if (wereMade && this.cache.repeatMessages(calls)) return;
    if (!areAnnounced) for (const call of calls) this.announce(call);
    const areNotified = this.#notifyAll(calls);
    for (let at = 0; at < calls.length; at++) {
      const collected = calls[at] as CollectedCall;
      const { prepared } = collected;
      if ("transfers" in prepared) {
        this.#createCall(collected);
        messages.push(collected as CollectedMessage);
      } else if (areNotified || !this.cache.repeatCollected(collected)) {
        this.#postCollective(collected, prepared, areNotified);
      }
    }
    if (messages.length > 0) this.#postMessages(messages, areNotified);
  }

  /** Notifies hooks and subscribers of calls before any of them is posted, in the order of posting; false without observers. */
  #notifyAll(calls: readonly CollectedCall[]): boolean {
    const isObserved = ({ collective }: CollectedCall): boolean =>
      subscribedChannels(collective) !== undefined;
    if (this.hooks.idle && !calls.some(isObserved)) return false;
    for (const kind of [false, true]) {
      const first = this.nextNumber(kind);
      const those = calls.filter((call) => isMessage(call) === kind);
      for (const [behind, each] of those.entries()) {
        this.#notify(this.#createCall(each), each.op, first + behind);
      }
    }
    return true;
  }

  /** Posts sends and receives. All are created before any is posted: a refusal then leaves no single end behind. */
  #postMessages(messages: readonly CollectedMessage[], areNotified: boolean): void {
    const transfers: TransferPosting[] = [];
    for (let at = 0; at < messages.length; at++) {
      const message = messages[at] as CollectedMessage;
      if (!areNotified) this.#stats.record(message.call);
      this.#addTransfers(message, transfers);
    }
    this.#ledger.postMessages(this.facts.rank, transfers);
    for (let at = 0; at < transfers.length; at++) {
      const { op, call } = transfers[at] as TransferPosting;
      markInUse(op, call);
    }
  }

  /** Posts a checked collective call. */
  #postCollective(collected: CollectedCall, prepared: Prepared<unknown>, isNotified = false): void {
    const { options, op } = collected;
    const call = this.#createCall(collected);
    if (hasReceiveCounts(call)) prepared.rankCall = call;
    if (!isNotified) this.#notify(call, op, this.nextNumber());
    const signal = options?.signal;
    const watch =
      signal && (() => cancelOnSignal(signal, this.#ledger, this.facts, call.collective, op));
    this.#ledger.post(this.facts.rank, this.#posting(collected, call, prepared, op), watch);
    markInUse(op, call);
  }

  stats(): { calls: Record<string, number>; sendBytes: number; failures: number } {
    return { ...this.#stats.totals(), failures: this.#ledger.failures.count(this.facts.rank) };
  }

  /** Number of closings, also by the world: earlier recordings are gone. */
  get closings(): number {
    return this.#closings + (isMemoryOver(this.#session) ? 1 : 0);
  }

  /** Gives back this rank's part of a recording, or of all, once the replays made before are done. */
  discard(graph?: object): void {
    const { rank } = this.facts;
    const ledger = this.#ledger;
    const giveBack = (): void => this.#session.discard(ledger.comm, rank, graph);
    ledger.batches.seal();
    const open = graph === undefined ? [] : ledger.pending(rank);
    const replays = open.filter(({ call }) => call.graph === graph);
    let left = replays.length;
    if (left === 0) giveBack();
    // One that is cancelled before it is submitted settles before those that were made earlier.
    for (const { op } of replays) {
      op.whenSettled(() => {
        left--;
        if (left === 0) giveBack();
      });
    }
  }

  reopen(): void {
    this.#end = closeOnce(() => this.#close());
    this.#closing = false;
  }

  /** Waits for pending calls, then refuses everything. Rethrows the first unobserved failure. */
  close(): Promise<void> {
    return this.#end();
  }

  async #close(): Promise<void> {
    this.#closing = true;
    this.#ledger.batches.seal();
    const { rank } = this.facts;
    const { failures } = this.#ledger;
    const poison = failures.poison(rank);
    const outcomes = await Promise.allSettled(this.#ledger.pending(rank).map(({ op }) => op));
    await this.#ledger.settled();
    this.#closings++;
    this.discard();
    this.#onClosed();
    const unseen = poison ?? failures.poison(rank);
    failures.markReported(rank);
    if (unseen !== undefined) throw unseen;
    const failed = outcomes.find((outcome) => outcome.status === "rejected");
    if (failed !== undefined) throw failed.reason as CommError;
  }

  /** The session may refuse a call that is about to be posted; of several, before the first of them is. */
  announce(collected: CollectedCall): void {
    this.#session.observer?.posting(this.worldRank, this.#createCall(collected));
  }

  /** The call that is posted, and announced before that: one object, unless recorded compute comes between. */
  #createCall(collected: CollectedCall): RankCall {
    const { collective, prepared, call: announced } = collected;
    const { nowPs } = this;
    if (announced?.postedAtPs === nowPs) return announced;
    // Where time is virtual, every call has times of its own.
    const isReal = this.#session.scheduler.clock === undefined;
    const before = isReal && !("transfers" in prepared) ? prepared.rankCall : undefined;
    const call = before ?? rankCall(collective, this.facts.rank, prepared.call, nowPs);
    collected.call = call;
    return call;
  }

  /** The posting of a call, or of one of its sends and receives. */
  #posting(
    { options, calledAtPs }: CollectedCall,
    call: RankCall,
    prepared: Prepared<unknown>,
    op: Operation,
  ): Posting {
    observeForSession(this.#session, this.#ledger.comm, call, op);
    const timeoutMs = options?.timeoutMs ?? this.#timeoutMs;
    const cancellable = options?.signal !== undefined;
    return { call, prepared, op, calledAtPs, timeoutMs, cancellable };
  }

  /** Adds the sends and receives of one call; the call is done when all of them are. */
  #addTransfers(message: CollectedMessage, added: TransferPosting[]): void {
    const { call: whole, op, prepared } = message;
    const { transfers, result } = prepared;
    const only = transfers.length === 1 ? transfers[0] : undefined;
    if (only !== undefined) {
      added.push(this.#transferPosting(message, whole, only, op));
      return;
    }
    const parts = transfers.map((half) => {
      const call = rankCall(half.direction, whole.rank, half.call, whole.postedAtPs);
      return this.#transferPosting(message, call, half, this.createOp().halfOf(op));
    });
    added.push(...parts);
    completeTogether(op, parts, result);
  }

  #transferPosting(
    whole: CollectedMessage,
    call: RankCall,
    prepared: PreparedHalf,
    op: Operation,
  ): TransferPosting {
    const { collective, options } = whole;
    const { direction, peer } = prepared;
    const { calledAtPs, timeoutMs, cancellable } = this.#posting(whole, call, prepared, op);
    if (options?.signal !== undefined)
      cancelOnSignal(options.signal, this.#ledger, this.facts, collective, op);
    // Fields by name: a spread of the posting takes ten times as long.
    return {
      whole,
      call,
      prepared,
      op,
      calledAtPs,
      timeoutMs,
      cancellable,
      direction,
      peer,
      number: -1,
      isOpen: true,
    };
  }

  /** Counts a call that will have a number, and calls its hooks and channels. */
  #notify(call: RankCall, op: Operation, number: number): void {
    this.#stats.record(call);
    const channels = subscribedChannels(call.collective);
    if (this.hooks.idle && channels === undefined) return;
    notifyPosted(this.hooks, this.facts, { call, op }, number, channels);
  }

  /** The number of the next collective call, or of the next message. */
  nextNumber(isMessage = false): number {
    return isMessage ? this.#ledger.messageNumbers.next(this.facts.rank) : this.#batch.next;
  }

  /** Throws when the signal of a call has fired before it was made. */
  assertNotCancelled(collective: CollectiveName, options: CallOptions | undefined): void {
    const signal = options?.signal;
    if (signal?.aborted === true) throw cancelledError(this.facts, collective, -1, signal);
  }
}

function isPlainObject(args: object | undefined): boolean {
  if (typeof args !== "object" || args === null) return args === undefined;
  return Object.getPrototypeOf(args) === Object.prototype;
}

/** Reports a call to its session, as far as that observes calls. */
function observeForSession(session: Session, comm: CommInfo, call: RankCall, op: Operation): void {
  const { observer } = session;
  if (observer === undefined) return;
  observer.posted(comm, call);
  op.whenSettled(() => observer.settled(call));
  op.whenFinal((error) => {
    // What was refused has no number: it was not posted.
    if (op.status !== "failed" || op.call < 0) return;
    observer.failed(comm, { call, number: op.call, error, atPs: failedAtPs(session, call, op) });
  });
}

/**
 * The virtual time of a rank's failed call. Failures without a time, such as deadlocks and aborts, take the latest time of all
 * ranks.
 */
function failedAtPs(session: Session, { postedAtPs }: RankCall, op: Operation): number {
  const { clock } = session.scheduler;
  if (op.finishedAtPs > 0 || clock === undefined) return Math.max(postedAtPs, op.finishedAtPs);
  let latestPs = postedAtPs;
  for (let rank = 0; rank < session.info.size; rank++) {
    latestPs = Math.max(latestPs, clock.now(rank));
  }
  return latestPs;
}
