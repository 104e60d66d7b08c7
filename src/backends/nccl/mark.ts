/** A place in the streams of some devices, and who waits for the work before it. */
import type { Waiting } from "../../api/index.ts";
import type { Device } from "./device.ts";

/** What stands for a mark in one device's stream. */
export interface MarkEvent {
  readonly device: Device;
  readonly event: bigint;
}

/** Recorded at the end of a turn; done when the streams have come to it. */
export class Mark {
  readonly devices = new Set<Device>();
  /** Those of the streams that have yet to come to it. */
  readonly events: MarkEvent[] = [];
  /** Those devices that were added last: calls in a row mostly name the same list. */
  #last: readonly Device[] | undefined;
  /** Whose work each one waits for: that of a communicator, or of nobody in particular. */
  #owners: (object | undefined)[] = [];
  #waiting: Waiting[] = [];

  /** Somebody waits for what was put on these devices' streams. */
  add(devices: readonly Device[], owner: object | undefined, waiting: Waiting): void {
    if (devices !== this.#last) {
      this.#last = devices;
      for (const device of devices) this.devices.add(device);
    }
    this.#owners.push(owner);
    this.#waiting.push(waiting);
  }

  /** Tells everyone: the work is done, or will not be. */
  settle(error?: unknown): void {
    const all = this.#waiting;
    this.#waiting = [];
    this.#owners = [];
    for (const waiting of all) waiting.settled(error);
  }

  /** Tells those who wait for the work of a communicator that it was given up. */
  giveUp(owner: object, error: unknown): void {
    const [owners, all] = [this.#owners, this.#waiting];
    const isLost = (_: unknown, at: number): boolean => owners[at] === owner;
    const isKept = (_: unknown, at: number): boolean => owners[at] !== owner;
    const lost = all.filter(isLost);
    this.#waiting = all.filter(isKept);
    this.#owners = owners.filter(isKept);
    for (const waiting of lost) waiting.settled(error);
  }
}
