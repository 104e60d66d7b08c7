/**
 * The order of calls on communicators' own streams behind the memory operations of their buffers, which run on the main stream of the rank.
 *
 * A call waits for the last operation on each of its buffers, and not for calls on the main stream behind that: their peers may
 * wait for this call.
 */
import { runAll } from "../../../api/run-all.ts";
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
  /** Operations that were not done when that was last checked, oldest first: those with an event. */
  readonly #open: MemoryOperation[] = [];
  #operations = 0;
  /** The number of the last operation that each own stream has waited for. */
  readonly #seen = new Map<Device, number>();
  /** The last of the operations before there were own streams. */
  #base: MemoryOperation | undefined;
  #last: MemoryOperation | undefined;
  /** The last one on memory of the caller, which may have the same bytes as other memory. */
  #lastAdopted: MemoryOperation | undefined;

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
  note(isAdopted: boolean): MemoryOperation | undefined {
    if (this.#seen.size === 0) return undefined;
    const operation = this.#record();
    if (isAdopted) this.#lastAdopted = operation;
    return operation;
  }

  /** The last operation on other memory that may have the same bytes. */
  lastBeside(isAdopted: boolean): MemoryOperation | undefined {
    return isAdopted ? this.#last : this.#lastAdopted;
  }

  /**
   * Has the next call of a stream that has joined wait for operations. Where the caller may have put work on the main stream, it
   * waits for all of that. True where a wait was put on the stream.
   */
  follow(device: Device, operations: readonly (MemoryOperation | undefined)[]): boolean {
    let awaited = this.#base as MemoryOperation;
    for (const each of operations)
      if (each !== undefined && each.number > awaited.number) awaited = each;
    if (this.#main.isLent) awaited = this.#record();
    if (awaited.number <= (this.#seen.get(device) ?? 0)) return false;
    if (!awaited.isDone) device.useForStream().streamWaitEvent(device.stream, awaited.event);
    this.#seen.set(device, awaited.number);
    return !awaited.isDone;
  }

  /** Destroys the events. */
  release(): void {
    const open = this.#open.splice(0);
    this.#seen.clear();
    runAll(
      open.map(
        ({ event }) =>
          () =>
            this.#main.use().eventDestroy(event),
      ),
    );
  }

  #record(): MemoryOperation {
    const event = this.#doneEvent() ?? this.#main.use().eventCreate();
    const operation = { number: ++this.#operations, event, isDone: false };
    this.#open.push(operation);
    this.#main.useForStream().eventRecord(event, this.#main.stream);
    this.#last = operation;
    return operation;
  }

  /** The event of an operation that is done; those of all others that are done are destroyed. */
  #doneEvent(): bigint | undefined {
    const open = this.#open;
    const cuda = this.#main.useForStream();
    let count = 0;
    for (const operation of open) {
      if (!cuda.eventDone(operation.event)) break;
      operation.isDone = true;
      count++;
    }
    const [first, ...others] = open.splice(0, count);
    for (const { event } of others) cuda.eventDestroy(event);
    return first?.event;
  }
}
