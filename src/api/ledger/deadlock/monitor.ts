/**
 * Detects deadlocks: the state of a world in which no waiting rank can ever continue.
 *
 * A rank is *parked* while its program awaits an operation that lacks other ranks' calls. A deadlock is proved without a
 * timeout, in two cases. In the first, the runtime has nothing left to wait for. In the second, every unfinished rank is parked
 * and two turns of the event loop pass without activity. In addition, no resource that a rank opened in this run is alive, no
 * other thread works, and one more turn brings no event. Without records of the resources of ranks, every live timer counts,
 * and every other resource opened since the start of the run. All other waits are stalls: the monitor reports a stall after a
 * delay and keeps checking.
 */
import type { VirtualClock } from "../../backend.ts";
import type { RankWait } from "../../errors.ts";
import type { Operation, OpObserver } from "../../op.ts";
import { cancelTurn, nextTurn, ownTimers, setOwnTimer } from "../turns.ts";
import {
  eventsSoFar,
  type LiveResources,
  liveResources,
  nothingNew,
  onLastTurn,
  openStandardStreams,
  otherThreadsWork,
  RankContext,
  staysAlive,
} from "./runtime.ts";

/** Options of a monitor. */
export interface MonitorOptions {
  readonly clock: VirtualClock | undefined;
  /** True if operations record their call sites. */
  readonly callSites: boolean;
  /** Delay of the report of a stall. */
  readonly stallMs: number;
}

/** Receives the verdicts of a monitor. */
export interface MonitorListener {
  /** True when something the runtime does not list, such as a signal, may still end a wait. */
  readonly wakeable: boolean;
  /** No rank can continue. */
  onDeadlock(): void;
  /** No rank can continue, and no rank waits for another one. */
  onAbandoned(): void;
  /** No activity for `stallMs`, but a timer or I/O may still wake a rank. */
  onStalled(alive: LiveResources | undefined): void;
}

/** Longest interval between two checks. Each interval is as long as the wait so far, up to this limit. */
const longestCheckMs = 250;

/** Activity cancels a check due later than this, so that the next wait is timed from its start. */
const shortCheckMs = 4;

/**
 * Longest time for which checks keep the runtime alive. A runtime that runs empty before the verdict would end tests that are
 * still open.
 */
const longestAliveMs = 1_000;

type RankState = "idle" | "running" | "finished";

/** A time without activity: its start in the time of `performance.now`; true from the report of a stall on. */
interface Quiet {
  readonly sinceMs: number;
  readonly isStall: boolean;
}

/** Counts parked ranks; one per world. */
export class Monitor implements OpObserver {
  /** True if operations record their call sites. */
  readonly callSites: boolean;
  readonly #listener: MonitorListener;
  readonly #clock: VirtualClock | undefined;
  readonly #stallMs: number;
  readonly #states: RankState[];
  readonly #parked: number[];
  /** The answer of `refusal` for every rank; `undefined` where ranks may make calls while their programs run. */
  #admission: { readonly reason: string | undefined } | undefined;
  #running = 0;
  #parkedRanks = 0;
  #executing = 0;
  #activity = 0;
  #isChecking = false;
  /** Cancels the pending check; `undefined` where activity does not cancel it: it is due soon and keeps the runtime alive. */
  #cancelLateCheck: (() => void) | undefined;
  /** The step of a check that is due in the next turn. */
  #nextStep: (() => void) | undefined;
  #atStart: LiveResources | undefined;
  #stopListening: (() => void) | undefined;
  #context: RankContext | undefined;

  constructor(size: number, options: MonitorOptions, listener: MonitorListener) {
    this.callSites = options.callSites;
    this.#clock = options.clock;
    this.#stallMs = options.stallMs;
    this.#listener = listener;
    this.#states = new Array<RankState>(size).fill("idle");
    this.#parked = new Array<number>(size).fill(0);
  }

