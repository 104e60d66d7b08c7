/**
 * The order of calls on further streams of a rank behind memory operations, which run on its main stream.
 *
 * An event behind the last memory operation is what a call on another stream waits for. Calls that follow that operation on the
 * main stream do not delay it, except where the caller may have put work of its own on the main stream.
 */
import type { Device } from "./device.ts";

/** Memory operations of one rank, and its streams that wait for them. */
export class MemoryOrder {
  /** The device with the main stream. */
  readonly #main: Device;
  /** Behind the last memory operation; made for the first further stream. */
  #event: bigint | undefined;
  /** Number of times that it was recorded. */
  #records = 0;
  /** The record that each further stream has waited for last. */
  readonly #seen = new Map<Device, number>();

  constructor(main: Device) {
    this.#main = main;
  }

  /** Adds a stream of the same GPU: its first call waits for all memory operations so far. */
  join(device: Device): void {
    this.#event ??= this.#main.use().eventCreate(false);
    this.#record();
    this.#seen.set(device, this.#records - 1);
  }

  /** Removes a stream. */
  leave(device: Device): void {
    this.#seen.delete(device);
  }

  /** Notes a memory operation that was put on the main stream. */
  noteWrite(): void {
    if (this.#seen.size > 0) this.#record();
  }

  /** Has the next call of a stream that has joined wait for the memory operations so far. */
  follow(device: Device): void {
    if (this.#main.isLent) this.#record();
    if (this.#seen.get(device) === this.#records) return;
    device.useForStream().streamWaitEvent(device.stream, this.#event as bigint);
    this.#seen.set(device, this.#records);
  }

  /** Destroys the event. */
  release(): void {
    if (this.#event !== undefined) this.#main.use().eventDestroy(this.#event);
    this.#event = undefined;
    this.#seen.clear();
  }

  #record(): void {
    this.#main.useForStream().eventRecord(this.#event as bigint, this.#main.stream);
    this.#records++;
  }
}
