/** A place in the streams of some devices, and the waits for the work before it. */
import type { Completion } from "../../../api/index.ts";
import type { Device } from "./device.ts";

/** A mark in one device's stream. */
export interface MarkEvent {
  readonly device: Device;
  readonly event: bigint;
}

/** The owner of the work. */
export interface Owner {
  /** True when it waits for ranks of other processes. */
  readonly isApart?: boolean;
}

/** Waits for the work of one communicator, in their order. */
interface Party {
  readonly owner: Owner | undefined;
  readonly waiting: Completion[];
}

/** Recorded at the end of a turn; done when the streams have come to it. */
export class Mark {
  readonly devices = new Set<Device>();
  /** Those of the streams that have yet to come to it. */
  readonly events: MarkEvent[] = [];
  /** Some of the work waits for ranks of other processes, also where it was given up. */
  isApart = false;
  /** The last wait, as long as more work may follow it on the streams; `undefined` where that is over. */
  #last: Completion | undefined;
  /** Those devices that were added last: calls in a row mostly name the same list. */
  #listed: readonly Device[] | undefined;
  /** All waits; consecutive ones for the work of one communicator share a party, which may have no owner. */
  #parties: Party[] = [];
  #party: Party | undefined;

  /** Adds a wait for the work on these devices' streams so far. */
  add(devices: readonly Device[], owner: Owner | undefined, waiting: Completion): void {
    this.close();
    this.#last = waiting;
    waiting.acceptsMore = true;
    if (devices !== this.#listed) {
      this.#listed = devices;
      for (const device of devices) this.devices.add(device);
    }
    if (this.#party === undefined || this.#party.owner !== owner) {
      this.#party = { owner, waiting: [] };
      this.#parties.push(this.#party);
      if (owner?.isApart === true) this.isApart = true;
    }
    this.#party.waiting.push(waiting);
  }

  /** Later work on the streams is not covered. */
  close(): void {
    if (this.#last !== undefined) this.#last.acceptsMore = false;
    this.#last = undefined;
  }

  /** Settles all waits: the work is done, or will not be. Comes after `close`. */
  settle(error?: unknown): void {
    const parties = this.#parties;
    this.#parties = [];
    tell(parties, error);
  }

  /** Rejects the waits for the work of a communicator that was given up. */
  giveUp(owner: Owner, error: unknown): void {
    const lost = this.#parties.filter((party) => party.owner === owner);
    this.#parties = this.#parties.filter((party) => party.owner !== owner);
    this.#party = undefined;
    this.close();
    tell(lost, error);
  }
}

function tell(parties: readonly Party[], error: unknown): void {
  for (const { waiting } of parties) {
    for (const each of waiting) each.settled(error);
  }
}
