/**
 * The processes of a job: everything that they do beside the collectives, in plain Node.js.
 *
 * `Rendezvous.join` waits for all ranks and returns a `Membership`. It has a small key-value store (`set`, `get`, `exchange`,
 * `awaitBarriers`) and reports lost ranks (`onLost`). Survivors join the next generation with `rejoin`. A backend exchanges
 * there what its start needs, such as ids and places of devices. No data of collectives passes here.
 *
 * `launchedRank` gives the rank of this process, from any known launcher, and `joinLaunched` joins its rendezvous.
 *
 * While the process that hosts the store blocks its event loop, no request is answered. Values that all ranks need before they
 * block are therefore sent by `exchange`, which answers all ranks at once. Ranks that block until others have arrived call
 * `awaitBarriers` first.
 *
 * The store is a `StoreServer`: hosted by the launcher, which outlives every rank, or by rank 0.
 */

/** The meeting point of a job's processes. */
export interface Rendezvous {
  /** Where it is, for messages: `127.0.0.1:4711`, or a file. */
  readonly address: string;

  /**
   * Joins the job as one rank. Resolves when all `size` ranks have joined, on all of them.
   *
   * The join waits for late processes. A second process with a taken rank is refused, and the first one stays. Once all ranks
   * have left, the job may be joined again; a rank that has left waits for the others to leave. A connection that ends before
   * the join is retried until the deadline.
   *
   * @throws RendezvousError at the deadline, with the joined and the missing ranks, or the ranks that have not left. At once
   * for a taken rank, another job, another size, an ended generation, a different secret, or a rank of `twinccl launch` whose
   * process has ended.
   * @throws CommAbortedError when `signal` fires first. InvalidArgumentError for an invalid rank, size or job id.
   */
  join(options: JoinOptions): Promise<Membership>;
}

/** Arguments of a join. */
export interface JoinOptions {
  /** Name of the job, the same on all ranks: 1 to 128 bytes. */
  readonly jobId: string;
  readonly rank: number;
  /** Number of ranks of the job. */
  readonly size: number;
  /**
   * The generation to join, from 0, the default. A later generation is normally reached by `rejoin`. Restarted processes all
   * give the same next number, and replace the previous generation.
   */
  readonly generation?: number | undefined;
  /** Longest wait for the other ranks, and for the store itself (60000). */
  readonly deadlineMs?: number | undefined;
  readonly signal?: AbortSignal | undefined;
}

/** Bounds of one wait. */
export interface WaitOptions {
  /** Longest wait (60000). */
  readonly timeoutMs?: number | undefined;
  /** Cancels only this wait; the membership stays usable. */
  readonly signal?: AbortSignal | undefined;
  /** The process may end while it waits (false). */
  readonly idle?: boolean | undefined;
}

/** Bounds of an exchange. */
export interface ExchangeOptions extends WaitOptions {
  /** The ranks that exchange values, the same on each of them, this rank among them; all ranks where left out. */
  readonly ranks?: readonly number[] | undefined;
}

/** A barrier among some ranks of a generation. */
export interface Barrier {
  /** The name of the barrier on all of its ranks: 1 to 256 bytes. */
  readonly key: string;
  /** The ranks of the barrier, this rank among them. */
  readonly ranks: readonly number[];
}

/** Arguments of the survivors' next generation. */
export interface RejoinOptions {
  /**
   * The ranks to continue without, in numbers of this generation; every survivor gives the same. By default the next generation
   * has every connected rank that requests it. It forms as soon as all have, or when no new request arrives for `settleMs`.
   */
  readonly without?: readonly number[] | undefined;
  /** Longest wait for one more survivor when `without` is left out (2000). */
  readonly settleMs?: number | undefined;
  /** Longest wait for the others in all (60000). */
  readonly deadlineMs?: number | undefined;
  readonly signal?: AbortSignal | undefined;
}

/** A rank that was lost without leaving. */
export interface LostPeer {
  /** Its rank in this generation; `undefined` when the launcher's store is lost. */
  readonly rank: number | undefined;
  /** When the store noticed, in milliseconds since 1970 on the clock of its host. */
  readonly atMs: number;
  /** The sign by which the loss was noticed. */
  readonly reason: string;
}

/**
 * One rank's place in one generation of a job: a small key-value store among its ranks, and news of ranks that are lost.
 *
 * A generation is broken once a rank is lost. Waits for lost ranks fail at once with their numbers, and so does every later
 * wait. Existing keys stay readable. `rejoin` leads on. An idle membership does not
 * keep the process alive.
 */
