/**
 * Detects the end of work on streams, without callbacks from CUDA threads and without a busy core.
 *
 * All work submitted in one turn shares one wait. First the thread queries the streams themselves for some microseconds. Small
 * collectives finish within that time and need no event. For longer work, an event per stream is queried in each turn of the
 * event loop, then by timers. Some waits for small collectives also settle in a later turn. Otherwise a loop of awaited calls
 * would starve timers and sockets.
 */
import type { Completion } from "../../../api/backend-entry.ts";
import { longestTimerMs, turnAgeMs } from "../../../api/ledger/turns.ts";
import { runAll } from "../../../api/run-all.ts";
import { keepAlive, settlesWithin } from "../../../job/async.ts";
import { closedDeviceError, type Device, thread } from "./device.ts";
import { SubmissionHold } from "./submission-hold.ts";

/** Launches of one turn after which their end is recorded within it: those count as under way. */
const launchesPerPoint = 128;

/**
 * Launches under way from which on work is held back; those of a turn that no completion point has yet come on top. CUDA blocks this
 * thread while about a thousand are queued on a stream behind a kernel, which may wait for a rank of another process.
 */
const mostLaunches = 640;

/** Durations of the phases of a wait. */
interface PollPolicy {
  /** Microseconds of queries without a pause. */
  readonly spinUs: number;
  /** Milliseconds of queries in every turn of the event loop. */
  readonly turnsMs: number;
}

/** Up to this time, the shortest pause of a timer (1 ms) would exceed a hundredth of the wait. */
const defaultPolicy: PollPolicy = { spinUs: 50, turnsMs: 100 };

/**
 * Calls that are done at once keep the event loop at one turn until the clock reaches a multiple of this; then timers and sockets
 * come to theirs. The turn of one rank delays all ranks of its calls: the processes of a host have the same clock, so that theirs
 * come together.
 */
const turnPeriodMs = 8;
const originMs = performance.timeOrigin % turnPeriodMs;

const passed = Promise.resolve();

/** Longest pause between two queries, and the largest ratio of a pause to the time waited so far. */
const longestPauseMs = 4;
const pausePart = 1 / 100;

/** Interval between two checks without an open completion. A check costs one NCCL call per communicator. */
const idleCheckMs = 1000;

/** Submitted work as a promise. */
export function asPromise(begin: (completion: Completion) => void): Promise<void> {
  return new Promise((resolve, reject) => {
    const settled = (error: unknown): void => (error === undefined ? resolve() : reject(error));
    begin({ acceptsMore: false, settled });
  });
}

/** The work of a stream, and its completions. */
export interface StreamWork {
  readonly device: Device;
  readonly progress: Progress;
}

/** Waits for the work of one process on its devices, in one order. */
export class Progress {
  readonly #policy: PollPolicy;
  /** Checks for asynchronous errors. */
  readonly #check: () => void;
  /** Holds back work for these devices. */
  readonly hold: SubmissionHold;
  readonly #spareEvents = new Map<Device, bigint[]>();
  #unrecorded: CompletionPoint | undefined;
  /** Launches that no point has recorded. A submission counts one, and adds those that it makes beside that. */
  launches = 0;
  /** The number of launches after which a point records them. */
  readonly #mostLaunches: number;
  /** Launches that points have recorded and that are not known to be done. */
  #underWay = 0;
  /** Set while work is held for them: resolves the promise once they are fewer than `mostLaunches`. */
  #onRoom: (() => void) | undefined;
  #room: Promise<void> | undefined;
  #open: CompletionPoint[] = [];
  #isPolling = false;
  /** Checks while no completion is open; see `watchIdle`. */
  #idleTimer: NodeJS.Timeout | undefined;

  constructor(
    check: () => void,
    policy: PollPolicy = defaultPolicy,
    hold: SubmissionHold = new SubmissionHold(),
  ) {
    this.#check = check;
    this.#policy = policy;
    this.hold = hold;
    this.#mostLaunches = hold.spansProcesses ? launchesPerPoint : Infinity;
  }

