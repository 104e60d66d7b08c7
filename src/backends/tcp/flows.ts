/**
 * The traffic between this rank and another one on a communicator: messages that have arrived, and credits for those to send.
 *
 * A connection is read at all times, because a message that waits for its call must not stop the messages of other calls behind it.
 * So the sender limits the messages that wait: by credits within a flow, and by the bytes and the number of calls that its peer
 * has not ended.
 */
import type { MessageBlock, MessageBlocks } from "./message-blocks.ts";
import type { FlowId } from "./wire.ts";

/** A message that has arrived. */
export interface Arrival {
  readonly block: MessageBlock;
  /** `Header.total`. */
  readonly total: number;
}

/** One direction of a flow at this rank. */
export class Flow {
  /** Messages that have arrived. */
  readonly #arrivals: Arrival[] = [];
  /** Messages that may be sent before the receiver takes another one. */
  #credits: number;
  #waiter: (() => void) | undefined;

  constructor(credits: number) {
    this.#credits = credits;
  }

  get hasArrivals(): boolean {
    return this.#arrivals.length > 0;
  }

  arrived(arrival: Arrival): void {
    this.#arrivals.push(arrival);
    this.#wake();
  }

  /** The next message; without one, `waiter` is called once when one arrives. */
  take(waiter: () => void): Arrival | undefined {
    const arrival = this.#arrivals.shift();
    if (arrival === undefined) this.#waiter = waiter;
    return arrival;
  }

  addCredit(): void {
    this.#credits++;
    this.#wake();
  }

  /** Takes a credit. False without one: then `waiter` is called once when there is one. */
  takeCredit(waiter: () => void): boolean {
    if (this.#credits > 0) {
      this.#credits--;
      return true;
    }
    this.#waiter = waiter;
    return false;
  }

  /** Gives all messages back. */
  drop(blocks: MessageBlocks): void {
    this.#waiter = undefined;
    for (const { block } of this.#arrivals) blocks.give(block);
    this.#arrivals.length = 0;
  }

  #wake(): void {
    const waiter = this.#waiter;
    this.#waiter = undefined;
    waiter?.();
  }
}

/** The flows of one call in one direction, by lane and round. */
type CallFlows = Map<number, Flow>;

const laneCount = 2 ** 16;

/** The sender waits from here on: bytes and calls that the receiver has not ended. */
const openLimits = { bytes: 2 * 2 ** 20, calls: 32 } as const;

/** The receiver reports the end of calls from here on. The sum of unreported ones stays below what makes the sender wait. */
const reportLimits = { bytes: openLimits.bytes / 4, calls: openLimits.calls / 2 } as const;

/** The flows between this rank and a peer on a communicator. */
export class Endpoint {
  /** By `FlowId.sequence`. */
  readonly #incoming = new Map<number, CallFlows>();
  readonly #outgoing = new Map<number, CallFlows>();
  /** Sent and not reported as ended. */
  readonly #open = { bytes: 0, calls: 0 };
  /** Ended and not reported. */
  readonly #ended = { bytes: 0, calls: 0 };
  #onRoom: (() => void)[] = [];

  /** True while messages of the peer wait to be taken. */
  get hasArrivals(): boolean {
    return [...this.#incoming.values()].some((flows) =>
      [...flows.values()].some((flow) => flow.hasArrivals),
    );
  }

  /** The flow of messages from the peer. */
  incoming(id: FlowId): Flow {
    return flowIn(this.#incoming, id, 0);
  }

  /** The flow of messages to the peer; a new one has `credits`. */
  outgoing(id: FlowId, credits: number): Flow {
    return flowIn(this.#outgoing, id, credits);
  }

  /** A credit from the peer. */
  credit({ sequence, lane, round }: FlowId): void {
    this.#outgoing
      .get(sequence)
      ?.get(round * laneCount + lane)
      ?.addCredit();
  }

  /** A call that sends begins. False while too much is open: then `waiter` is called once there is room. */
  begin(waiter: () => void): boolean {
    if (this.#open.bytes < openLimits.bytes && this.#open.calls < openLimits.calls) {
      this.#open.calls++;
      return true;
    }
    this.#onRoom.push(waiter);
    return false;
  }

  sent(bytes: number): void {
    this.#open.bytes += bytes;
  }

  /** The peer has ended calls. */
  peerEnded(calls: number, bytes: number): void {
    this.#open.calls -= calls;
    this.#open.bytes -= bytes;
    const waiting = this.#onRoom;
    this.#onRoom = [];
    for (const waiter of waiting) waiter();
  }

  /** A call that has received `bytes` ends. Returns what is to be reported to the peer, if it is time. */
  end(bytes: number): { readonly bytes: number; readonly calls: number } | undefined {
    const ended = this.#ended;
    ended.bytes += bytes;
    ended.calls++;
    if (ended.bytes < reportLimits.bytes && ended.calls < reportLimits.calls) return undefined;
    const report = { ...ended };
    ended.bytes = 0;
    ended.calls = 0;
    return report;
  }

  /** Forgets the flows of a collective call. */
  forget(sequence: number, blocks: MessageBlocks): void {
    this.forgetFlow(sequence, "recv", blocks);
    this.forgetFlow(sequence, "send", blocks);
  }

  /** Forgets the flows of a call in one direction. */
  forgetFlow(sequence: number, direction: "send" | "recv", blocks: MessageBlocks): void {
    const calls = direction === "recv" ? this.#incoming : this.#outgoing;
    for (const flow of calls.get(sequence)?.values() ?? []) flow.drop(blocks);
    calls.delete(sequence);
  }

  /** Forgets all flows. */
  drop(blocks: MessageBlocks): void {
    for (const sequence of [...this.#incoming.keys(), ...this.#outgoing.keys()])
      this.forget(sequence, blocks);
    this.#onRoom = [];
  }
}

function flowIn(calls: Map<number, CallFlows>, id: FlowId, credits: number): Flow {
  let flows = calls.get(id.sequence);
  if (flows === undefined) {
    flows = new Map();
    calls.set(id.sequence, flows);
  }
  const key = id.round * laneCount + id.lane;
  let flow = flows.get(key);
  if (flow === undefined) {
    flow = new Flow(credits);
    flows.set(key, flow);
  }
  return flow;
}
