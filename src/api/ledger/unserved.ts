/** How a complete set is refused after all: each rank gets its own error, nothing was written. */
import type { CommError } from "../errors.ts";

/** Thrown while a set is being prepared; never seen by callers, who get the error made for their rank. */
export class UnservedError extends Error {
  readonly forRank: (rank: number) => CommError;

  constructor(forRank: (rank: number) => CommError) {
    super("the call cannot be served");
    this.forRank = forRank;
  }
}

/** The error of each rank: an error made for ranks, or one for all. */
export function errorByRank(error: unknown): (rank: number) => unknown {
  return error instanceof UnservedError ? error.forRank : () => error;
}
