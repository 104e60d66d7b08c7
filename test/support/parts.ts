/** Named parts that ranks in other processes do for a test, and the messages between them. */

/** Named parts: a rank's work on its communicator, with arguments that are the same on all ranks. */
export type Parts<C = never, N extends PropertyKey = string> = Readonly<
  Record<N, (comm: C, ...args: never) => unknown>
>;

/** A request to a rank in another process. */
export interface Request {
  readonly part: string;
  readonly args: readonly unknown[];
}

/** The answer of a process: a result, or the failure as text. */
export type Answer = { readonly value: unknown } | { readonly fault: string };

/** The environment variable with the address of the test's socket. */
export const socketVariable = "TWINCCL_TEST_SOCKET";
