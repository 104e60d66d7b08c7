/** A rank's call as it stands in the ledger. */
import type { RankCall } from "../backend.ts";
import type { CommOp, ResultOf } from "../op.ts";

/** One field of a signature: its name and this rank's value. */
export type SignatureField = readonly [name: string, value: string | number | undefined];

/** What a rank posts. */
export interface Posting {
  readonly call: RankCall;
  /** What must be equal on all ranks, most telling field first. */
  readonly signature: readonly SignatureField[];
  readonly op: CommOp;
  readonly resultOf: ResultOf<unknown>;
  /** Virtual time at which the rank asked for the call: inside of a group, before it was posted. */
  readonly calledAtPs: number;
  /** Virtual time at which the call must be done; `undefined` for no deadline. */
  readonly deadlinePs: number | undefined;
  /** A signal may still cancel it. */
  readonly cancellable: boolean;
}

/** A rank's send or receive. */
export interface TransferPosting extends Posting {
  readonly direction: "send" | "recv";
  /** The other rank in the communicator; it may be this one. */
  readonly peer: number;
}
