/** Messages between a test and the ranks in other processes that do its named parts. */

/** A request to a rank in another process. */
export interface Request {
  readonly part: string;
  readonly args: readonly unknown[];
}

/** The answer of a process: a result, or the failure as text. */
export type Answer = { readonly value: unknown } | { readonly fault: string };

/** The environment variable with the address of the test's socket. */
export const socketVariable = "TWINCCL_TEST_SOCKET";
