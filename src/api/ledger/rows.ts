/**
 * Rows of repeated calls: those of all ranks here with one number.
 *
 * The programs of several ranks run one after another, so that the calls of the last rank complete row by row. Rows wait for
 * some microtasks. Calls without a complete row by then, or when any other call enters the ledger, are queued as others are.
 */
import type { Operation } from "../op.ts";
import type { Posting, Prepared } from "./posting.ts";

/** A rank that appends its calls. */
export interface CallRank {
  /** Its index among the ranks here. */
  readonly at: number;
  /** Number of its next collective call. */
  readonly next: number;
  /** Numbers that call. */
  assign(op: Operation): number;
}

/** A call that some ranks have not made, with its number. */
export interface LeftCall {
  readonly posting: Posting;
  readonly number: number;
}

/** The rows of a communicator that calls are appended to. */
export interface Rows {
  /** Appends a rank's call; false for one that has to be posted. */
  append(own: CallRank, prepared: Prepared<unknown>, op: Operation): boolean;
  /** True where calls may be appended later: no row lacks any, and nothing is due at the end of the rows. */
  readonly mayStayOpen: boolean;
  /** The calls without a complete row. */
  incomplete(): readonly LeftCall[];
  /** Marks the others as submitted, unless their dispatch does. */
  markSubmitted?(): void;
}
