/** The world behind `createWorld`: members, ledger and monitor around one session. */
import { type Attempt, asJobSession, type CommInfo, type Session } from "../backend.ts";
import { endMemoryOf } from "../buffer.ts";
import { closeOnce } from "../close-once.ts";
import type { Communicator } from "../communicator.ts";
import { errorText } from "../error-text.ts";
import {
  CommAbortedError,
  CommClosedError,
  InvalidArgumentError,
  type RankFailure,
  type RankWait,
} from "../errors.ts";
import { assertQuestion, type Explanation, type Question } from "../explanation.ts";
import { WorldContext } from "../ledger/comm-state.ts";
import { waitCause } from "../ledger/deadlines.ts";
import { Monitor, type MonitorListener } from "../ledger/deadlock/monitor.ts";
import { OrderWatch } from "../ledger/deadlock/order.ts";
import {
  deadlockErrors,
  interruptedText,
  stallErrors,
  stallText,
  waitsOf,
} from "../ledger/deadlock/report.ts";
import type { LiveResources } from "../ledger/deadlock/runtime.ts";
import { terminationOf } from "../ledger/failures.ts";
import type { Ledger } from "../ledger/ledger.ts";
import { deadlineOf } from "../ledger/posting.ts";
import type { OpenWait } from "../ledger/queues.ts";
import type { Member } from "../member/member.ts";
import type { Operation } from "../op.ts";
import { assertOptions, type Complete, textOf } from "../option-kinds.ts";
import { emitWarning } from "../warnings.ts";
import { Communicators } from "./communicators.ts";
import { type ActiveWorld, reportOnInterrupt } from "./interrupts.ts";
import { waitBounded, warnOfUnobserved, watchRemoteEnds } from "./shutdown.ts";
import type { RebuildOptions, StallReport, World, WorldOptions } from "./world.ts";
import {
  abortedError,
  closedWorldErrors,
  neverReturnedError,
  remoteErrors,
  survivorsOf,
  worldError,
} from "./world-errors.ts";

type State = "idle" | "running" | "detached" | "aborted" | "closed";

/** Options of an open world, reused by `rebuild`. */
export interface Opening
  extends Omit<Complete<WorldOptions>, "size" | "onStall">,
    Pick<WorldOptions, "onStall"> {
  /** Longest wait of `close` for open calls, with real time. */
  readonly closeMs: number;
}

const selections = new WeakMap<Session, readonly Attempt[]>();

/** Keeps the attempts by which a session was chosen among several backends. */
export function noteSelection(session: Session, attempts: readonly Attempt[]): Session {
  selections.set(session, attempts);
  return session;
}

function warnOfStall({ text }: StallReport): void {
  emitWarning(text, "TwincclStall");
}

/** All ranks of a job in this process. */
export class LocalWorld implements World, MonitorListener, ActiveWorld {
  readonly name: string;
  readonly size: number;
  readonly generation: number;
  readonly initialRanks: readonly number[];
  readonly #opening: Opening;
  readonly session: Session;
  readonly #onStall: (report: StallReport) => void;
  readonly #monitor: Monitor;
  readonly #context: WorldContext;
  readonly #communicators: Communicators;
  #state: State = "idle";
  /** True after a failed `rebuild`: this world is closed, and its successor did not open. */
  #mayReopen = false;
  #abortReason: unknown;
  #abandonRun: () => void = () => undefined;
  #stopWatchingRemote: () => void = () => undefined;
  #failures: RankFailure[] = [];

