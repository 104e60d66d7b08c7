/** The connection of simulated ranks, and the cost of a message on it. */
import { assertOptions, invalid, textOf } from "../../api/option-kinds.ts";
import type { LinkModel } from "../engine/index.ts";

/** The connection of simulated ranks: the same for every pair, each rank with one port out and one in. */
export interface LinkOptions {
  /** Latency from one rank to another, in nanoseconds; 1,000 when left out. */
  readonly latencyNs?: number | undefined;
  /** Bandwidth of a port in each direction, in 10⁹ bytes a second; 400 when left out. */
  readonly gigabytesPerSecond?: number | undefined;
}

/** A checked link. */
export interface Link {
  readonly latencyPs: number;
  readonly gigabytesPerSecond: number;
}

/** Checks link options and fills in the defaults. */
export function linkOf(options: LinkOptions = {}): Link {
  const names = { latencyNs: true, gigabytesPerSecond: true } as const;
  assertOptions("sim", options, names, { path: "link" });
  const { latencyNs = 1000, gigabytesPerSecond = 400 } = options;
  within("latencyNs", latencyNs);
  within("gigabytesPerSecond", gigabytesPerSecond);
  return { latencyPs: Math.round(latencyNs * 1000), gigabytesPerSecond };
}

/** Bounds that keep times exact in picoseconds: a message of a gigabyte takes at most days, and at least its latency. */
export const linkBounds = { latencyNs: [0, 1e12], gigabytesPerSecond: [1e-6, 1e9] } as const;

function within(field: keyof typeof linkBounds, value: number): void {
  const [least, most] = linkBounds[field];
  if (typeof value === "number" && value >= least && value <= most) return;
  throw invalid("sim", `link.${field}`, textOf(value), `a number in ${least}..${most}`);
}

/** The cost of a message of a dtype on a link. A port is held for a whole number of picoseconds, rounded up. */
export function linkModel(link: Link, bytesPerElement: number): LinkModel {
  const psPerElement = (bytesPerElement * 1000) / link.gigabytesPerSecond;
  return { latency: link.latencyPs, occupancy: (elements) => Math.ceil(elements * psPerElement) };
}
