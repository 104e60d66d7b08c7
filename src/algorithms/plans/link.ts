/** How simulated ranks are connected, and what a message costs. */

import { InvalidArgumentError } from "../../api/index.ts";
import { assertOptions, textOf } from "../../api/option-kinds.ts";
import type { LinkModel } from "../engine/index.ts";

/** How the simulated ranks are connected: every pair alike, each rank with one port out and one in. */
export interface LinkOptions {
  /** From one rank to another, in nanoseconds; 1,000 when left out. */
  readonly latencyNs?: number | undefined;
  /** What a port carries in each direction, in 10⁹ bytes a second; 400 when left out. */
  readonly gigabytesPerSecond?: number | undefined;
}

/** A checked link. */
export interface Link {
  readonly latencyPs: number;
  readonly gigabytesPerSecond: number;
}

/** Checks link options and fills in what was left out. */
export function linkOf(options: LinkOptions = {}): Link {
  const names = { latencyNs: true, gigabytesPerSecond: true } as const;
  assertOptions("sim", options, names, { path: "link" });
  const { latencyNs = 1000, gigabytesPerSecond = 400 } = options;
  within("latencyNs", latencyNs);
  within("gigabytesPerSecond", gigabytesPerSecond);
  return { latencyPs: Math.round(latencyNs * 1000), gigabytesPerSecond };
}

/** Bounds that keep times whole picoseconds: a message of a gigabyte takes at most days, and at least its latency. */
export const linkBounds = { latencyNs: [0, 1e12], gigabytesPerSecond: [1e-6, 1e9] } as const;

function within(field: keyof typeof linkBounds, value: number): void {
  const [least, most] = linkBounds[field];
  if (typeof value === "number" && value >= least && value <= most) return;
  throw new InvalidArgumentError(
    { headline: `sim: link.${field}: found ${textOf(value)}, needs a number in ${least}..${most}` },
    { field: `link.${field}` },
  );
}

/** What a message of a dtype costs on a link. A port is held for a whole number of picoseconds, rounded up. */
export function linkModel(link: Link, bytesPerElement: number): LinkModel {
  const psPerElement = (bytesPerElement * 1000) / link.gigabytesPerSecond;
  return { latency: link.latencyPs, occupancy: (elements) => Math.ceil(elements * psPerElement) };
}
