/**
 * Watches the ranks of a world and finds the moment after which nothing can happen any more.
 *
 * A rank is *parked* while its program awaits an operation that lacks other ranks' calls. Parked ranks can certainly never
 * wake, which is decided without a timeout, in two cases: the runtime has nothing left to wait for
 * at all; or every unfinished rank is parked, two turns of the event loop pass without any activity, nothing is alive that a
 * rank opened in this run, no other thread works, and one more turn brings no event. Where it is not known what ranks have
 * opened, any timer that is alive counts, and everything else that was not there when the run began. Otherwise it is a stall,
 * which is reported after a delay and looked at again and again.
 */
import type { VirtualClock } from "../../backend.ts";
import type { CommOp, OpObserver } from "../../op.ts";
import { cancelTurn, nextTurn, ownTimers, setOwnTimer } from "./event-loop.ts";
import {
  eventsSoFar,
  type LiveResources,
  liveResources,
  nothingNew,
  onLastTurn,
  openRankContext,
  openStandardStreams,
  otherThreadsWork,
  type RankContext,
  staysAlive,
} from "./runtime.ts";

/** The world's side of the monitor. */
export interface MonitorHost {
  readonly clock: VirtualClock | undefined;
  /** True when something the runtime does not list, such as a signal, may still end a wait. */
  readonly wakeable: boolean;
  /** A stall is reported after this long. */
  readonly stallMs: number;
  /** Nothing can move any more. */
  onDeadlock(): void;
  /** Nothing can move any more, and no rank waits for another one. */
  onAbandoned(): void;
  /** Nothing has moved for a while, but a timer or I/O may still wake a rank. */
  onStalled(alive: LiveResources | undefined): void;
}

/** The next look is due after as long as has been waited, and after this long at most. */
const longestLookMs = 250;

/** A look further ahead than this is given up when something moves: what is waited for next is timed from its beginning. */
const shortLookMs = 4;

/**
 * So long at most the looks keep the runtime alive. What wakes no rank may end within that time; a runtime that runs empty
 * before the verdict ends tests that are still open.
 */
const longestAliveMs = 1_000;

type RankState = "idle" | "running" | "finished";

/** Counts parked ranks; one per world. */
export class Monitor implements OpObserver {
  /** True where operations keep the place of their call. */
  readonly callSites: boolean;
  readonly #host: MonitorHost;
  readonly #states: RankState[];
  readonly #parked: number[];
  #running = 0;
  #parkedRanks = 0;
  #executing = 0;
  #activity = 0;
  #looking = false;
  /** Stops a look far ahead, while it is due. */
  #farLook: (() => void) | undefined;
  /** The action in the next turn, while it is looking. */
  #step: (() => void) | undefined;
  #atStart: LiveResources | undefined;
  #stopListening: (() => void) | undefined;
  #context: RankContext | undefined;

  constructor(size: number, host: MonitorHost, callSites = false) {
    this.callSites = callSites;
    this.#host = host;
    this.#states = new Array<RankState>(size).fill("idle");
    this.#parked = new Array<number>(size).fill(0);
  }

