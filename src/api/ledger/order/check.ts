/**
 * The order of calls across communicators: calls of a rank take effect in the order in which the rank made them.
 *
 * A call is done when all calls before it in the streams of its ranks are, and a message needs its other end at the head of its
 * stream too. Ranks that make calls of two communicators in different orders therefore wait for each other for ever. The calls
 * that wait for each other are a cycle; it is looked for when the call that closes it is made, and nothing of it has moved.
 */
import type { CallOrder, OrderedCall } from "../../errors.ts";
import type { WorldContext } from "../comm-state.ts";
import type { Posting } from "../posting.ts";
import { counterparts, MessageBatch, type QueueEntry } from "../queues.ts";
import { type CallGraph, findCycle } from "./call-graph.ts";
import { lucky, type OrderErrors, orderErrors, waiting } from "./errors.ts";
import type { Fifo, StreamQueues } from "./streams.ts";

/**
 * Compares the order of a call that a rank has just made with the orders of the other ranks. Calls that wait for each other end
 * their communicators. Calls on different streams do not wait for each other, but need resources that a GPU may lack: a warning,
 * or with `isStrict` the same error.
 */
export function checkOrder(world: WorldContext, made: QueueEntry, rank: number): void {
  const { streams } = world;
  const inverted = cycleAt(streams, made, rank);
  if (inverted !== undefined) {
    endInverted(world, inverted, orderErrors(ordersOf(streams, inverted), waiting));
    return;
  }
  const { issued } = streams;
  const differing = issued && cycleAt(issued, made, rank);
  if (issued === undefined || differing === undefined) return;
  const errors = orderErrors(ordersOf(issued, differing), lucky);
  const { isStrict } = world.session.info;
  if (isStrict === true) endInverted(world, differing, errors);
  else world.warnOfOrder(errors.text);
}

/** A cycle over several communicators with a call that a rank has just made; `undefined` where there is none. */
function cycleAt(
  queues: StreamQueues<QueueEntry>,
  made: QueueEntry,
  rank: number,
): readonly QueueEntry[] | undefined {
  if (queues.reordered.size === 0) return undefined;
  const graph = new StreamGraph(queues);
  // A message waits for nothing but what is before it, and keeps its other ends waiting for the same.
  const goals = made instanceof MessageBatch ? graph.counterparts(made) : [made];
  const cycle = findCycle(graph, goals, graph.beforeIn(made, rank));
  // Calls of one communicator that wait for each other are a deadlock like any other.
  return cycle?.some(({ comm }) => comm !== made.comm) === true ? graph.withEnds(cycle) : undefined;
}

function endInverted(
  world: WorldContext,
  cycle: readonly QueueEntry[],
  { errorOf }: OrderErrors,
): void {
  world.endTogether(() => {
    for (const comm of new Set(cycle.map((entry) => entry.comm))) {
      world.stateOf(comm).terminate(errorOf(comm));
    }
  });
}

/** A stream in a search. */
interface Scan {
  readonly entries: readonly QueueEntry[];
  readonly positions: ReadonlyMap<QueueEntry, number>;
  /** Number of its calls that were given. */
  given: number;
}

/** The calls in the streams of this process, for one search: each is given once. */
class StreamGraph implements CallGraph<QueueEntry> {
  readonly #streams: StreamQueues<QueueEntry>;
  readonly #scans = new Map<Fifo<QueueEntry>, Scan>();
  /** By call: the one behind it that waits for it, or that is the other end of a waiting message. */
  readonly #behind = new Map<QueueEntry, QueueEntry>();

  constructor(streams: StreamQueues<QueueEntry>) {
    this.#streams = streams;
  }

  *before(call: QueueEntry): Iterable<QueueEntry> {
    if (call instanceof MessageBatch) {
      yield* this.beforeIn(call, call.rank);
      for (const other of this.counterparts(call)) yield* this.beforeIn(other, other.rank);
      return;
    }
    for (const rank of call.comm.local) {
      if (call.postings[rank] !== undefined) yield* this.beforeIn(call, rank);
    }
  }

  /** The calls before one in the stream of a rank. */
  *beforeIn(call: QueueEntry, rank: number): Iterable<QueueEntry> {
    const scan = this.#scanOf(this.#streams.ofComm(call.comm)[rank] as Fifo<QueueEntry>);
    const end = scan.positions.get(call) ?? 0;
    while (scan.given < end) {
      const entry = scan.entries[scan.given++] as QueueEntry;
      if (!this.#behind.has(entry)) this.#behind.set(entry, call);
      yield entry;
    }
  }

  counterparts(batch: MessageBatch): readonly MessageBatch[] {
    return [...(batch.matched ?? []), ...counterparts(batch, this.#streams.ofComm(batch.comm))];
  }

  /** The calls of a cycle, with the other ends of its messages. */
  withEnds(cycle: readonly QueueEntry[]): readonly QueueEntry[] {
    return [...new Set(cycle.flatMap((call) => [call, this.#behind.get(call) ?? call]))];
  }

  #scanOf(stream: Fifo<QueueEntry>): Scan {
    const known = this.#scans.get(stream);
    if (known !== undefined) return known;
    const entries = stream.items();
    const positions = new Map(entries.map((entry, at) => [entry, at]));
    const scan: Scan = { entries, positions, given: 0 };
    this.#scans.set(stream, scan);
    return scan;
  }
}

/** The order in which each rank has made the calls of a cycle, for ranks that have made several of them. */
function ordersOf(streams: StreamQueues<QueueEntry>, cycle: readonly QueueEntry[]): CallOrder[] {
  const byRank = new Map<number, OrderedCall[]>();
  for (const { comm } of cycle) {
    for (const [rank, worldRank] of comm.ranks.entries()) {
      if (byRank.has(worldRank)) continue;
      const stream = streams.ofComm(comm)[rank]?.items() ?? [];
      const calls = stream.filter((entry) => cycle.includes(entry));
      byRank.set(
        worldRank,
        calls.map((entry) => orderedCall(entry, worldRank)),
      );
    }
  }
  const orders = Array.from(byRank, ([rank, calls]): CallOrder => ({ rank, calls }));
  return orders.filter(({ calls }) => calls.length > 1).sort((a, b) => a.rank - b.rank);
}

function orderedCall(entry: QueueEntry, worldRank: number): OrderedCall {
  const { comm } = entry;
  const { op, call } = postingOf(entry, comm.ranks.indexOf(worldRank));
  const where = op.place === undefined ? {} : { place: op.place };
  return { comm: comm.name, collective: call.collective, call: op.call, ...where };
}

function postingOf(entry: QueueEntry, rank: number): Posting {
  const posting =
    entry instanceof MessageBatch ? (entry.open[0] ?? entry.transfers[0]) : entry.postings[rank];
  return posting as Posting;
}
