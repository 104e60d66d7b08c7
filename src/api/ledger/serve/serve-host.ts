/** The ledger's and the world's side of a dispatch. */
import type { CallSet, CommInfo, Completion, Session } from "../../backend.ts";
import type { Agreement } from "../agree/agreement.ts";
import type { Windows } from "../agree/windows.ts";
import type { Posting } from "../calls/posting.ts";
import type { QueuedCall } from "./call-queue.ts";
import type { ComingTogether } from "./coming-together.ts";

/** The same for all calls of one communicator. */
export interface ServeHost {
  readonly session: Session;
  readonly comm: CommInfo;
  readonly windows: Windows;
  readonly coming: ComingTogether;
  /** Prepares a complete set: allocates what could not be known before. Throws when it cannot be served. */
  prepare(set: CallSet): void;
  /** Serves a call that changes communicators instead of data; false when it is none. */
  organise(set: CallSet): void | Promise<void> | false;
  fail(posting: Posting, error: unknown): void;
  /**
   * Runs `settle` once every rank that was about to wait does so: only then does the order of waking count. `work` is 1 for
   * each rank of a small call.
   */
  later(settle: () => void, work: number): void;
  /** Has calls handed to a session that queues them, and settles them when it is done. */
  queue(postings: readonly Posting[], hand: (waiting: Completion) => void): void;
  /** The same for a call that the session has worked out before. */
  queueAgain(call: QueuedCall, known: Agreement, number: number): void;
  /** A rank has given up a call that those of other processes go on with: here the communicator is over. */
  abandon(posting: Posting): void;
  /** A call took longer than its deadline. */
  overdue(posting: Posting, missing: readonly number[]): void;
}
