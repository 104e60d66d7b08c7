/**
 * The order of calls on further streams of a rank behind the memory operations of their buffers, which run on its main stream.
 *
 * A call waits for the last operation on each of its buffers, and not for calls on the main stream behind that: their peers may
 * wait for this call.
 */
import { runAll } from "../common/async.ts";
import type { Device } from "./device.ts";

/** An operation on memory, on the main stream. */
export interface MemoryOperation {
  readonly number: number;
  /** Behind it; used again once it is done. */
  readonly event: bigint;
  isDone: boolean;
}

/** Memory operations of one rank, and its streams that wait for them. */
export class MemoryOrder {
  /** The device with the main stream. */
  readonly #main: Device;
  readonly #events: bigint[] = [];
  /** Operations that were not done when that was last checked, oldest first. */
  readonly #open: MemoryOperation[] = [];
  #operations = 0;
  /** The number of the last operation that each further stream has waited for. */
  readonly #seen = new Map<Device, number>();
  /** The last of the operations before there were further streams. */
  #base: MemoryOperation | undefined;
  #last: MemoryOperation | undefined;

  constructor(main: Device) {
    this.#main = main;
  }

  /** Adds a stream of the same GPU. */
  join(device: Device): void {
    if (this.#seen.size === 0) this.#base = this.#record();
    this.#seen.set(device, 0);
  }

  /** Removes a stream. */
  leave(device: Device): void {
    this.#seen.delete(device);
  }

  /** Notes an operation that was put on the main stream; `undefined` where no other stream waits for it. */
  note(): MemoryOperation | undefined {
    return this.#seen.size === 0 ? undefined : this.#record();
  }

  /** The last operation. */
  get last(): MemoryOperation | undefined {
    return this.#last;
  }

  /**
   * Has the next call of a stream that has joined wait for operations. Where the caller may have put work on the main stream, it
   * waits for all of that.
   */
  follow(device: Device, operations: readonly (MemoryOperation | undefined)[]): void {
    let awaited = this.#base as MemoryOperation;
    for (const each of operations)
      if (each !== undefined && each.number > awaited.number) awaited = each;
    if (this.#main.isLent) awaited = this.#record();
    if (awaited.number <= (this.#seen.get(device) ?? 0)) return;
    if (!awaited.isDone) device.useForStream().streamWaitEvent(device.stream, awaited.event);
    this.#seen.set(device, awaited.number);
  }

  /** Destroys the events. */
  release(): void {
    const events = this.#events.splice(0);
    this.#seen.clear();
    runAll(events.map((event) => () => this.#main.use().eventDestroy(event)));
  }

  #record(): MemoryOperation {
    const event = this.#doneEvent() ?? this.#createEvent();
    this.#main.useForStream().eventRecord(event, this.#main.stream);
    const operation = { number: ++this.#operations, event, isDone: false };
    this.#open.push(operation);
    this.#last = operation;
    return operation;
  }

  /** The event of the oldest operation if that is done. */
  #doneEvent(): bigint | undefined {
    const [oldest] = this.#open;
    if (oldest === undefined || !this.#main.useForStream().eventDone(oldest.event))
      return undefined;
    oldest.isDone = true;
    this.#open.shift();
    return oldest.event;
  }

  #createEvent(): bigint {
    const event = this.#main.use().eventCreate(false);
    this.#events.push(event);
    return event;
  }
}
