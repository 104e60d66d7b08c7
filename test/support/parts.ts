/**
 * What the ranks of a test do, as named functions: closures cannot cross to other processes, names and arguments can.
 * Arguments and results must be plain data.
 */

/** Named parts: what one rank does on its communicator, with arguments that are the same on all ranks. */
export type Parts<C = never> = Readonly<Record<string, (comm: C, ...args: never) => unknown>>;

/** What a part is given beside the communicator. */
export type ArgumentsOf<F> = F extends (comm: never, ...args: infer A) => unknown ? A : never;

/** What a part comes to. */
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

/** What comes back from there: a result, or what went wrong as text. */
export type Answer = { readonly value: unknown } | { readonly fault: string };

/** The variable that tells a job's ranks where their test listens. */
export const socketVariable = "TWINCCL_TEST_SOCKET";