  /** Begins a run: all ranks are running. */
  start(): void {
    this.#states.fill("running");
    this.#parked.fill(0);
    this.#running = this.#states.length;
    this.#parkedRanks = 0;
    openStandardStreams();
    this.#atStart = liveResources();
    // If nothing else keeps the runtime alive, the last turn finds every deadlock. Otherwise the proof needs the waiting ranks
    // and their open resources. With real time, such records would cost more than a small call.
    const isVirtual = this.#clock !== undefined;
    if (isVirtual && staysAlive(this.#atStart, ownTimers)) this.#context = RankContext.open();
    this.noteActivity();
    this.#stopListening = onLastTurn(() => this.#lastTurn());
  }

  /** Ends the run. */
  stop(): void {
    this.#stopListening?.();
    this.#stopListening = undefined;
    this.#context?.close();
    this.#context = undefined;
    // A pending turn would keep the world in memory.
    if (this.#nextStep !== undefined && cancelTurn(this.#nextStep)) this.#isChecking = false;
    this.#nextStep = undefined;
  }

  /** Runs a rank's program. */
  enter<T>(rank: number, program: () => T): T {
    return this.#context === undefined ? program() : this.#context.enter(rank, program);
  }

  /** World rank of the running program; `undefined` without a rank context. */
  get callingRank(): number | undefined {
    return this.#context?.rank;
  }

  /** Notes that a rank's program returned or threw. */
  finished(rank: number): void {
    if (this.#states[rank] !== "running") return;
    this.#states[rank] = "finished";
    this.#running--;
    if ((this.#parked[rank] as number) > 0) this.#parkedRanks--;
    this.noteActivity();
    this.#check();
  }

  /** The state of a rank's program: it waits while it awaits a call that lacks other ranks. */
  state(rank: number): RankWait["state"] {
    if (this.#states[rank] === "finished") return "finished";
    return (this.#parked[rank] ?? 0) > 0 ? "waits" : "runs";
  }

  /** Lets ranks make calls always; with a reason, never. */
  admit(reason?: string): void {
    this.#admission = { reason };
  }

  /** The reason why a rank may make no calls now; `undefined` when it may. */
  refusal(rank: number): string | undefined {
    if (this.#admission !== undefined) return this.#admission.reason;
    const state = this.#states[rank];
    if (state === "running") return undefined;
    return state === "finished" ? `rank ${rank}'s program has returned` : "no run is going on";
  }

  /** Counts an event: a call was posted or settled. */
  noteActivity(): void {
    this.#activity++;
    if (this.#cancelLateCheck !== undefined) this.#restartCheck(this.#cancelLateCheck);
  }

  /** Counts complete calls in execution, which settle without further calls. */
  executing(change: 1 | -1): void {
    this.#executing += change;
    this.noteActivity();
    if (change < 0) this.#check();
  }

  awaited(op: Operation): void {
    if (!op.pending) {
      this.#clock?.reach(op.worldRank, op.finishedAtPs);
      return;
    }
    const rank = op.callingRank;
    const parked = (this.#parked[rank] as number) + 1;
    this.#parked[rank] = parked;
    if (parked === 1 && this.#states[rank] === "running") {
      this.#parkedRanks++;
      this.#check();
    }
  }

  resumed(op: Operation): void {
    const rank = op.callingRank;
    const parked = (this.#parked[rank] as number) - 1;
    this.#parked[rank] = parked;
    if (parked === 0 && this.#states[rank] === "running") this.#parkedRanks--;
    this.#clock?.reach(op.worldRank, op.finishedAtPs);
    this.noteActivity();
  }

  /** True while every rank with an unfinished program awaits a call. */
  get allParked(): boolean {
    return this.#parkedRanks === this.#running;
  }

  /** True while a rank waits for others and no call is in execution. */
  #waiting(): boolean {
    return this.#parkedRanks > 0 && this.#executing === 0;
  }

  #check(): void {
    if (this.#isChecking || !this.#waiting()) return;
    this.#isChecking = true;
    const seen = this.#activity;
    this.#nextTurn(() =>
      this.#nextTurn(() => this.#decide(seen, { sinceMs: performance.now(), isStall: false })),
    );
  }

  #nextTurn(step: () => void): void {
    this.#nextStep = step;
    nextTurn(step);
  }

  /**
   * Decides during a time without activity. `atRest` holds the number of events at the first check without working threads.
   */
  #decide(seen: number, quiet: Quiet, atRest?: { readonly events: number | undefined }): void {
    this.#isChecking = false;
    if (!this.#waiting()) return;
    const now = liveResources();
    const events = eventsSoFar();
    if (seen !== this.#activity) this.#check();
    else if (!this.allParked || !this.#nothingElse(now) || otherThreadsWork())
      this.#checkLater(seen, quiet, now);
    else if (atRest === undefined) {
      // Finished work of other threads arrives as an event of the next turn.
      this.#isChecking = true;
      this.#nextTurn(() => this.#decide(seen, quiet, { events }));
    } else if (atRest.events === events) {
      this.#listener.onDeadlock();
      // A deadline ends some calls: a rank may await others beside them, and no new wait begins.
      this.#check();
    } else this.#checkLater(seen, quiet, now);
  }

  #nothingElse(now: LiveResources | undefined): boolean {
    const start = this.#atStart;
    if (now === undefined || start === undefined || this.#listener.wakeable) return false;
    return nothingNew(start, now, ownTimers, this.#context?.opened);
  }

  /** The runtime is about to exit: programs that have not returned by now never do. */
  #lastTurn(): void {
    if (this.#waiting()) {
      this.#listener.onDeadlock();
      // One more turn gives the failed calls' programs a chance to return; the next last turn reports the rest.
      nextTurn(() => undefined);
    } else if (this.#running > 0 && this.#executing === 0) {
      this.#listener.onAbandoned();
    }
  }

  /**
   * Schedules the next check after the time waited so far. Checks that can prove a deadlock keep the runtime alive for up to
   * `longestAliveMs`. After that, the last turn decides.
   */
  #checkLater(seen: number, quiet: Quiet, alive: LiveResources | undefined): void {
    this.#isChecking = true;
    const waitedMs = performance.now() - quiet.sinceMs;
    const keepsAlive = this.allParked && !this.#listener.wakeable && waitedMs < longestAliveMs;
    // A check is due exactly at `stallMs`, so that the report is on time.
    const leftMs = quiet.isStall ? longestCheckMs : this.#stallMs - waitedMs;
    const delayMs = Math.min(longestCheckMs, Math.max(1, waitedMs), Math.max(1, Math.ceil(leftMs)));
    const check = (): void => {
      this.#cancelLateCheck = undefined;
      const isStall = performance.now() - quiet.sinceMs >= this.#stallMs;
      if (isStall && !quiet.isStall && seen === this.#activity && this.#waiting())
        this.#listener.onStalled(alive);
      this.#decide(seen, { sinceMs: quiet.sinceMs, isStall });
    };
    const cancel = setOwnTimer(check, delayMs, keepsAlive);
    // A timer that does not keep the runtime alive may never fire, so that activity restarts the check.
    if (delayMs > shortCheckMs || !keepsAlive) this.#cancelLateCheck = cancel;
  }

  /** Activity restarts the wait from zero. */
  #restartCheck(cancel: () => void): void {
    cancel();
    this.#cancelLateCheck = undefined;
    this.#isChecking = false;
    this.#check();
  }
}
