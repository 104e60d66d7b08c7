/** Calls that a repeated call of a rank can be appended to: checked by every call, so it is one look at one object. */
import type { Prepared } from "../../member/prepared.ts";
import type { CommOp } from "../../op.ts";
import type { Posting } from "../calls/posting.ts";

/** Calls under way, as long as no other call enters the ledger and their rank may make calls. */
export interface Going {
  /** Stands for it in objects that outlive it. */
  readonly key: object;
  /** True where a call with such a deadline can be appended now. */
  takes(timeoutMs: number | undefined): boolean;
  /** Takes a call that was checked before; false for one that has to be posted. */
  goOn(prepared: Prepared<unknown>, op: CommOp): boolean;
}

/** One rank's. */
export interface Track {
  readonly current: Going | undefined;
}

/** All of a ledger's. */
export interface Goings {
  /** A rank's, for as long as the ledger lives. */
  trackOf(rank: number): Track;
  /** A call that was made before, which is the rank's next one, is there to be gone on with; false where it cannot be. */
  begin(rank: number, posting: Posting, timeoutMs: number | undefined): boolean;
  /** Nothing goes on any more. */
  seal(): void;
}
