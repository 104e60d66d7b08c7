/** Virtual time: one clock a rank, in integer picoseconds, and what a message costs. */

import type { LinkModel } from "../../algorithms/index.ts";
import { InvalidArgumentError, type VirtualClock } from "../../api/index.ts";
import type { Trace } from "./trace.ts";

/** How the simulated ranks are connected: every pair alike, each rank with one port out and one in. */
export interface LinkOptions {
  /** From one rank to another, in nanoseconds; 1,000 when left out. */
  readonly latencyNs?: number;
  /** What a port carries in each direction, in 10⁹ bytes a second; 400 when left out. */
  readonly gigabytesPerSecond?: number;
}

/** A checked link. */
export interface Link {
  readonly latencyPs: number;
  readonly gigabytesPerSecond: number;
}

/** Checks link options and fills in what was left out. */
export function linkOf({ latencyNs = 1000, gigabytesPerSecond = 400 }: LinkOptions = {}): Link {
  positive("latencyNs", latencyNs, 0);
  positive("gigabytesPerSecond", gigabytesPerSecond, Number.MIN_VALUE);
  return { latencyPs: Math.round(latencyNs * 1000), gigabytesPerSecond };
}

function positive(field: string, value: number, least: number): void {
  if (typeof value === "number" && value >= least && value < Infinity) return;
  throw new InvalidArgumentError(
    {
      headline: `sim: link.${field}: found ${String(value)}, needs a finite number ${least === 0 ? "of at least" : "above"} 0`,
    },
    { field: `link.${field}` },
  );
}

/** What a message of a dtype costs on a link. A port is held for a whole number of picoseconds, rounded up. */
export function linkModel(link: Link, bytesPerElement: number): LinkModel {
  const psPerElement = (bytesPerElement * 1000) / link.gigabytesPerSecond;
  return { latency: link.latencyPs, occupancy: (elements) => Math.ceil(elements * psPerElement) };
}

/** The clocks of all ranks of a world. */
export class SimClock implements VirtualClock {
  readonly #now: Float64Array;
  readonly #trace: Trace | undefined;

  constructor(size: number, trace: Trace | undefined) {
    this.#now = new Float64Array(size);
    this.#trace = trace;
  }

  now(rank: number): number {
    return this.#now[rank] as number;
  }

  reach(rank: number, timePs: number): void {
    if (timePs > (this.#now[rank] as number)) this.#now[rank] = timePs;
  }

  work(rank: number, durationNs: number, label: string | undefined): void {
    const start = this.now(rank);
    const end = start + Math.round(durationNs * 1000);
    this.#now[rank] = end;
    this.#trace?.work(rank, start, end, label);
  }
}
