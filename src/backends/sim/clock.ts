/** Virtual time: one clock a rank, in integer picoseconds. */
import type { VirtualClock } from "../../api/index.ts";
import type { WorldTrace } from "./world-trace.ts";

/** The clocks of all ranks of a world. */
export class SimClock implements VirtualClock {
  readonly #now: Float64Array;
  readonly #trace: WorldTrace | undefined;

  constructor(size: number, trace: WorldTrace | undefined) {
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