  /** A run begins: all ranks are running. */
  start(): void {
    this.#states.fill("running");
    this.#parked.fill(0);
    this.#running = this.#states.length;
    this.#parkedRanks = 0;
    openStandardStreams();
    this.#atStart = liveResources();
    // Where nothing else keeps the runtime alive the last turn finds every deadlock; elsewhere it must be known which rank
    // waits, and what it has opened. Where time is real that would cost more than small calls take.
    const isVirtual = this.#host.clock !== undefined;
    if (isVirtual && staysAlive(this.#atStart, ownTimers)) this.#context = openRankContext();
    this.noteActivity();
    this.#stopListening = onLastTurn(() => this.#lastTurn());
  }

  /** The run is over. */
  stop(): void {
    this.#stopListening?.();
    this.#stopListening = undefined;
    this.#context?.close();
    this.#context = undefined;
    // The world need not wait for a turn to be collected.
    if (this.#step !== undefined && cancelTurn(this.#step)) this.#looking = false;
    this.#step = undefined;
  }

  /** Runs a rank's program. */
  enter<T>(rank: number, program: () => T): T {
    return this.#context === undefined ? program() : this.#context.enter(rank, program);
  }

  /** The world rank of the running program; `undefined` where that is not known. */
  get callingRank(): number | undefined {
    return this.#context?.rank;
  }

  /** A rank's program returned or threw. */
  finished(rank: number): void {
    if (this.#states[rank] !== "running") return;
    this.#states[rank] = "finished";
    this.#running--;
    if ((this.#parked[rank] as number) > 0) this.#parkedRanks--;
    this.noteActivity();
    this.#check();
  }

  /** The state of a rank's program. */
  state(rank: number): RankState {
    return this.#states[rank] ?? "idle";
  }

  /** True while a rank's program awaits a call that lacks other ranks. */
  parked(rank: number): boolean {
    return (this.#parked[rank] ?? 0) > 0;
  }

  /** Something happened: a call was posted or settled. */
  noteActivity(): void {
    this.#activity++;
    if (this.#farLook !== undefined) this.#restartLook(this.#farLook);
  }

  /** A complete call is being executed and will settle on its own. */
  executing(change: 1 | -1): void {
    this.#executing += change;
    this.noteActivity();
    if (change < 0) this.#check();
  }

  awaited(op: CommOp): void {
    if (!op.pending) {
      this.#host.clock?.reach(op.worldRank, op.finishedAtPs);
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

  resumed(op: CommOp): void {
    const rank = op.callingRank;
    const parked = (this.#parked[rank] as number) - 1;
    this.#parked[rank] = parked;
    if (parked === 0 && this.#states[rank] === "running") this.#parkedRanks--;
    this.#host.clock?.reach(op.worldRank, op.finishedAtPs);
    this.noteActivity();
  }

  /** True while every rank with an unfinished program awaits a call. */
  get allParked(): boolean {
    return this.#parkedRanks === this.#running;
  }

  /** True while some rank waits for others and no call is being executed. */
  #waiting(): boolean {
    return this.#parkedRanks > 0 && this.#executing === 0;
  }

  #check(): void {
    if (this.#looking || !this.#waiting()) return;
    this.#looking = true;
    const seen = this.#activity;
    this.#inTurn(() => this.#inTurn(() => this.#decide(seen, 0)));
  }

  #inTurn(step: () => void): void {
    this.#step = step;
    nextTurn(step);
  }

  /** Nothing has moved for `waitedMs`, or not since a turn before which no thread worked; then so many events had come. */
  #decide(seen: number, waitedMs: number, atRest?: { readonly events: number | undefined }): void {
    this.#looking = false;
    if (!this.#waiting()) return;
    const now = liveResources();
    const events = eventsSoFar();
    if (seen !== this.#activity) this.#check();
    else if (!this.allParked || !this.#nothingElse(now)) this.#lookAgain(seen, waitedMs, now);
    else if (otherThreadsWorkNow()) this.#lookAgain(seen, waitedMs, now);
    else if (atRest === undefined) {
      // What others had done by now is an event of the next turn.
      this.#looking = true;
      this.#inTurn(() => this.#decide(seen, waitedMs, { events }));
    } else if (atRest.events === events) this.#host.onDeadlock();
    else this.#lookAgain(seen, waitedMs, now);
  }

  #nothingElse(now: LiveResources | undefined): boolean {
    const start = this.#atStart;
    if (now === undefined || start === undefined || this.#host.wakeable) return false;
    return nothingNew(start, now, ownTimers, this.#context?.opened);
  }

  /** Nothing will ever happen again: ranks that have not returned by then never will. */
  #lastTurn(): void {
    if (this.#waiting()) {
      this.#host.onDeadlock();
      // One more turn, so that ranks which even then do not return are found by the next last one.
      nextTurn(() => undefined);
    } else if (this.#running > 0 && this.#executing === 0) {
      this.#host.onAbandoned();
    }
  }

  /**
   * Looks again after as long as has been waited. That keeps the runtime alive for a while where a look can decide; elsewhere,
   * and later, the last turn decides when nothing else keeps it alive.
   */
  #lookAgain(seen: number, waitedMs: number, alive: LiveResources | undefined): void {
    this.#looking = true;
    const { stallMs, wakeable } = this.#host;
    const keepsAlive = this.allParked && !wakeable && waitedMs < longestAliveMs;
    // A stall is reported in time, whatever the looks before it.
    const leftMs = waitedMs < stallMs ? stallMs - waitedMs : longestLookMs;
    const lookMs = Math.min(longestLookMs, Math.max(1, waitedMs), leftMs);
    const waited = waitedMs + lookMs;
    const look = (): void => {
      this.#farLook = undefined;
      const same = seen === this.#activity && this.#waiting();
      if (same && waitedMs < stallMs && waited >= stallMs) this.#host.onStalled(alive);
      this.#decide(seen, waited);
    };
    const stop = setOwnTimer(look, lookMs, keepsAlive);
    // A look that keeps nothing alive may never come: what moves before it looks again at once.
    if (lookMs > shortLookMs || !keepsAlive) this.#farLook = stop;
  }

  /** The awaited event has come: later waits begin from zero. */
  #restartLook(stop: () => void): void {
    stop();
    this.#farLook = undefined;
    this.#looking = false;
    this.#check();
  }
}

/** The result of the first look of this turn: all monitors that look in it need not look again. */
let found: { readonly othersWork: boolean } | undefined;

function otherThreadsWorkNow(): boolean {
  if (found === undefined) {
    found = { othersWork: otherThreadsWork() === true };
    queueMicrotask(forget);
  }
  return found.othersWork;
}

function forget(): void {
  found = undefined;
}
