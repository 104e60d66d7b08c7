/** Every message of a run, in the order of reception: the engines' trace, in pages of typed arrays. */
import { none } from "../program.ts";
import type { LinkModel } from "./model.ts";
import type { Traffic } from "./traffic.ts";

/** One message. */
export interface MessageEvent {
  readonly from: number;
  readonly to: number;
  readonly channel: number;
  readonly elements: number;
  /** Times at which the message takes the sender's port, and leaves it. */
  readonly sendStart: number;
  readonly sendEnd: number;
  /** Times at which it takes the receiver's port, and is complete. */
  readonly recvStart: number;
  readonly recvEnd: number;
  /** Step of the program (over all lanes) that received it. */
  readonly step: number;
}

const pageLength = 2 ** 15;

/** Columns of a page beside the edge: elements, start of sending, start of receiving. */
const width = 3;

/** A page of the log. */
interface Page {
  readonly edges: Int32Array;
  readonly columns: Float64Array;
  /** Delay of a message beyond its length; allocated for the first such message. */
  late: Float64Array | undefined;
}

/** Collects the messages of one run. */
export class MessageLog {
  readonly #pages: Page[] = [];
  #page: Page | undefined;
  #at = 0;

  /** Number of messages so far. */
  get length(): number {
    return Math.max(0, this.#pages.length - 1) * pageLength + this.#at;
  }

  /** Adds a message that was complete `late` after the receiver's port could have taken it. */
  add(edge: number, elements: number, sendStart: number, recvStart: number, late: number): void {
    if (this.#page === undefined || this.#at === pageLength) this.#turn();
    const page = this.#page as Page;
    const at = this.#at++;
    const { columns } = page;
    page.edges[at] = edge;
    columns[width * at] = elements;
    columns[width * at + 1] = sendStart;
    columns[width * at + 2] = recvStart;
    if (late === 0) return;
    page.late ??= new Float64Array(pageLength);
    page.late[at] = late;
  }

  /** Visits every message, in the order of reception. */
  each(traffic: Traffic, model: LinkModel, visit: (event: MessageEvent) => void): void {
    const { edgeFrom, edgeTo, channels } = traffic;
    const { length } = this;
    const receivers = new Receivers(traffic);
    for (let index = 0; index < length; index++) {
      const page = this.#pages[Math.floor(index / pageLength)] as Page;
      const at = index % pageLength;
      const edge = page.edges[at] as number;
      const to = edgeTo[edge] as number;
      const elements = page.columns[width * at] as number;
      const sendStart = page.columns[width * at + 1] as number;
      const recvStart = page.columns[width * at + 2] as number;
      const occupancy = model.occupancy(elements);
      visit({
        from: Math.floor((edgeFrom[edge] as number) / channels),
        to: Math.floor(to / channels),
        channel: to % channels,
        elements,
        sendStart,
        sendEnd: sendStart + occupancy,
        recvStart,
        recvEnd: recvStart + occupancy + (page.late?.[at] ?? 0),
        step: receivers.next(to),
      });
    }
  }

  #turn(): void {
    this.#page = {
      edges: new Int32Array(pageLength),
      columns: new Float64Array(width * pageLength),
      late: undefined,
    };
    this.#pages.push(this.#page);
    this.#at = 0;
  }
}

/** The next receive of every lane; lanes receive in order. */
class Receivers {
  readonly #traffic: Traffic;
  readonly #run: Int32Array;
  /** Repetitions of the run that are done. */
  readonly #taken: Int32Array;

  constructor(traffic: Traffic) {
    this.#traffic = traffic;
    this.#run = traffic.starts.slice();
    this.#taken = new Int32Array(traffic.starts.length);
  }

  /** Step of a lane's next receive. */
  next(lane: number): number {
    const { receives, times, steps } = this.#traffic;
    let run = this.#run[lane] as number;
    let taken = this.#taken[lane] as number;
    while (receives[run] === none || taken === times[run]) {
      run++;
      taken = 0;
    }
    this.#run[lane] = run;
    this.#taken[lane] = taken + 1;
    return (steps[run] as number) + taken;
  }
}
