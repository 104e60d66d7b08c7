/** Split: one communicator becomes several, by color. */
import type { SplitArgs } from "../calls.ts";
import type { Communicator } from "../communicator.ts";
import { joinedComm } from "../ledger/exchanges.ts";
import type { Prepared } from "../ledger/posting.ts";
import type { Validator } from "./validate.ts";

/** Checks a split: color and key are integers, and a color of `undefined` joins nothing. */
export function prepareSplit(
  check: Validator,
  args: SplitArgs,
): Prepared<Communicator | undefined> {
  // A missing name may be an omission; a rank that joins no communicator passes `undefined`.
  if (!("color" in args)) {
    throw check.fault("color", "it was left out", "a color", "color: undefined joins none");
  }
  const { color, key = 0, stream } = args;
  if (color !== undefined) check.integer("color", color, 0);
  check.integer("key", key, Number.MIN_SAFE_INTEGER);
  const ownStream = check.ownStream(stream);
  return {
    call: { count: 0, split: { color, key, ownStream } },
    signature: [
      ["collective", "split"],
      ["stream", stream ?? "shared"],
    ],
    toResult: joinedComm,
  };
}