export interface Membership {
  readonly jobId: string;
  readonly rank: number;
  readonly size: number;
  readonly generation: number;
  /** By rank, which rank it was in the generation that was joined and not rejoined. */
  readonly initialRanks: readonly number[];
  /** The ranks lost so far, in the order in which that was noticed. */
  readonly lost: readonly LostPeer[];

  /** Calls `listener` for every lost rank, at once for those lost already. */
  onLost(listener: (peer: LostPeer) => void): void;

  /**
   * Sets a key for all ranks of this generation, once. Keys have 1 to 256 bytes, values at most 1 MiB.
   *
   * @throws InvalidArgumentError when the key is set already; the first value stays.
   */
  set(key: string, value: Uint8Array): Promise<void>;

  /**
   * The value of a key, as soon as a rank has set it; the wait fails once any rank is lost, or all others have left. The bytes are the caller's own. A rank may have 16,384 such waits and
   * questions at once, in jobs of more than 4,096 ranks 4 for each rank.
   *
   * @throws CommTimeoutError at the deadline. RemoteRankError when a rank is gone first. CommAbortedError by `signal`.
   */
  get(key: string, options?: WaitOptions): Promise<Uint8Array>;

  /**
   * Gives a value and gets those of all ranks, by rank, its own included; with `ranks` those of some, in that order. May be
   * repeated under the same key: the k-th exchange of one rank pairs with the k-th of the others. The values together have at
   * most 16 MiB.
   *
   * @throws CommTimeoutError at the deadline, which names the ranks that gave nothing. RemoteRankError when a rank that
   *   gave nothing is lost or has left. CommAbortedError by `signal`; in both cases this rank's value is withdrawn.
   */
  exchange(key: string, value: Uint8Array, options?: ExchangeOptions): Promise<Uint8Array[]>;

  /**
   * Waits until for each of these barriers all its ranks wait. All ranks of connected barriers, directly or through other
   * ranks, are answered at once. Each of them may then block its process until the others have continued. A key may be used
   * again once its barrier was held.
   *
   * False when cancelled by `signal`: the others wait for this rank again. True when they were released before
   * the store noticed.
   *
   * @throws CommTimeoutError at the deadline, which names the ranks that have not come. RemoteRankError when one that has
   *   not come is lost or has left. InvalidArgumentError for ranks that do not exist, without this one, for a key
   *   twice, for more than 16,384 barriers, and for more than 64 waits of this rank at one key.
   */
  awaitBarriers(barriers: readonly Barrier[], options?: WaitOptions): Promise<boolean>;

  /**
   * Sends news to ranks of this generation, in order; those that are gone get none. Nothing waits for it.
   */
  announce(ranks: readonly number[], news: string): void;

  /** Calls `listener` for all news of other ranks, those before the first listener included. */
  onNews(listener: (news: string, rank: number) => void): void;

  /**
   * The answer of a rank to a question, as soon as its process gives one; of a rank that has left, its last status. Ranks with the
   * same question at the same moment share an answer. A question has 1 to 256 bytes.
   *
   * @throws CommTimeoutError at the deadline: the process is blocked, stopped, or has no answer yet. RemoteRankError when it is
   *   lost, or left no status. CommAbortedError by `signal`.
   */
  ask(rank: number, question: string, options?: WaitOptions): Promise<string>;

  /** Gives the function that answers the questions of other ranks: at once, or when its promise resolves. */
  onQuestion(answer: (question: string) => string | Promise<string>): void;

  /** Calls `listener` once the next generation has begun without this rank, with the ranks of this generation in it. */
  onNextGeneration(listener: (ranks: readonly number[]) => void): void;

  /**
   * Forms the next generation with the other survivors; ranks keep their order and get new numbers. This membership ends on
   * success, and if the others continue without this rank. Later requests fail with a `CommClosedError` with the `ranks` of
   * this generation that continued.
   *
   * @throws RendezvousError at the deadline, when survivors give different `without`, or when the store is gone.
   *   RemoteRankError when a rank that should survive is lost meanwhile: call again with it in `without`.
   */
  rejoin(options?: RejoinOptions): Promise<Membership>;

  /**
   * Leaves the job without a loss for the others; the status answers their questions. Bounded and idempotent. The rank that hosts
   * the store first waits up to five seconds for the others to leave.
   */
  leave(status?: string): Promise<void>;
}

/** The default wait, in milliseconds. */
export const defaultWaitMs = 60_000;
