/**
 * The ranks' parts of a test, as named functions: closures cannot cross to other processes, names and arguments can.
 * Arguments and results must be plain data.
 */

/** Named parts: what one rank does on its communicator, with arguments that are the same on all ranks. */
export type Parts<C = never> = Readonly<Record<string, (comm: C, ...args: never) => unknown>>;

/** The arguments of a part beside the communicator. */
export type ArgumentsOf<F> = F extends (comm: never, ...args: infer A) => unknown ? A : never;

/** The result of a part. */
export type ResultOf<F> = F extends (...args: never) => infer R ? Awaited<R> : never;

/** The ranks of one communicator, wherever they live. */
export interface Ranks<P extends Parts> {
  readonly size: number;
  /** Has every rank do a part; gives the results by rank. Rejects when one fails, or takes too long. */
  each<N extends keyof P & string>(part: N, ...args: ArgumentsOf<P[N]>): Promise<ResultOf<P[N]>[]>;
}

/** A request to a rank in another process. */
export interface Request {
  readonly part: string;
  readonly args: readonly unknown[];
}

/** The answer of a process: a result, or the failure as text. */
export type Answer = { readonly value: unknown } | { readonly fault: string };

/** The environment variable with the address of the test's socket. */
export const socketVariable = "TWINCCL_TEST_SOCKET";
