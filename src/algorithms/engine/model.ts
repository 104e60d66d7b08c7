/** What messages cost, and what the engines answer. Times are whole numbers of whatever unit the model uses. */

/** What a message costs. */
export interface LinkModel {
  /** From leaving the sender to reaching the receiver. */
  readonly latency: number;
  /** How long a message of so many elements occupies a port. */
  occupancy(elements: number): number;
}

/**
 * The links that messages share on their way between the ports: a pure description.
 *
 * Whoever reaches a link first takes it first. A message goes on to its next link as soon as its head has passed, and
 * what waits does so in the switch: the sender's port is not held up.
 */
export interface Fabric {
  /** How many links there are. */
  readonly links: number;
  /** Number of the link that a message takes at its hop 0, 1, 2 …; -1 when it has none left to take. */
  link(from: number, to: number, hop: number): number;
  /** How long the head of a message needs to the end of a link. */
  latency(link: number): number;
  /** How long a message of so many elements occupies a link. */
  occupancy(link: number, elements: number): number;
}

/** The times of one run of a program. */
export interface Timing {
  /** When each rank has taken its last step and its last message has left. */
  readonly finished: Float64Array;
  /** Elements that each rank sent. */
  readonly sentElements: Float64Array;
}

/** Told every so often how many messages have been received. */
export type OnProgress = (received: number) => void;

/** Messages between two reports. */
export const reportEvery = 2 ** 18;
