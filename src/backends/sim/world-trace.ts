/** What one life of a world, from its opening to its end or its rebuild, puts into a trace. */
import type { MessageEvent } from "../../algorithms/index.ts";
import type { CallSet, CollectiveName, CommInfo, Transfer } from "../../api/index.ts";
import type { ChromeEvent } from "./chrome-event.ts";
import { classes, type Place, rows, type Trace, type TracedMessage } from "./trace.ts";
import type { TransferTimes } from "./transfers.ts";

/** What a message is related to its calls by. */
type MessageNumbers = Pick<TracedMessage, "call" | "sendCall" | "message">;

/** Takes the events of one life of a world. */
export class WorldTrace {
  readonly size: number;
  /** The first life of the same world. */
  readonly first: WorldTrace;
  readonly #trace: Trace;
  readonly #generation: number;
  /** What each rank was in the first life. */
  readonly #origins: readonly number[];
  /** How many messages have gone from one rank to another, by communicator, sender and receiver. */
  readonly #sent = new WeakMap<CommInfo, Map<number, number>>();

  /** Of a world that is opened, or of one that follows `before` with these of its ranks. */
  constructor(
    trace: Trace,
    size: number,
    before?: { readonly world: WorldTrace; readonly ranks: readonly number[] },
  ) {
    this.size = size;
    this.#trace = trace;
    if (before === undefined) {
      this.first = this;
      this.#generation = 1;
      this.#origins = Array.from({ length: size }, (_, rank) => rank);
      return;
    }
    const { world, ranks } = before;
    this.first = world.first;
    this.#generation = world.#generation + 1;
    this.#origins = ranks.map((rank) => world.#origins[rank] as number);
  }

  /** The name of a rank's process: the ranks of the first life of the first world have no other. */
  processName(rank: number, { world }: Place): string {
    const origin = this.#origins[rank] as number;
    const whose = world > 1 ? ` of world ${world}` : "";
    const life = this.#generation > 1 ? `, generation ${this.#generation}` : "";
    const was = origin === rank ? "" : ` (rank ${origin} at first)`;
    return `rank ${rank}${whose}${life}${was}`;
  }

  /**
   * Every rank's part of a call: when it was made and when its result was there. `unclaimed` where NCCL was to be
   * followed and nothing is said about its bits.
   */
  call(set: CallSet, startedPs: readonly number[], plan: string, unclaimed = false): void {
    const algorithm = unclaimed ? `${plan} unclaimed` : plan;
    for (const { rank, dtype, count, finishedAtPs } of set.calls) {
      const world = set.comm.ranks[rank] as number;
      const { pid, who } = this.#seen(world);
      const what = dtype === undefined ? set.collective : `${set.collective} ${dtype}[${count}]`;
      const text = `${who} comm=${set.comm.name} call=${set.number} ${what} ${algorithm}`;
      const start = startedPs[rank] as number;
      this.#add(start, classes.post, `post ${text}`, []);
      const args = { comm: set.comm.name, call: set.number, algorithm };
      const span = { pid, tid: rows.calls, ts: us(start), dur: us(finishedAtPs - start) };
      this.#add(finishedAtPs, classes.finish, `done ${text}`, [
        { name: what, ph: "X", ...span, args },
      ]);
    }
  }

  /** A message between two ranks of a call. */
  message({ comm, number, collective }: CallSet, event: MessageEvent): void {
    this.#message(comm, collective, { call: number }, event);
  }

  /** A send and the receive it met. */
  transfer(comm: CommInfo, transfer: Transfer, times: TransferTimes): void {
    const { send, recv, sendNumber, recvNumber } = transfer;
    const message = this.#nthBetween(comm, send.rank, recv.rank);
    const event = { from: send.rank, to: recv.rank, channel: 0, elements: send.count, step: 0 };
    const numbers = { call: recvNumber, sendCall: sendNumber, message };
    this.#message(comm, "send", numbers, { ...event, ...times });
  }

  #nthBetween(comm: CommInfo, from: number, to: number): number {
    const sent = this.#sent.get(comm) ?? new Map<number, number>();
    this.#sent.set(comm, sent);
    const both = from * comm.ranks.length + to;
    const number = sent.get(both) ?? 0;
    sent.set(both, number + 1);
    return number;
  }

  #message(
    comm: CommInfo,
    collective: CollectiveName,
    numbers: MessageNumbers,
    event: MessageEvent,
  ): void {
    const from = comm.ranks[event.from] as number;
    const to = comm.ranks[event.to] as number;
    const { elements, sendStart, sendEnd, recvStart, recvEnd, channel } = event;
    const sender = this.#seen(from);
    const receiver = this.#seen(to);
    const { world } = this.#place;
    const id = this.#trace.addMessage({
      ...{ ...event, from, to, world, generation: this.#generation },
      ...{ comm: comm.name, ...numbers },
    });
    const { call, sendCall = call, message } = numbers;
    const both = message === undefined ? "" : ` sendCall=${sendCall} message=${message}`;
    const text =
      `recv ${receiver.who} from=${from} comm=${comm.name} call=${call}${both} channel=${channel} ` +
      `elements=${elements} sent=${sendStart}..${sendEnd} began=${recvStart}`;
    const name = `${collective} ${from}→${to}`;
    const args = message === undefined ? { elements, call } : { elements, call, message };
    const sendArgs = message === undefined ? args : { ...args, call: sendCall };
    const flow = { name, id, cat: "message" };
    const out = { pid: sender.pid, tid: rows.out, ts: us(sendStart) };
    const into = { pid: receiver.pid, tid: rows.in };
    this.#add(recvEnd, classes.receive, text, [
      { name, ph: "X", ...out, dur: us(sendEnd - sendStart), args: sendArgs },
      { ...flow, ph: "s", ...out },
      { name, ph: "X", ...into, ts: us(recvStart), dur: us(recvEnd - recvStart), args },
      { ...flow, ph: "f", bp: "e", ...into, ts: us(recvEnd) },
    ]);
  }

  /** Virtual compute of a rank. */
  work(rank: number, startPs: number, endPs: number, label: string | undefined): void {
    const { pid, who } = this.#seen(rank);
    const name = label ?? "work";
    this.#add(startPs, classes.work, `work ${who} until=${endPs} ${name}`, [
      { name, ph: "X", pid, tid: rows.work, ts: us(startPs), dur: us(endPs - startPs) },
    ]);
  }

  get #place(): Place {
    return this.#trace.placeOf(this);
  }

  /** A rank that something happens to: its process, and how lines name it. */
  #seen(rank: number): { readonly pid: number; readonly who: string } {
    const place = this.#place;
    const { world, firstPid } = place;
    place.ranks = Math.max(place.ranks, rank + 1);
    const whose = world > 1 ? ` world=${world}` : "";
    const life = this.#generation > 1 ? ` generation=${this.#generation}` : "";
    return { pid: firstPid + rank, who: `rank=${rank}${whose}${life}` };
  }

  #add(timePs: number, order: number, text: string, chrome: readonly ChromeEvent[]): void {
    this.#trace.add({ timePs, class: order, text, chrome });
  }
}

function us(ps: number): number {
  return ps / 1e6;
}
