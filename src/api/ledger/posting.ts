/** A rank's call in the ledger. */
import type { RankCall } from "../backend.ts";
import type { Prepared } from "../member/prepared.ts";
import type { Operation } from "../op.ts";

/** One field of a signature, most telling field first: its name and this rank's value. */
export type SignatureField = readonly [name: string, value: string | number | undefined];

/** One rank's posted call. */
export interface Posting {
  readonly call: RankCall;
  /** The checked call: the signature, which must be equal on all ranks, and the caller's result. */
  readonly prepared: Prepared<unknown>;
  readonly op: Operation;
  /** Virtual time at which the rank made the call: inside of a group, before it was posted. */
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
  /** Its place among the messages of the two ranks. The ledger assigns it where their processes are not the same. */
  number: number;
}

/** The deadline of a call that was made at a virtual time; `undefined` for none. */
export function deadlineFrom(calledAtPs: number, timeoutMs = Infinity): number | undefined {
  return timeoutMs === Infinity ? undefined : calledAtPs + timeoutMs * 1e9;
}
