/**
 * Finds the end of work on streams, without a callback from a CUDA thread and without a busy core.
 *
 * Work that was submitted in one turn is waited for together. The streams themselves are queried at once for some microseconds, in
 * which this thread can put nothing else on them; small collectives are done by then, and need no event. For others an
 * event per stream is queried between other events of the loop, then by timers. Now and then waits for a small one settle
 * there too: awaited one after another, they would keep timers and sockets waiting for as long as that goes on.
 */
import type { Completion } from "../../../api/index.ts";
import { isTurnLong } from "../../../api/ledger/deadlock/event-loop.ts";
import { asPromise, runAll } from "../common/async.ts";
import { closedDeviceError, type Device } from "./device.ts";

/** The times of a wait for completion. */
interface PollPolicy {
  /** Microseconds of looking without a pause. */
  readonly spinUs: number;
  /** Milliseconds of looking at every turn of the event loop. */
  readonly turnsMs: number;
}

/** As long as a pause, which a timer makes a millisecond at least, would be a hundredth of the wait or more. */
const defaultPolicy: PollPolicy = { spinUs: 50, turnsMs: 100 };

/** The longest pause between two looks, and the part of the time waited so far that a pause may be. */
const longestPauseMs = 4;
const pausePart = 1 / 100;

/** The work of one process on its devices. */
export class Progress {
  readonly #policy: PollPolicy;
  /** Looks whether something went wrong in the background. */
  readonly #check: () => void;
  readonly #spareEvents = new Map<Device, bigint[]>();
  #unrecorded: CompletionPoint | undefined;
  #open: CompletionPoint[] = [];
  #isPolling = false;
  #watch: IdleWatch | undefined;

  constructor(check: () => void, patience: PollPolicy = defaultPolicy) {
    this.#check = check;
    this.#policy = patience;
  }

  /** Checks from here on for errors in the background also without open waits, until everything is given back or abandoned. */
  watchIdle(everyMs?: number): void {
    this.#watch = new IdleWatch(() => {
      if (!this.#isPolling) this.#check();
    }, everyMs);
  }

  /** Resolves when what was put on these devices' streams so far is done. */
  after(devices: readonly Device[], owner?: WorkOwner): Promise<void> {
    return asPromise((waiting) => this.whenDone(devices, owner, waiting));
  }

  /** Settles when the work on these devices' streams so far is done. */
  whenDone(devices: readonly Device[], owner: WorkOwner | undefined, waiting: Completion): void {
    if (this.#unrecorded === undefined) {
      this.#unrecorded = new CompletionPoint();
      queueMicrotask(() => this.#record());
    }
    this.#unrecorded.add(devices, owner, waiting);
  }

  /** True when work on a device's stream may wait for ranks of other processes, without a bound. */
  waitsForPeers(device: Device): boolean {
    if (this.#unrecorded?.spansProcesses === true && this.#unrecorded.devices.has(device))
      return true;
    const isAhead = (each: StreamEvent): boolean =>
      each.device === device && !device.cuda.eventDone(each.event);
    return this.#open.some(({ spansProcesses, events }) => spansProcesses && events.some(isAhead));
  }

  /** Rejects the waits for the work of a communicator that was given up. */
  rejectOwner(owner: WorkOwner, error: unknown): void {
    for (const mark of [...this.#open]) mark.rejectOwner(owner, error);
    this.#unrecorded?.rejectOwner(owner, error);
  }

  /** Rejects all waits: the work does not end. */
  abandon(error: unknown): void {
    this.#watch?.end();
    const lost = this.#open;
    this.#open = [];
    for (const mark of lost) this.#fail(mark, error);
  }

  /** Gives the events back. Open waits fail because the device is closed: no later look settles them. */
  release(): void {
    this.#watch?.end();
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
      ...lost.map((mark) => () => {
        const [device] = mark.devices;
        mark.settle(closedDeviceError((device as Device).name));
      }),
    ]);
  }

  #record(): void {
    const mark = this.#unrecorded;
    if (mark === undefined) return;
    this.#unrecorded = undefined;
    mark.close();
    const nowMs = performance.now();
    let isDone = false;
    try {
      isDone = this.#open.length === 0 && this.#isDoneWhileSpinning(mark, nowMs);
      if (!isDone) this.#recordEvents(mark);
    } catch (error) {
      this.#fail(mark, error);
      return;
    }
    if (isDone && !isTurnLong(nowMs)) {
      mark.settle();
      return;
    }
    this.#open.push(mark);
    if (this.#isPolling) return;
    this.#isPolling = true;
    this.#schedulePoll(performance.now());
  }

  /** True when the streams are empty within the time of looking without a pause. */
  #isDoneWhileSpinning({ devices }: CompletionPoint, nowMs: number): boolean {
    const until = nowMs + this.#policy.spinUs / 1000;
    for (const device of devices) {
      const cuda = device.useForStream();
      while (!cuda.streamDone(device.stream)) {
        if (performance.now() >= until) return false;
      }
    }
    return true;
  }

  /** Puts an event behind what is on each stream. */
  #recordEvents({ devices, events }: CompletionPoint): void {
    for (const device of devices) {
      const cuda = device.use();
      const event = this.#spareEvents.get(device)?.pop() ?? cuda.eventCreate(false);
      events.push({ device, event });
      cuda.eventRecord(event, device.stream);
    }
  }

  /**
   * Looks again at the next turn, and after a while with pauses, as long as a wait is open. A pause is a small part of the
   * time waited so far, so that it lengthens no wait by much.
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
    if (pausing) setTimeout(look, Math.min(longestPauseMs, waitedMs * pausePart));
    else setImmediate(look);
  }

  /** Settles the marks that are done; those behind them fail when their state cannot be queried. */
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
    for (const mark of open.slice(0, done)) mark.settle();
    for (const mark of lost) this.#fail(mark, fault);
  }

  #isDone(mark: CompletionPoint): boolean {
    const { events } = mark;
    while (events.length > 0) {
      const last = events[events.length - 1] as StreamEvent;
      if (!last.device.cuda.eventDone(last.event)) return false;
      events.pop();
      this.#recycle(last);
    }
    return true;
  }

  #fail(mark: CompletionPoint, error: unknown): void {
    mark.settle(error);
    for (const each of mark.events) this.#recycle(each);
  }

  /** An event that stands for nothing any more is there for the next mark. */
  #recycle({ device, event }: StreamEvent): void {
    const spare = this.#spareEvents.get(device);
    if (spare === undefined) this.#spareEvents.set(device, [event]);
    else spare.push(event);
  }
}

