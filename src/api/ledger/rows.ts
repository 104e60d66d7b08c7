/**
 * Rows of repeated calls: those of all ranks here with one number.
 *
 * The programs of several ranks run one after another, so that the calls of the last rank complete row by row. Rows wait for
 * some microtasks. Calls without a complete row by then, or when any other call enters the ledger, are queued as others are.
 */
import type { VirtualClock } from "../backend.ts";
import type { Operation } from "../op.ts";
import { type MatchedCall, type Posting, type Prepared, repeatedPosting } from "./posting.ts";

/** The calls of a row, by rank. */
export interface CompleteRow {
  readonly number: number;
  readonly ops: readonly Operation[];
  /** Virtual times of the calls. */
  readonly postedAtPs: readonly number[];
}

/** The open rows of a communicator. `pass` leaves the tables to batches, `take` uses them again. */
export class Rows {
  /** By row, once the first rank has come to it: what is known of a row is cached with that rank's call. */
  readonly matched: (MatchedCall | undefined)[] = [];
  /** By row, those of the ranks here side by side. */
  ops: (Operation | undefined)[] = [];
  /** By place in `ops`: calls that came before the first rank's, as long as the row has no matched call. */
  readonly #early: Prepared<unknown>[] = [];
  /** By place in `ops`: virtual times of the calls; empty where time is real. */
  readonly #postedAtPs: number[] = [];
  /** Number of ranks that have come to each row. */
  readonly #arrived: number[] = [];
  readonly #ranks: number;
  readonly #clock: VirtualClock | undefined;
  /** Number of the first row of the tables. */
  #first: number;
  /** The first row that is open. */
  row = 0;
  /** The row behind the last one. */
  #end = 0;

  constructor(ranks: number, first: number, clock: VirtualClock | undefined) {
    this.#ranks = ranks;
    this.#first = first;
    this.#clock = clock;
  }

  /** True where no row is open. */
  get areComplete(): boolean {
    return this.row === this.#end;
  }

  /** True where the first open row lacks no call. */
  get isFirstComplete(): boolean {
    return this.#arrived[this.row] === this.#ranks;
  }

  /**
   * Appends the call of the rank at this index, the first rank's only if it was matched before. False for one that was not made
   * before together with the others of its row.
   */
  append(at: number, number: number, prepared: Prepared<unknown>, op: Operation): boolean {
    const row = number - this.#first;
    const place = row * this.#ranks + at;
    const clock = this.#clock;
    const known = this.matched[row];
    if (known !== undefined) {
      if (known.prepared[at] !== prepared) return false;
    } else if (at > 0) this.#early[place] = prepared;
    else if (!this.#isMadeWith(prepared.matched as MatchedCall, row)) return false;
    else this.matched[row] = prepared.matched;
    if (row === this.#end) this.#arrived[this.#end++] = 0;
    (this.#arrived[row] as number)++;
    this.ops[place] = op;
    if (clock !== undefined) this.#postedAtPs[place] = clock.now(op.worldRank);
    return true;
  }

  /** True where the calls of a row that came before the first rank's are those of its matched call. */
  #isMadeWith({ prepared }: MatchedCall, row: number): boolean {
    if (row === this.#end) return true;
    for (let at = 1, place = row * this.#ranks + 1; at < this.#ranks; at++, place++) {
      if (this.ops[place] !== undefined && this.#early[place] !== prepared[at]) return false;
    }
    return true;
  }

  /** Passes on to the next row. Gives the number of the one before. */
  pass(): number {
    return this.#first + this.row++;
  }

  /** Removes the first open row. The tables begin again where that was the last one. */
  take(): CompleteRow {
    const begin = this.row * this.#ranks;
    const ops = this.ops.slice(begin, begin + this.#ranks) as Operation[];
    const postedAtPs = this.#postedAtPs.slice(begin, begin + this.#ranks);
    this.matched[this.row] = undefined;
    const number = this.pass();
    if (this.areComplete) {
      this.#first += this.row;
      this.row = 0;
      this.#end = 0;
      // The calls reference buffers.
      this.#early.length = 0;
      this.ops = new Array<Operation>(this.#ranks);
    }
    return { number, ops, postedAtPs };
  }

  /** The calls of the open rows, with their numbers. */
  left(timeoutMs: number | undefined): { posting: Posting; number: number }[] {
    const begin = this.row * this.#ranks;
    return this.ops.slice(begin).flatMap((op, behind) => {
      const place = begin + behind;
      const [row, at] = [Math.floor(place / this.#ranks), place % this.#ranks];
      const made = this.matched[row]?.prepared[at] ?? this.#early[place];
      if (op === undefined || made === undefined) return [];
      const posting = repeatedPosting(made, op, timeoutMs, this.#postedAtPs[place]);
      return [{ posting, number: this.#first + row }];
    });
  }
}
