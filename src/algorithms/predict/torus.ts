/**
 * A torus: every rank is connected to two neighbours in each dimension, with one link in each direction.
 *
 * A message goes along the first dimension first, then the second, and so on, in the shorter direction; of two equal
 * ones, upwards. One dimension makes a ring.
 */

import { invalid } from "../../api/option-kinds.ts";
import type { Topology } from "./topology.ts";

/** A torus of `dimensions`, the first of them the one in which rank numbers run. Links are as wide as ports. */
export function torus(dimensions: readonly number[]): Topology {
  if (dimensions.length === 0) throw invalid("torus", "dimensions", "none", "at least one");
  for (const size of dimensions) {
    if (Number.isSafeInteger(size) && size >= 1) continue;
    throw invalid("torus", "dimensions", `${size}`, "whole numbers of at least 1");
  }
  const ranks = dimensions.reduce((product, size) => product * size, 1);
  // A rotation along the last dimension changes no path.
  const slice = ranks / (dimensions.at(-1) ?? 1);
  return {
    name: dimensions.length === 1 ? "ring" : `torus of ${dimensions.join(" x ")}`,
    ranks,
    links: 2 * dimensions.length * ranks,
    link: (from, to, hop) => {
      let node = from;
      let left = hop;
      let stride = 1;
      for (let dimension = 0; dimension < dimensions.length; dimension++) {
        const size = dimensions[dimension] as number;
        const at = Math.floor(node / stride) % size;
        const ahead = ((Math.floor(to / stride) % size) - at + size) % size;
        const up = 2 * ahead <= size;
        const hops = up ? ahead : size - ahead;
        const moved = (steps: number): number => {
          const place = (at + (up ? steps : size - steps)) % size;
          return node + (place - at) * stride;
        };
        if (left < hops) {
          return (moved(left) * dimensions.length + dimension) * 2 + (up ? 0 : 1);
        }
        left -= hops;
        node = moved(hops);
        stride *= size;
      }
      return -1;
    },
    period: slice,
    flips: false,
    standIn: (link) => {
      const width = 2 * dimensions.length;
      return (Math.floor(link / width) % slice) * width + (link % width);
    },
    width: () => 1,
  };
}
