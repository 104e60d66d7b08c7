/**
 * The calls of a recording, which all ranks have made together: they are compared when they are recorded, as they would be
 * if they were made then.
 */
import type { CallSet, RankCall } from "../../backend.ts";
import { type Mismatch, transposeFault } from "./compare.ts";
import type { Windows } from "./windows.ts";

/** The recorded calls of a complete capture, each as a call of all ranks, in order; `undefined` when there are none, or messages among them. */
export function recordedSets({ comm, number, calls }: CallSet): CallSet[] | undefined {
  if (calls.some(({ recorded }) => recorded === undefined)) return undefined;
  const recorded = calls[0]?.recorded?.calls ?? [];
  if (recorded.length === 0) return undefined;
  return recorded.map(({ collective }, index) => {
    const made = calls.map(({ recorded }) => recorded?.calls[index] as RankCall);
    return { comm, number, collective, calls: made, kept: { work: undefined } };
  });
}

/** The mismatch of the recorded calls of all ranks, beside their signatures; makes their windows. */
export function recordedFault(
  captures: readonly RankCall[],
  windows: Windows,
): Mismatch | undefined {
  const length = captures[0]?.recorded?.calls.length ?? 0;
  for (let index = 0; index < length; index++) {
    const calls = captures.map(({ recorded }) => recorded?.calls[index] as RankCall);
    const fault = transposeFault(calls) ?? windows.join(calls);
    if (fault !== undefined) return { ...fault, field: `calls[${index}].${fault.field}` };
  }
  return undefined;
}
