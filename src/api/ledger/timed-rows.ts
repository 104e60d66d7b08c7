/**
 * Rows of repeated calls in virtual time: every call has times of its own, so that a row is dispatched when its last rank comes to
 * it, and no batch is made.
 */
import type { VirtualClock } from "../backend.ts";
import type { Operation } from "../op.ts";
import type { CommState } from "./comm-state.ts";
import { dispatchRepeated } from "./dispatch.ts";
import { type MatchedCall, type Prepared, repeatedPosting } from "./posting.ts";
import type { CallRank, LeftCall, Rows } from "./rows.ts";
import { Fifo } from "./streams.ts";

/** The calls of one number, by rank. */
class Row {
  readonly prepared: Prepared<unknown>[];
  readonly ops: Operation[];
  /** Number of ranks that have come to it. */
  arrived = 0;

  constructor(ranks: number) {
    this.prepared = new Array<Prepared<unknown>>(ranks);
    this.ops = new Array<Operation>(ranks);
  }

  /** The matched call of all ranks; `undefined` where they have to be compared, or checked again. */
  get matched(): MatchedCall | undefined {
    const { prepared } = this;
    const matched = prepared[0]?.matched;
    if (matched === undefined) return undefined;
    for (let rank = 0; rank < prepared.length; rank++) {
      if (matched.prepared[rank] !== prepared[rank]) return undefined;
    }
    return matched.buffersLive() ? matched : undefined;
  }
}

/** The rows that lack calls of some ranks. */
export class TimedRows implements Rows {
  readonly #state: CommState;
  readonly #clock: VirtualClock;
  readonly #open = new Fifo<Row>();
  /** Number of the first of them. */
  #first: number;

  constructor(state: CommState, clock: VirtualClock, first: number) {
    this.#state = state;
    this.#clock = clock;
    this.#first = first;
  }

  /** New rows for each row would take as long as a small call. */
  get mayStayOpen(): boolean {
    return this.#open.length === 0;
  }

  append(own: CallRank, prepared: Prepared<unknown>, op: Operation): boolean {
    // What is known of a row is kept with the first rank's call.
    if (own.at === 0 && prepared.matched?.isFixed !== true) return false;
    const row = this.#open.at(own.next - this.#first) ?? this.#add();
    own.assign(op);
    op.submittedAtPs = this.#clock.now(op.worldRank);
    row.prepared[own.at] = prepared;
    row.ops[own.at] = op;
    if (++row.arrived === row.ops.length) this.#complete(row);
    return true;
  }

  #add(): Row {
    const row = new Row(this.#state.comm.ranks.length);
    this.#open.push(row);
    return row;
  }

  #complete(row: Row): void {
    const { matched } = row;
    if (matched === undefined) this.#state.seal();
    else {
      this.#open.shift();
      dispatchRepeated(this.#state, this.#first++, matched, row.ops);
    }
  }

  incomplete(): LeftCall[] {
    return this.#open.items().flatMap(({ prepared, ops }, behind) =>
      ops.flatMap((op, rank) => {
        const made = prepared[rank] as Prepared<unknown>;
        const posting = repeatedPosting(made, op, undefined, op.submittedAtPs);
        return [{ posting, number: this.#first + behind }];
      }),
    );
  }
}