  /** Completions that settle in an order of their own, for work that does not wait for this one's. */
  independent(): Progress {
    return new Progress(this.#check, this.#policy, this.hold);
  }

  /**
   * Checks for asynchronous errors at intervals while no completion is open, until `release` or `abandon`. Without these checks,
   * only the next call would find a lost network or GPU. The timer does not keep the process alive.
   */
  watchIdle(): void {
    this.#idleTimer = setInterval(() => {
      if (!this.#isPolling) this.#check();
    }, idleCheckMs).unref();
  }

  /** Resolves when the work on these devices' streams so far is done. */
  after(devices: readonly Device[], owner?: WorkOwner): Promise<void> {
    return asPromise((completion) => this.whenDone(devices, owner, completion));
  }

  /** Settles `completion` when the work on these devices' streams so far is done. */
  whenDone(devices: readonly Device[], owner: WorkOwner | undefined, completion: Completion): void {
    if (this.#unrecorded === undefined) {
      this.#unrecorded = new CompletionPoint(devices, owner, completion);
      void passed.then(this.#record);
    } else this.#unrecorded.add(devices, owner, completion);
    this.countLaunch();
  }

  /** Counts a launch. After many in one turn, the last completion accepts no more. */
  countLaunch(): void {
    if (++this.launches >= this.#mostLaunches) this.#recordEarly();
  }

  /** True while no work may be submitted to its streams. */
  get holdsWork(): boolean {
    return this.hold.isOn || this.#underWay >= mostLaunches;
  }

  /** False where the signal fires before work can be submitted to its streams. */
  async holdEndsBefore(cancelled: AbortSignal | undefined): Promise<boolean> {
    while (this.holdsWork) {
      const over = this.hold.isOn ? this.hold.over : this.#hasRoom();
      if (!(await keepAlive(settlesWithin(longestTimerMs, over, cancelled)))) return false;
    }
    return true;
  }

  #hasRoom(): Promise<void> {
    this.#room ??= new Promise((resolve) => {
      this.#onRoom = () => {
        this.#room = undefined;
        this.#onRoom = undefined;
        resolve();
      };
    });
    return this.#room;
  }

  /** True if work on a device's stream may wait for ranks of other processes without a time limit. */
  waitsForPeers(device: Device): boolean {
    if (this.#unrecorded?.spansProcesses === true && this.#unrecorded.devices.includes(device))
      return true;
    const isAhead = (each: StreamEvent): boolean =>
      each.device === device && !device.cuda.eventDone(each.event);
    return this.#open.some(({ spansProcesses, events }) => spansProcesses && events.some(isAhead));
  }

  /** True if work of an owner is under way. */
  hasWorkOf(owner: WorkOwner): boolean {
    return (
      this.#unrecorded?.hasWorkOf(owner) === true ||
      this.#open.some((point) => point.hasWorkOf(owner))
    );
  }

  /** Rejects the completions of an aborted communicator. */
  rejectOwner(owner: WorkOwner, error: unknown): void {
    for (const point of [...this.#open]) point.rejectOwner(owner, error);
    this.#unrecorded?.rejectOwner(owner, error);
  }

  /** Rejects all completions: the work never ends. */
  abandon(error: unknown): void {
    clearInterval(this.#idleTimer);
    const lost = this.#open;
    this.#open = [];
    for (const point of lost) this.#fail(point, error);
  }

  /** Destroys the events. Open completions fail, because no later query can settle them. */
  release(): void {
    clearInterval(this.#idleTimer);
    const spare = [...this.#spareEvents];
    const lost = this.#open;
    const open = lost.flatMap(({ events }) => events);
    this.#spareEvents.clear();
    this.#open = [];
    runAll([
      ...spare.flatMap(([device, events]) =>
        events.map((event) => () => device.use().eventDestroy(event)),
      ),
      ...open.map(
        ({ device, event }) =>
          () =>
            device.use().eventDestroy(event),
      ),
      ...lost.map((point) => () => {
        const [device] = point.devices;
        this.#forgetLaunches(point);
        point.settle(closedDeviceError((device as Device).name));
      }),
    ]);
  }

  readonly #record = (): void => {
    const point = this.#unrecorded;
    if (point === undefined) return;
    point.close();
    if (this.hold.isFreeing) {
      void this.hold.over.then(this.#record);
      return;
    }
    this.#unrecorded = undefined;
    const { launches } = this;
    this.launches = 0;
    const nowMs = performance.now();
    let isDone = false;
    try {
      isDone = this.#open.length === 0 && this.#isDoneWhileSpinning(point, nowMs);
      if (!isDone) this.#recordEvents(point);
    } catch (error) {
      this.#fail(point, error);
      return;
    }
    if (isDone && turnAgeMs(nowMs) <= (originMs + nowMs) % turnPeriodMs) {
      point.settle();
      return;
    }
    this.#watch(point, launches);
  };

  /** Records the work of a turn that goes on, and counts the launches that are still under way. */
  #recordEarly(): void {
    const point = this.#unrecorded;
    if (point === undefined || this.hold.isFreeing) return;
    try {
      this.#recordEvents(point);
      for (const each of this.#open) {
        if (!this.#isDone(each)) break;
        this.#forgetLaunches(each);
      }
    } catch {
      // The end of the turn tries again, and fails the work where that fails too: here a call is being submitted.
      return;
    }
    point.close();
    this.#unrecorded = undefined;
    this.#watch(point, this.launches);
    this.launches = 0;
  }

  #watch(point: CompletionPoint, launches: number): void {
    this.#open.push(point);
    point.launches = launches;
    this.#underWay += launches;
    if (this.#isPolling) return;
    this.#isPolling = true;
    this.#schedulePoll(performance.now());
  }

  #forgetLaunches(point: CompletionPoint): void {
    this.#underWay -= point.launches;
    point.launches = 0;
    if (this.#underWay < mostLaunches) this.#onRoom?.();
  }

  /** True if the streams become idle within `spinUs`. */
  #isDoneWhileSpinning({ devices }: CompletionPoint, nowMs: number): boolean {
    const until = nowMs + this.#policy.spinUs / 1000;
    for (const device of devices) {
      if (thread.current !== device) device.useForStream();
      while (!device.cuda.streamDone(device.stream)) {
        if (performance.now() >= until) return false;
      }
    }
    return true;
  }

  /** Records an event after the present work of each stream. */
  #recordEvents({ devices, events }: CompletionPoint): void {
    for (const device of devices) {
      const cuda = device.use();
      const event = this.#spareEvents.get(device)?.pop() ?? cuda.eventCreate();
      events.push({ device, event });
      cuda.eventRecord(event, device.stream);
    }
  }

  /**
   * Schedules the next query: in the next turn, or after `turnsMs` with pauses. Each pause is a small part of the time waited
   * so far, so that it hardly lengthens the wait.
   */
  #schedulePoll(sinceMs: number): void {
    if (this.#open.length === 0) {
      this.#isPolling = false;
      return;
    }
    const waitedMs = performance.now() - sinceMs;
    const pausing = waitedMs >= this.#policy.turnsMs;
    const look = (): void => {
      const before = this.#open.length;
      try {
        this.#poll(pausing);
      } finally {
        this.#schedulePoll(this.#open.length === before ? sinceMs : performance.now());
      }
    };
    // Sockets come before the query: another process may have aborted, and its news keeps results from being taken.
    const afterSockets = (): void => void setImmediate(look);
    if (pausing) setTimeout(afterSockets, Math.min(longestPauseMs, waitedMs * pausePart));
    else afterSockets();
  }

  /** Settles completed points; points that cannot be queried fail. */
  #poll(alsoCheck = false): void {
    const open = this.#open;
    let done = 0;
    let lost: readonly CompletionPoint[] = [];
    let fault: unknown;
    try {
      if (alsoCheck) this.#check();
      while (done < open.length && this.#isDone(open[done] as CompletionPoint)) done++;
    } catch (error) {
      fault = error;
      lost = open.slice(done);
    }
    if (done === 0 && lost.length === 0) return;
    this.#open = open.slice(done + lost.length);
    for (const point of open.slice(0, done)) {
      this.#forgetLaunches(point);
      point.settle();
    }
    for (const point of lost) this.#fail(point, fault);
  }

  #isDone(point: CompletionPoint): boolean {
    const { events } = point;
    while (events.length > 0) {
      const last = events[events.length - 1] as StreamEvent;
      if (!last.device.cuda.eventDone(last.event)) return false;
      events.pop();
      this.#recycle(last);
    }
    return true;
  }

  #fail(point: CompletionPoint, error: unknown): void {
    this.#forgetLaunches(point);
    point.settle(error);
    for (const each of point.events) this.#recycle(each);
  }

  /** Returns an event for reuse by a later point. */
  #recycle({ device, event }: StreamEvent): void {
    const spare = this.#spareEvents.get(device);
    if (spare === undefined) this.#spareEvents.set(device, [event]);
    else spare.push(event);
  }
}

