/** A process that is a job of its own, on a backend whose ranks all live in one process. */

import type { Attempt } from "../backend.ts";
import { UnsupportedError } from "../errors.ts";

interface Runtime {
  readonly process?: { readonly env?: Readonly<Record<string, string | undefined>> };
}

/** How many processes `twinccl launch` says it started; `undefined` for a process that it did not start. */
function launchedSize(): number | undefined {
  const text = (globalThis as Runtime).process?.env?.["TWINCCL_SIZE"];
  return text === undefined || text === "" ? undefined : Number(text);
}

/**
 * Refuses to be one of several processes: each would be a job of one rank, and none would hear of the others.
 *
 * @throws UnsupportedError that names the number of ranks, and why backends before this one were not taken.
 */
export function assertAlone(
  backend: string,
  size: number | undefined,
  attempts: readonly Attempt[] = [],
): void {
  const launched = launchedSize();
  const ranks = size ?? launched ?? 1;
  if (ranks === 1 && (launched ?? 1) === 1) return;
  const several = ranks === 1 ? launched : ranks;
  throw new UnsupportedError(
    {
      headline: `connect: ${backend} with ${several} ranks: all its ranks live in one process`,
      table: attempts.map((attempt) => [attempt.backend, attempt.reason]),
      hint: "use createWorld, or twinccl run FILE -n RANKS",
    },
    { size: several, field: "size" },
  );
}
