/** A world: all ranks of one job that live in this process, and what can be done with it. */
import type { Attempt, Backend } from "../backend.ts";
import type { Communicator } from "../communicator.ts";
import type { Explanation, Question } from "../explanation.ts";
import type { LiveResources } from "../ledger/deadlock/runtime.ts";

/** A stall: ranks wait and nothing moves, but a timer, I/O or a rank that runs may still change that. */
export interface StallReport {
  /** The table of waiting ranks, ready to print. */
  readonly text: string;
  /** Objects that may still wake a rank, by kind; `undefined` where the runtime has no list. */
  readonly alive: LiveResources | undefined;
}

/** Options of `createWorld`. */
export interface WorldOptions {
  /** The backend, as a value: `sim()`, `nccl()` or `firstAvailable(nccl(), sim())`. */
  readonly backend: Backend;
  /** Number of ranks. */
  readonly size: number;
  /** Shown in errors and traces. */
  readonly name?: string | undefined;
  /**
   * Called when ranks wait and nothing has moved for `stallMs`; left out: a process warning. What it throws aborts the world,
   * with that as the reason.
   */
  readonly onStall?: ((report: StallReport) => void) | undefined;
  /** Real time after which ranks that wait without anything moving are a stall; 10,000 when left out. */
  readonly stallMs?: number | undefined;
  /**
   * Effect of a stall. `report`, the default, calls `onStall` or warns, and the ranks wait on. `fail` calls `onStall` if
   * present. It then fails every open and later call of the run with a `CommTimeoutError` that holds the table of waits, even
   * if the process is still alive. A rank that awaits something else goes on until its next call; the next run begins without
   * any failure.
   *
   * @example
   * const world = await createWorld({ backend: sim(), size: 8, stall: "fail", stallMs: 2000 });
   */
  readonly stall?: "report" | "fail" | undefined;
  /**
   * Records the call site of every call. A failed call then has the stack of its caller, and the tables of a deadlock and of a
   * mismatch name each rank's line. Costs some 2 us a call and rank; off when left out.
   */
  readonly callSites?: boolean | undefined;
}

/** Options of `rebuild`. */
export interface RebuildOptions {
  /** Ranks that are left out: lost ones, or none. */
  readonly without?: readonly number[] | undefined;
}

/** All ranks of one job in this process. */
export interface World extends AsyncDisposable {
  readonly name: string;
  readonly size: number;
  /** Name of the backend that was opened. */
  readonly backend: string;
  /** Counted up by every rebuild; buffers and communicators of an older generation are refused. */
  readonly generation: number;
  /** The backends that were tried, in order, with the result of each probe. */
  readonly selection: readonly Attempt[];

  /**
   * Runs the same program on every rank and resolves to their results, by rank; there is at least that of rank 0.
   *
   * If a rank throws, the others' open calls fail with `RemoteRankError`. The run rejects with a `WorldError` that lists every
   * rank's error in `failures`, earliest first. The world stays usable for the next run.
   *
   * @throws WorldError when any rank failed, or left an unobserved failure.
   * @example
   * const ranks = await world.run(async (comm) => comm.rank);
   */
  run<T>(program: (comm: Communicator) => T | PromiseLike<T>): Promise<[T, ...T[]]>;

  /**
   * The plan of a call among all ranks. Predicted; runs nothing. Chunks are those of rank 0's output, of a reduce or gather those
   * of the root's; `comm.explain` describes the output of each rank.
   */
  explain(question: Question): Explanation;

  /**
   * The backend's own estimate of a call's time, in nanoseconds; nothing runs. On GPUs it is NCCL's, on the simulation the
   * predicted time of `explain`.
   *
   * @throws UnsupportedError for a call that the backend cannot estimate.
   * @throws CommClosedError once the world is closed.
   */
  estimate(question: Question): Promise<number>;

  /** The number of each rank in the first generation, by its rank here. */
  readonly initialRanks: readonly number[];

  /**
   * Closes this world and opens the next generation, without some ranks. The others keep their order and get new
   * numbers; buffers and communicators of this generation are refused from then on.
   *
   * If the next generation cannot be opened, it rejects with the backend's error. It may be called again, with the same or
   * fewer ranks, until this world is closed.
   *
   * @throws InvalidArgumentError for ranks that do not exist, or when none would be left.
   * @throws CommClosedError when this world is running, or was closed or rebuilt before.
   */
  rebuild(options?: RebuildOptions): Promise<World>;

  /**
   * Ends all communicators at once, including splits. Open and later calls fail with the reason. The `onAbort` hooks of every
   * rank run once for every communicator that was not aborted before.
   */
  abort(reason?: unknown): void;

  /**
   * Gives all memory back: buffers of the world, and views of them, are refused from here on. Calls that are still open fail
   * with `CommClosedError`. Closed again, it waits for the same end.
   */
  close(): Promise<void>;
}
