/** Calls that a rank makes again, where nobody waits for them but by their operations. */
import type { RankCall, Session } from "../backend.ts";
import type { Prepared } from "../member/prepared.ts";
import type { CommOp } from "../op.ts";
import { QueuedCall } from "./call-queue.ts";
import type { Posting } from "./posting.ts";

/** True for a session that queues calls again and asks for nothing more about each: whether to refuse it, or when in virtual time. */
export function repeatsFreely(session: Session): boolean {
  const { enqueueAgain, compare, posted, lending, clock } = session;
  if (enqueueAgain === undefined) return false;
  return (compare ?? posted ?? lending ?? clock) === undefined;
}

/** The posting of a call as it was made before, where time is real. */
export function repeated(
  call: RankCall,
  prepared: Prepared<unknown>,
  op: CommOp,
  deadlinePs: number | undefined,
): Posting {
  return { call, prepared, op, calledAtPs: 0, deadlinePs, cancellable: false };
}

/** A call as it was made before, where time is real: its posting, which may stand in a queue by itself. */
export class RepeatedCall extends QueuedCall implements Posting {
  readonly call: RankCall;
  readonly prepared: Prepared<unknown>;
  readonly op: CommOp;
  readonly deadlinePs: number | undefined;

  constructor(
    call: RankCall,
    prepared: Prepared<unknown>,
    op: CommOp,
    deadlinePs: number | undefined,
  ) {
    super();
    this.call = call;
    this.prepared = prepared;
    this.op = op;
    this.deadlinePs = deadlinePs;
  }

  get calledAtPs(): number {
    return 0;
  }

  get cancellable(): boolean {
    return false;
  }

  get postings(): readonly Posting[] {
    return [this];
  }

  submitted(): void {
    this.op.submit();
  }

  complete(): void {
    this.op.complete(this.prepared.resultOf(this.call));
  }
}
