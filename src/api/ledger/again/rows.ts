/**
 * Repeated calls of several ranks of one process: the ranks' programs run one after another, so that the last one's calls
 * complete row after row (`turn-of-rows.ts`). Rows live for one turn. Calls that are no row by then, or when any other call
 * enters the ledger, are posted as other calls are.
 */
import type { CommInfo } from "../../backend.ts";
import type { Posting } from "../calls/posting.ts";
import type { Goings, Track } from "./going.ts";
import { type Lane, type RowsHost, TurnOfRows } from "./turn-of-rows.ts";

/** The calls that a rank's next call can be appended to. */
interface RankTrack {
  current: Lane | undefined;
}

/** The lanes of the ranks of one communicator that live in this process. */
export class Rows implements Goings {
  readonly #host: RowsHost;
  readonly #local: readonly number[];
  /** By rank. */
  readonly #tracks: readonly RankTrack[];
  /** `undefined` before its first call. */
  #turn: TurnOfRows | undefined;

  constructor({ ranks, local }: CommInfo, host: RowsHost) {
    this.#host = host;
    this.#local = local;
    this.#tracks = ranks.map(() => ({ current: undefined }));
  }

  trackOf(rank: number): Track {
    return this.#track(rank);
  }

  #track(rank: number): RankTrack {
    return this.#tracks[rank] as RankTrack;
  }

  begin(rank: number, { prepared, op }: Posting, timeoutMs: number | undefined): boolean {
    // No row can begin with it: a turn need not be opened.
    if (rank === this.#local[0] && prepared.agreement?.planned === undefined) return false;
    this.#turn ??= this.#open(rank, timeoutMs);
    const lane = this.#turn?.lanes[this.#local.indexOf(rank)];
    if (lane?.takes(timeoutMs) !== true) return false;
    this.#track(rank).current = lane;
    return lane.goOn(prepared, op);
  }

  /** Every rank has a lane from here on; `undefined` where their next calls are not one row. */
  #open(rank: number, timeoutMs: number | undefined): TurnOfRows | undefined {
    const { numbers } = this.#host;
    const first = numbers.next(rank);
    if (this.#local.some((each) => numbers.next(each) !== first)) return undefined;
    queueMicrotask(() => this.seal());
    return new TurnOfRows(this.#host, this.#local, first, timeoutMs, () => this.seal());
  }

  seal(): void {
    const turn = this.#turn;
    if (turn === undefined) return;
    this.#turn = undefined;
    for (const lane of turn.lanes) {
      lane.isOver = true;
      this.#track(lane.rank).current = undefined;
      this.#host.numbers.advance(lane.rank, turn.first + lane.ops.length);
    }
    turn.end();
  }
}