  constructor(
    session: Session,
    opening: Opening,
    generation = 1,
    initialRanks?: readonly number[],
  ) {
    const { name, stall, onStall } = opening;
    this.name = name;
    this.size = session.info.size;
    this.generation = generation;
    this.#opening = opening;
    this.session = session;
    this.#onStall = onStall ?? (stall === "fail" ? () => undefined : warnOfStall);
    const { clock } = session.scheduler;
    const { callSites, stallMs } = opening;
    this.#monitor = new Monitor(this.size, { clock, callSites, stallMs }, this);
    this.initialRanks = initialRanks ?? Array.from({ length: this.size }, (_, rank) => rank);
    const job = asJobSession(session);
    const orderWatch =
      job &&
      new OrderWatch(job, {
        openCalls: () => this.#communicators.ledgers.map(({ openCalls }) => openCalls),
        isBlocked: () => this.#context.isBlocked,
        onInversion: (orders) => this.#communicators.endInverted(orders),
      });
    const openComm = (comm: CommInfo) => this.#communicators.open(comm);
    this.#context = new WorldContext(session, this.#monitor, openComm, orderWatch);
    this.#communicators = new Communicators(name, this.#context, (reason) => this.abort(reason));
    job?.onLost((rank, reason) => this.#communicators.onRankLost(rank, reason));
  }

  get backend(): string {
    return this.session.info.backend;
  }

  get selection(): readonly Attempt[] {
    const { backend } = this;
    return selections.get(this.session) ?? [{ backend, ok: true, reason: "named by the caller" }];
  }

  async run<T>(program: (comm: Communicator) => T | PromiseLike<T>): Promise<[T, ...T[]]> {
    this.#assertRunnable(program);
    this.#state = "running";
    this.#failures = [];
    this.#communicators.reset();
    // Resources that the caller opens right after this call, such as timers, exist before the ranks start.
    await undefined;
    this.#monitor.start();
    this.#context.wakeUps.reset();
    const stopReporting = reportOnInterrupt(this);
    const results = new Array<T>(this.size);
    const order = this.session.scheduler.wakeOrder(undefined);
    const abandoned = new Promise<void>((resolve) => {
      this.#abandonRun = resolve;
    });
    const ranks = Promise.all(order.map((rank) => this.#runRank(rank, program, results)));
    await Promise.race([ranks, abandoned]);
    this.#context.appending?.seal();
    await this.#communicators.drained();
    this.#monitor.stop();
    stopReporting();
    this.#endRun();
    if (this.#failures.length > 0) throw worldError(this, this.#failures);
    return results as [T, ...T[]];
  }

  explain(question: Question): Explanation {
    return (this.#communicators.members[0] as Member).explain(question);
  }

  async estimate(question: Question): Promise<number> {
    const { comm } = this.#communicators.ledgers[0] as Ledger;
    assertQuestion(question, this.size, "estimate");
    if (this.#state === "closed") {
      throw new CommClosedError({
        headline: `estimate: the world "${this.name}" was closed, needs an open one`,
      });
    }
    return this.session.estimate(question, comm);
  }

  async rebuild(options: RebuildOptions = {}): Promise<World> {
    assertOptions("rebuild", options, { without: true });
    const { without = [] } = options;
    const isOver = this.#state === "closed" && !this.#mayReopen;
    if (this.#state === "running" || isOver) {
      const found = this.#state === "running" ? "is running" : "was closed";
      throw new CommClosedError({
        headline: `rebuild: the world "${this.name}" ${found}, needs an idle or aborted one`,
      });
    }
    const survivors = survivorsOf(this.size, without);
    try {
      await this.close();
      const { backend, name } = this.#opening;
      const rebuilt = { session: this.session, ranks: survivors };
      const session = await backend.open({ size: survivors.length, name, rebuilt });
      const initialRanks = survivors.map((rank) => this.initialRanks[rank] as number);
      return new LocalWorld(session, this.#opening, this.generation + 1, initialRanks);
    } catch (error) {
      this.#mayReopen = true;
      throw error;
    }
  }

  abort(reason?: unknown): void {
    if (this.#state === "aborted" || this.#state === "closed") return;
    this.#state = "aborted";
    this.#monitor.admit();
    this.#abortReason = reason;
    this.#abortAll(reason);
  }

  #abortAll(reason: unknown): void {
    const { text, facts } = abortedError(this.name, reason, "world");
    const scope = { comm: this.name, size: this.size };
    this.#communicators.abortAll(terminationOf(CommAbortedError, scope, text, facts), reason);
  }

  close(): Promise<void> {
    this.#mayReopen = false;
    return this.#end();
  }

  readonly #end = closeOnce(async () => {
    this.#state = "closed";
    this.#monitor.admit(`the world "${this.name}" was closed`);
    this.#communicators.terminateAll(closedWorldErrors(this));
    try {
      await this.#bounded(() => this.#communicators.drained());
    } finally {
      this.#stopWatchingRemote();
      endMemoryOf(this.session);
      this.#communicators.release();
      await this.session.close();
    }
  });

  /** Waits for open calls; with real time, a limit aborts them. */
  #bounded(wait: () => Promise<void>): Promise<void> {
    if (this.session.scheduler.clock !== undefined) return wait();
    const { closeMs } = this.#opening;
    const closing = { name: this.name, size: this.size, closeMs };
    return waitBounded(closing, wait, (reason) => this.#abortAll(reason));
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.close();
  }

  /** The single rank's communicator, usable outside of `run`; closing it closes the world. */
  detach(): Communicator {
    this.#state = "detached";
    this.#monitor.admit();
    const stopWarning = warnOfUnobserved(this.#communicators);
    const stopReporting = reportOnInterrupt(this, true);
    this.#stopWatchingRemote = watchRemoteEnds(
      asJobSession(this.session)?.peers,
      this.#communicators,
    );
    const member = this.#communicators.members[0] as Member;
    const endMember = member.end.bind(member);
    member.end = closeOnce(async () => {
      try {
        await this.#bounded(endMember);
      } finally {
        stopWarning();
        stopReporting();
        await this.close();
      }
    });
    return member;
  }

  /** Number of communicators in memory: the world's, and children of `split` still in use. */
  get openCommunicators(): number {
    return this.#communicators.ledgers.length;
  }

  get wakeable(): boolean {
    return this.#communicators.ledgers.some((ledger) => ledger.cancellable);
  }

  /** Resolves a deadlock: the earliest deadline expires or, without deadlines, all open calls fail. */
  onDeadlock(): void {
    if (this.#timeOutFirst()) return;
    this.#communicators.terminateAll(deadlockErrors(this.#waits()));
  }

  /** The earliest deadline of all open calls expires; false where none has one. */
  #timeOutFirst(): boolean {
    const [first] = this.#communicators.ledgers
      .flatMap((ledger) => ledger.withDeadline.map((posting) => ({ ledger, posting })))
      .sort((a, b) => deadlineOf(a.posting) - deadlineOf(b.posting));
    if (first === undefined) return false;
    const { ledger, posting } = first;
    ledger.timeOut(posting, waitCause(ledger.comm, ledger.queues, posting.op.rank));
    return true;
  }

  /** Ends a run whose runtime has nothing left to wait for: programs that have not returned are failures. */
  onAbandoned(): void {
    for (const { rank } of this.#communicators.members) {
      if (this.#monitor.state(rank) === "finished") continue;
      this.#failures.push({ rank, error: neverReturnedError(this, rank) });
      this.#monitor.finished(rank);
    }
    this.#abandonRun();
  }

  onStalled(alive: LiveResources | undefined): void {
    const waits = this.#waits();
    const { stall, stallMs } = this.#opening;
    this.#report({ text: stallText(waits, alive), alive });
    if (stall === "fail") this.#communicators.terminateAll(stallErrors(waits, alive, stallMs));
  }

  #report(report: StallReport): void {
    const fails = (error: unknown): void => this.#abortWithoutReceiver(error);
    try {
      const returned: unknown = this.#onStall(report);
      Promise.resolve(returned).catch(fails);
    } catch (error) {
      fails(error);
    }
  }

  get awaited(): Operation | undefined {
    for (const { awaited } of this.#communicators.ledgers)
      if (awaited !== undefined) return awaited;
    return undefined;
  }

  interruptedText(): string {
    const here = this.#communicators.members.map(({ rank }) => rank);
    const all = this.#waits((ledger) => ledger.openWaits());
    return interruptedText(
      this.name,
      all.filter(({ rank }) => here.includes(rank)),
    );
  }

  /** Aborts outside of any call. Errors of hooks, and a late reason, become process warnings. */
  #abortWithoutReceiver(reason: unknown): void {
    const warn = (error: unknown): void => emitWarning(errorText(error), "TwincclUnseenFailure");
    const isLate = this.#state === "aborted" || this.#state === "closed";
    if (isLate) warn(reason);
    try {
      this.abort(reason);
    } catch (error) {
      warn(error);
    }
  }

  async #runRank<T>(
    rank: number,
    program: (comm: Communicator) => T | PromiseLike<T>,
    results: T[],
  ): Promise<void> {
    try {
      const { readyQueue } = this.#context;
      if (readyQueue !== undefined) await readyQueue.turnOf(rank);
      const member = this.#communicators.members[rank] as Member;
      results[rank] = await this.#monitor.enter(rank, () => program(member));
    } catch (error) {
      this.#failures.push({ rank, error });
      this.#communicators.terminateAll(remoteErrors(this, rank, error), rank);
    }
    this.#monitor.finished(rank);
  }

  /** Open calls, and unobserved failures, are failures of the run. */
  #endRun(): void {
    const isBusy = (): boolean => this.#communicators.ledgers.some((ledger) => ledger.isBusy);
    // A deadline ends the calls of its communicator alone.
    while (isBusy() && this.#timeOutFirst());
    if (isBusy()) this.onDeadlock();
    const failed = new Set(this.#failures.map(({ rank }) => rank));
    for (const [rank, poison] of this.#communicators.poisons()) {
      if (failed.has(rank)) continue;
      failed.add(rank);
      this.#failures.push({ rank, error: poison.cause ?? poison });
    }
    if (this.#state === "running") this.#state = "idle";
  }

  /** The state of every rank, by its waits on all communicators: a rank's first call before those behind it. */
  #waits(of = (ledger: Ledger): OpenWait[] => ledger.waits()): RankWait[] {
    const waits = this.#communicators.ledgers.flatMap(of);
    waits.sort((a, b) => a.position - b.position);
    return waitsOf(this.size, (rank) => this.#monitor.state(rank), waits);
  }

  #assertRunnable(program: unknown): void {
    if (typeof program !== "function") {
      throw new InvalidArgumentError(
        { headline: `run: found ${textOf(program)}, needs a function of a communicator` },
        { field: "program" },
      );
    }
    if (this.#state === "idle") return;
    if (this.#state === "aborted") {
      const { text, facts } = abortedError(this.name, this.#abortReason, "world");
      throw new CommAbortedError(text, { ...facts, size: this.size, comm: this.name });
    }
    const found = this.#state === "closed" ? "was closed" : "is running already";
    throw new CommClosedError({
      headline: `run: the world "${this.name}" ${found}, needs an idle one`,
    });
  }
}
