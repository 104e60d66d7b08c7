/** Input and output of the engines: costs of messages, and times. Times are whole numbers of the model's unit. */

import { assertAmount, assertArgument } from "../arguments.ts";

/** The cost of a message. */
export interface LinkModel {
  /** From leaving the sender to reaching the receiver. */
  readonly latency: number;
  /** Time for which a message of that many elements occupies a port. */
  occupancy(elements: number): number;
}

/** Needs the cost of messages. */
export function assertModel(subject: string, found: unknown): void {
  const { latency, occupancy } = Object(found) as Partial<LinkModel>;
  const is = typeof latency === "number" && typeof occupancy === "function";
  assertArgument(is, subject, "model", found, "the cost of messages, as linkModel gives it");
  assertAmount(subject, "model.latency", latency);
}

/**
 * The links between ports that messages share: a pure description.
 *
 * Messages take a link in order of arrival. A message moves to its next link as soon as its head has passed. Messages
 * wait in the switch, so the sender's port is not blocked.
 */
export interface Fabric {
  /** Number of links. */
  readonly links: number;
  /** Number of the link that a message takes at its hop 0, 1, 2 …; -1 after its last link. */
  link(from: number, to: number, hop: number): number;
  /** Time that the head of a message needs to the end of a link. */
  latency(link: number): number;
  /** Time for which a message of that many elements occupies a link. */
  occupancy(link: number, elements: number): number;
}

/** The times of one run of a program. */
export interface Timing {
  /** Time at which each rank has finished its last step and its last message has left. */
  readonly finished: Float64Array;
  /** Elements that each rank sent. */
  readonly sentElements: Float64Array;
}

/** Called every `reportEvery` messages with the number of messages received. */
export type OnProgress = (received: number) => void;

/** Messages between two reports. */
export const reportEvery = 2 ** 18;