/** The pause between two looks, in milliseconds. One costs a call of NCCL per communicator. */
const defaultEveryMs = 1000;

/**
 * Checks now and then for errors in the background while no wait is open: else a lost network or GPU would be found by the
 * next call, perhaps much later. Keeps no process alive.
 */
class IdleWatch {
  readonly #timer: NodeJS.Timeout;

  constructor(look: () => void, everyMs = defaultEveryMs) {
    this.#timer = setInterval(look, everyMs).unref();
  }

  end(): void {
    clearInterval(this.#timer);
  }
}

/** A mark in one device's stream. */
interface StreamEvent {
  readonly device: Device;
  readonly event: bigint;
}

/** The owner of the work. */
interface WorkOwner {
  /** True when it waits for ranks of other processes. */
  readonly spansProcesses?: boolean;
}

/** Waits for the work of one communicator, in their order. */
interface WaiterGroup {
  readonly owner: WorkOwner | undefined;
  readonly waiting: Completion[];
}

/** Recorded at the end of a turn; done when the streams have come to it. */
class CompletionPoint {
  readonly devices = new Set<Device>();
  /** Those of the streams that have yet to come to it. */
  readonly events: StreamEvent[] = [];
  /** Some of the work waits for ranks of other processes, also where it was given up. */
  spansProcesses = false;
  /** The last wait, as long as more work may follow it on the streams; `undefined` where that is over. */
  #last: Completion | undefined;
  /** Those devices that were added last: calls in a row mostly name the same list. */
  #lastDevices: readonly Device[] | undefined;
  /** All waits; consecutive ones for the work of one communicator share a party, which may have no owner. */
  #groups: WaiterGroup[] = [];
  #group: WaiterGroup | undefined;

  /** Adds a wait for the work on these devices' streams so far. */
  add(devices: readonly Device[], owner: WorkOwner | undefined, waiting: Completion): void {
    this.close();
    this.#last = waiting;
    waiting.acceptsMore = true;
    if (devices !== this.#lastDevices) {
      this.#lastDevices = devices;
      for (const device of devices) this.devices.add(device);
    }
    if (this.#group === undefined || this.#group.owner !== owner) {
      this.#group = { owner, waiting: [] };
      this.#groups.push(this.#group);
      if (owner?.spansProcesses === true) this.spansProcesses = true;
    }
    this.#group.waiting.push(waiting);
  }

  /** Later work on the streams is not covered. */
  close(): void {
    if (this.#last !== undefined) this.#last.acceptsMore = false;
    this.#last = undefined;
  }

  /** Settles all waits: the work is done, or will not be. Comes after `close`. */
  settle(error?: unknown): void {
    const parties = this.#groups;
    this.#groups = [];
    settleAll(parties, error);
  }

  /** Rejects the waits for the work of a communicator that was given up. */
  rejectOwner(owner: WorkOwner, error: unknown): void {
    const lost = this.#groups.filter((party) => party.owner === owner);
    this.#groups = this.#groups.filter((party) => party.owner !== owner);
    this.#group = undefined;
    this.close();
    settleAll(lost, error);
  }
}

function settleAll(parties: readonly WaiterGroup[], error: unknown): void {
  for (const { waiting } of parties) {
    for (const each of waiting) each.settled(error);
  }
}