/** A recorded event in one device's stream. */
interface StreamEvent {
  readonly device: Device;
  readonly event: bigint;
}

/** The owner of the work. */
interface WorkOwner {
  /** True if the work waits for ranks of other processes. */
  readonly spansProcesses?: boolean;
  /** Set where work cannot be waited for: it may be under way still. */
  hasFailed?: boolean;
  /** Receives completions of work that is done, which are then not settled here; left out while results count. */
  readonly withhold?: ((completion: Completion) => void) | undefined;
}

/** Completions of the work of one communicator, in order. */
interface CompletionGroup {
  readonly owner: WorkOwner | undefined;
  readonly completions: Completion[];
}

/**
 * A point in the streams, recorded at the end of a turn and done when all streams reach it. A loop of awaited calls makes one for
 * each: its lists begin with what it begins with, since a list that grows from nothing has room for 16.
 */
class CompletionPoint {
  devices: readonly Device[];
  /** Events of the streams that have not reached it. */
  readonly events: StreamEvent[] = [];
  /** Launches of it that count as under way. */
  launches = 0;
  /** True if some of the work, aborted or not, waits for ranks of other processes. */
  spansProcesses: boolean;
  /** The last completion, while more work may follow it on the streams. */
  #last: Completion | undefined;
  /** The list of devices added last: successive calls mostly pass the same list. */
  #lastDevices: readonly Device[];
  /** All completions; consecutive ones of one communicator share a group, which may have no owner. */
  #groups: CompletionGroup[];
  #group: CompletionGroup | undefined;

