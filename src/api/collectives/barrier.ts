/** Barrier: no rank leaves before the last one has entered; no data moves. */
import type { Prepared } from "../ledger/posting.ts";
import type { Specification } from "../specification.ts";

/** No blocks at all; what counts is that every exit depends on every entry. */
export const barrierSpec: Specification = {
  collective: "barrier",
  reduces: false,
  rooted: false,
  synchronises: true,
  inBlocks: () => 0,
  outBlocks: () => 0,
  expected: () => [],
  inPlace: () => undefined,
};

/** A barrier has no arguments beyond the options that every call takes. */
export function prepareBarrier(): Prepared<void> {
  return {
    call: { count: 0 },
    signature: [["collective", "barrier"]],
    result: undefined,
  };
}