  /** Begins with a completion of the work on these devices' streams so far. */
  constructor(devices: readonly Device[], owner: WorkOwner | undefined, completion: Completion) {
    this.devices = devices;
    this.spansProcesses = owner?.spansProcesses === true;
    this.#last = completion;
    this.#lastDevices = devices;
    this.#group = { owner, completions: [completion] };
    this.#groups = [this.#group];
    completion.acceptsMore = true;
  }

  /** Adds a completion of the work on these devices' streams so far. */
  add(devices: readonly Device[], owner: WorkOwner | undefined, completion: Completion): void {
    this.close();
    this.#last = completion;
    completion.acceptsMore = true;
    if (devices !== this.#lastDevices) {
      this.#lastDevices = devices;
      this.devices = [...new Set([...this.devices, ...devices])];
    }
    if (this.#group === undefined || this.#group.owner !== owner) {
      this.#group = { owner, completions: [completion] };
      this.#groups.push(this.#group);
      if (owner?.spansProcesses === true) this.spansProcesses = true;
    } else this.#group.completions.push(completion);
  }

  /** Excludes later work on the streams. */
  close(): void {
    if (this.#last !== undefined) this.#last.acceptsMore = false;
    this.#last = undefined;
  }

  /** Settles all completions, with an error if the work failed. Called after `close`. */
  settle(error?: unknown): void {
    const groups = this.#groups;
    this.#groups = [];
    settleAll(groups, error);
  }

  /** True if some of the work is an owner's. */
  hasWorkOf(owner: WorkOwner): boolean {
    return this.#groups.some((group) => group.owner === owner);
  }

  /** Rejects the completions of an aborted communicator. */
  rejectOwner(owner: WorkOwner, error: unknown): void {
    const lost = this.#groups.filter((group) => group.owner === owner);
    this.#groups = this.#groups.filter((group) => group.owner !== owner);
    this.#group = undefined;
    this.close();
    settleAll(lost, error);
  }
}

function settleAll(groups: readonly CompletionGroup[], error: unknown): void {
  for (const { owner, completions } of groups) {
    if (error !== undefined && owner !== undefined) owner.hasFailed = true;
    const withhold = error === undefined ? owner?.withhold : undefined;
    for (const each of completions) {
      if (withhold === undefined) each.settled(error);
      else withhold(each);
    }
  }
}
