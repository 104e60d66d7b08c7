/**
 * The order of calls across communicators: calls of a rank take effect in the order in which the rank made them.
 *
 * A call is done when all calls before it in the streams of its ranks are, and a message needs its other end at the head of its
 * stream too. Ranks that make calls of two communicators in different orders therefore wait for each other for ever. The calls
 * that wait for each other are a cycle. In one process it is looked for when the call that closes it is made, and nothing of it
 * has moved.
 *
 * Of several processes each has its own open calls, and reports them on request. The reports of all processes show the cycle.
 * They are compared when a deadline passes, and when a call that waits for other processes keeps calls of other communicators
 * waiting.
 */
import type { CommInfo, JobSession } from "../../backend.ts";
import type { CallOrder, OrderedCall } from "../../errors.ts";
import { getOrCreate } from "../../get-or-create.ts";
import type { Posting, TransferPosting } from "../posting.ts";
import { counterparts, MessageBatch, type QueueEntry } from "../queues.ts";
import type { Fifo, StreamQueues, Streams } from "../streams.ts";
import { setOwnTimer } from "../turns.ts";
import { concurrent, deadlocked, type OrderErrors, orderErrors } from "./report.ts";

/** The calls of a stream before its place `end`, which `behind` waits for. */
interface Before<Call> {
  readonly stream: readonly Call[];
  readonly end: number;
  readonly behind: Call;
}

/**
 * Looks for one of `goals` among the calls of `start` and those `before` them, which must be done first: breadth first. Returns
 * the calls on the way, which is a shortest one, each with the call behind it: that is the other end of a message that waits.
 */
function findCycle<Call>(
  goals: readonly Call[],
  start: Iterable<Before<Call>>,
  before: (call: Call) => Iterable<Before<Call>>,
): readonly Call[] | undefined {
  /** By call: the one that waits for it, and the one behind it. */
  const found = new Map<Call, { readonly waiter: Call | undefined; readonly behind: Call }>();
  /** Number of calls of each stream that were found: each is visited once. */
  const given = new Map<readonly Call[], number>();
  const visit = (waiter: Call | undefined, places: Iterable<Before<Call>>): void => {
    for (const { stream, end, behind } of places) {
      let at = given.get(stream) ?? 0;
      for (; at < end; at++) {
        const call = stream[at] as Call;
        if (!found.has(call)) found.set(call, { waiter, behind });
      }
      given.set(stream, at);
    }
  };
  visit(undefined, start);
  for (const [call] of found) {
    if (goals.includes(call)) {
      const cycle = new Set<Call>();
      for (let next: Call | undefined = call; next !== undefined; next = found.get(next)?.waiter)
        cycle.add(next).add(found.get(next)?.behind ?? next);
      return [...cycle];
    }
    visit(call, before(call));
  }
  return undefined;
}

// Ranks of one process.

/** Calls that ranks of this process made in different orders. */
export interface Inversion extends OrderErrors {
  /** The communicators of the calls. */
  readonly comms: Iterable<CommInfo>;
  /** The calls are on different streams: they do not wait for each other, but need resources that a GPU may lack. */
  readonly mayComplete: boolean;
}

/** Compares the order of a call that a rank has just made with the orders of the other ranks; gives a difference. */
export function findInversion(
  streams: Streams<QueueEntry>,
  made: QueueEntry,
  rank: number,
): Inversion | undefined {
  for (const queues of [streams, streams.issued]) {
    const cycle = queues && cycleAt(queues, made, rank);
    if (queues === undefined || cycle === undefined) continue;
    const mayComplete = queues !== streams;
    const errors = orderErrors(ordersOf(queues, cycle), mayComplete ? concurrent : deadlocked);
    return { ...errors, comms: new Set(cycle.map(({ comm }) => comm)), mayComplete };
  }
  return undefined;
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
  // The call is the last of this rank: without another rank or other ends nothing waits for it, whatever the number of open calls.
  const isAwaited =
    made instanceof MessageBatch ? goals.some((each) => each !== made) : made.arrived > 1;
  if (!isAwaited) return undefined;
  const cycle = findCycle(goals, [graph.beforeIn(made, rank)], (call) => graph.before(call));
  // Calls of one communicator that wait for each other are a deadlock like any other.
  return cycle?.some(({ comm }) => comm !== made.comm) === true ? cycle : undefined;
}

/** The calls in the streams of this process, for one search. */
class StreamGraph {
  readonly #streams: StreamQueues<QueueEntry>;
  /** The calls of each stream, and their places. */
  readonly #scans = new Map<
    Fifo<QueueEntry>,
    { readonly stream: QueueEntry[]; readonly places: ReadonlyMap<QueueEntry, number> }
  >();

  constructor(streams: StreamQueues<QueueEntry>) {
    this.#streams = streams;
  }

  /** The calls before one in the streams of its ranks; of messages also those before their other ends. */
  before(call: QueueEntry): Before<QueueEntry>[] {
    if (call instanceof MessageBatch)
      return [call, ...this.counterparts(call)].map((batch) => this.beforeIn(batch, batch.rank));
    const ranks = call.comm.local.filter((rank) => call.postings[rank] !== undefined);
    return ranks.map((rank) => this.beforeIn(call, rank));
  }

  /** The calls before one in the stream of a rank. */
  beforeIn(behind: QueueEntry, rank: number): Before<QueueEntry> {
    const queue = this.#streams.ofComm(behind.comm)[rank] as Fifo<QueueEntry>;
    const { stream, places } = getOrCreate(this.#scans, queue, () => {
      const stream = queue.items();
      return { stream, places: new Map(stream.map((call, at) => [call, at])) };
    });
    return { stream, end: places.get(behind) ?? 0, behind };
  }

  counterparts(batch: MessageBatch): readonly MessageBatch[] {
    return [...(batch.matched ?? []), ...counterparts(batch, this.#streams.ofComm(batch.comm))];
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
      const ordered = calls.map((entry) => orderedCall(entry.comm, postingOf(entry, worldRank)));
      byRank.set(worldRank, ordered);
    }
  }
  const orders = Array.from(byRank, ([rank, calls]): CallOrder => ({ rank, calls }));
  return orders.filter(({ calls }) => calls.length > 1).sort((a, b) => a.rank - b.rank);
}

function orderedCall(comm: CommInfo, { op, call }: Posting): OrderedCall {
  const where = op.place === undefined ? {} : { place: op.place };
  return { comm: comm.name, collective: call.collective, call: op.call, ...where };
}

/** The posting of a world rank in an entry; of messages the first that is not done. */
function postingOf(entry: QueueEntry, worldRank: number): Posting {
  const posting =
    entry instanceof MessageBatch
      ? (entry.unfinished[0] ?? entry.transfers[0])
      : entry.postings[entry.comm.ranks.indexOf(worldRank)];
  return posting as Posting;
}

// Ranks of several processes.

/** An open call of a rank. */
interface ReportedCall extends OrderedCall {
  /** A message: world ranks of its sender and its receiver, and its number among their messages. */
  readonly message?: readonly [from: number, to: number, number: number];
}

/** Open calls of a rank, which it made together: the messages of a group, or one collective call. */
interface ReportedGroup {
  /** Name of the communicator with streams of its own; `undefined` for the stream of the rank. */
  readonly stream?: string;
  readonly calls: readonly ReportedCall[];
}

/** Everything that a rank has open, oldest first. */
export interface OrderReport {
  /** The communicators: world ranks, and the number of the rank's next collective call. */
  readonly comms: Readonly<
    Record<string, { readonly ranks: readonly number[]; readonly next: number }>
  >;
  readonly groups: readonly ReportedGroup[];
}

/** Most open calls of a rank in a report: the oldest decide. */
const maxReported = 256;

/** Calls that were submitted, or posted, together. */
export interface SubmittedGroup {
  /** Its place among the submissions, or the calls, of the world. */
  readonly serial: number;
  readonly postings: readonly Posting[];
}

/** The open calls of this process's rank on one communicator. */
export interface OpenCalls {
  readonly comm: CommInfo;
  /** Number of the rank's next collective call. */
  readonly next: number;
  readonly submitted: Iterable<SubmittedGroup>;
  readonly queued: Iterable<SubmittedGroup>;
}

/** The open calls of this process's rank on its communicators. */
function reportOrder(all: Iterable<OpenCalls>): OrderReport {
  const comms: Record<string, { ranks: readonly number[]; next: number }> = {};
  const [submitted, queued]: [OpenGroup[], OpenGroup[]] = [[], []];
  for (const { comm, next, ...open } of all) {
    comms[comm.name] = { ranks: comm.ranks, next };
    for (const group of open.submitted) submitted.push({ ...group, comm });
    for (const group of open.queued) queued.push({ ...group, comm });
  }
  // What is submitted has left the stream.
  const inOrder = [submitted, queued].flatMap((groups) =>
    groups.sort((a, b) => a.serial - b.serial),
  );
  const groups = inOrder.map(reportedGroup).filter(({ calls }) => calls.length > 0);
  return { comms, groups: groups.slice(0, maxReported) };
}

interface OpenGroup extends SubmittedGroup {
  readonly comm: CommInfo;
}

function reportedGroup({ comm, postings }: OpenGroup): ReportedGroup {
  const open = postings.filter(({ op }) => op.pending);
  const calls = open.map((posting) => reportedCall(comm, posting));
  return comm.ownStream === true ? { stream: comm.name, calls } : { calls };
}

function isMessage(posting: Posting): posting is TransferPosting {
  return "peer" in posting;
}

function reportedCall(comm: CommInfo, posting: Posting): ReportedCall {
  const call = orderedCall(comm, posting);
  if (!isMessage(posting)) return call;
  const { op, peer } = posting;
  const [own, other] = [comm.ranks[op.rank] as number, comm.ranks[peer] as number];
  const ends = posting.direction === "send" ? ([own, other] as const) : ([other, own] as const);
  return { ...call, message: [...ends, posting.number] };
}

// The comparison of reports.

/** A call of all its ranks: a collective one, or a message with both ends. */
interface JobCall {
  /** As the first rank has made it. */
  readonly first: ReportedCall;
  /** World ranks without which it cannot be done. */
  readonly ranks: readonly number[];
  /** The call as each rank has made it. */
  readonly made: Map<number, ReportedCall>;
  /** By stream that it is in, the number of calls before it; messages of one group have one place. */
  readonly places: Map<RankStream, number>;
}

/** The calls of one stream of a rank. */
interface RankStream {
  readonly rank: number;
  /** Name of the communicator with this stream of its own. */
  readonly own: string | undefined;
  readonly calls: JobCall[];
}

/** The open calls of a job, by the reports of its ranks; without those that have not answered. */
class JobCalls {
  readonly #reports: ReadonlyMap<number, OrderReport>;
  readonly #hasFuture: boolean;
  readonly #streams: RankStream[] = [];
  readonly #calls = new Map<string, JobCall>();

  /** `hasFuture`: a rank that has not made a call will make it behind its open calls. */
  constructor(reports: ReadonlyMap<number, OrderReport>, hasFuture: boolean) {
    this.#reports = reports;
    this.#hasFuture = hasFuture;
    for (const [rank, { groups, comms }] of reports) {
      for (const { stream: own, calls } of groups) {
        const stream = this.#streamOf(rank, own);
        const at = stream.calls.length;
        for (const call of calls) {
          const jobCall = this.#jobCall(call, comms[call.comm]?.ranks ?? []);
          jobCall.made.set(rank, call);
          jobCall.places.set(stream, at);
          stream.calls.push(jobCall);
        }
      }
    }
  }

  get calls(): Iterable<JobCall> {
    return this.#calls.values();
  }

  /** The calls that must be done before one, on all its ranks. */
  before(call: JobCall): Before<JobCall>[] {
    return this.#streams.map((stream) => {
      const end = call.places.get(stream) ?? this.#futurePlace(call, stream);
      return { stream: stream.calls, end, behind: call };
    });
  }

  #futurePlace(call: JobCall, { rank, own, calls }: RankStream): number {
    if (!this.#hasFuture || call.made.has(rank) || !call.ranks.includes(rank)) return 0;
    const { comm, call: number, message } = call.first;
    if (message !== undefined || own !== undefined) return 0;
    const next = this.#reports.get(rank)?.comms[comm]?.next;
    return next === undefined || next > number ? 0 : calls.length;
  }

  /** The order in which each rank has made these calls, or will make them. */
  ordersOf(cycle: readonly JobCall[]): CallOrder[] {
    const orders = [...this.#reports.keys()].map((rank): CallOrder => {
      // Calls on streams of their own wait for no other communicator.
      const stream = this.#streamOf(rank, undefined);
      const placed = cycle.flatMap((call) => {
        const [mine, at] = [call.made.get(rank), call.places.get(stream)];
        return mine === undefined || at === undefined ? [] : [{ call: mine, at }];
      });
      const made = placed.sort((a, b) => a.at - b.at).map(({ call }) => plainCall(call));
      const later = cycle.flatMap((call): OrderedCall[] => {
        if (this.#futurePlace(call, stream) === 0) return [];
        const { comm, collective, call: number } = call.first;
        return [{ comm, collective, call: number, isMissing: true }];
      });
      return { rank, calls: [...made, ...later] };
    });
    return orders.filter(({ calls }) => calls.length > 1).sort((a, b) => a.rank - b.rank);
  }

  #streamOf(rank: number, own: string | undefined): RankStream {
    const known = this.#streams.find((each) => each.rank === rank && each.own === own);
    if (known !== undefined) return known;
    const stream: RankStream = { rank, own, calls: [] };
    this.#streams.push(stream);
    return stream;
  }

  #jobCall(first: ReportedCall, ranks: readonly number[]): JobCall {
    const { comm, call, message } = first;
    const key = JSON.stringify([comm, message ?? call]);
    return getOrCreate(this.#calls, key, () => {
      const of = message === undefined ? ranks : message.slice(0, 2);
      return { first, ranks: of, made: new Map(), places: new Map() };
    });
  }
}

function plainCall({ message: _, ...call }: ReportedCall): OrderedCall {
  return call;
}

/** The report of a process; `undefined` where it has left the job, has no world, or answers with something else. */
function parseReport(text: string): OrderReport | undefined {
  try {
    const report = JSON.parse(text) as Partial<OrderReport> | null;
    const { groups, comms } = report ?? {};
    const areNumbers = (all: readonly number[]): boolean => all.every(Number.isInteger);
    const isCall = ({ comm, collective, call, message = [0, 0, 0] }: ReportedCall): boolean =>
      [comm, collective].every((name) => typeof name === "string") &&
      areNumbers([call, ...message]) &&
      message.length === 3;
    const isComm = ({ ranks, next }: OrderReport["comms"][string]): boolean =>
      areNumbers([...ranks, next]);
    const isReport =
      comms !== undefined &&
      Object.values(comms).every(isComm) &&
      groups?.every(({ calls }) => calls.every(isCall));
    return isReport === true ? (report as OrderReport) : undefined;
  } catch {
    return undefined;
  }
}

/** The orders of ranks with calls of several communicators that wait for each other; `undefined` where there are none. */
function findJobInversion(
  reports: ReadonlyMap<number, OrderReport>,
  hasFuture: boolean,
): CallOrder[] | undefined {
  const calls = [...reports.values()].flatMap(({ groups }) => groups.flatMap(({ calls }) => calls));
  if (new Set(calls.map(({ comm }) => comm)).size < 2) return undefined;
  const graph = new JobCalls(reports, hasFuture);
  for (const call of graph.calls) {
    const cycle = findCycle([call], graph.before(call), (each) => graph.before(each));
    const comms = new Set(cycle?.map(({ first }) => first.comm));
    if (cycle !== undefined && comms.size > 1) return graph.ordersOf(cycle);
  }
  return undefined;
}

/** Orders are compared when nothing has changed for so long. */
const quietMs = 100;

/** A process reports an inversion for so long, also after its calls have failed: the others find it by then. */
const keptMs = 5_000;

/** An inversion whose calls may have failed by now. */
interface KeptInversion {
  readonly orders: readonly CallOrder[];
  readonly report: string;
}

/** The world of a process. */
interface OrderedWorld {
  openCalls(): Iterable<OpenCalls>;
  /** True while a call waits for other processes and keeps one of another communicator waiting. */
  isBlocked(): boolean;
  /** Ends the communicators of calls that wait for each other. */
  onInversion(orders: readonly CallOrder[]): void;
}

/** Compares the order of this process's open calls with those of the other processes. */
export class OrderWatch {
  readonly #job: JobSession;
  readonly #world: OrderedWorld;
  #isDue = false;
  /** The last inversion, with this process's report of it. */
  #kept: KeptInversion | undefined;

  constructor(job: JobSession, world: OrderedWorld) {
    this.#job = job;
    this.#world = world;
    job.peers.reportOrders((isEcho) => {
      if (!isEcho) this.noteChange(true);
      return this.#report();
    });
  }

  /** A call begins to wait, or is kept waiting; or another process compares orders, of which this is the echo. */
  noteChange(isEcho = false): void {
    if (this.#isDue) return;
    this.#isDue = true;
    setOwnTimer(() => void this.#check(isEcho), isEcho ? 0 : quietMs, false);
  }

  /**
   * The orders of calls that wait for each other when a deadline has passed; `undefined` where there are none. A call that some
   * rank has not made by then counts as made behind its open calls.
   */
  compareAtDeadline(): Promise<readonly CallOrder[] | undefined> {
    return this.#compare(false, true);
  }

  async #compare(isEcho: boolean, hasFuture: boolean): Promise<readonly CallOrder[] | undefined> {
    const reports = new Map<number, OrderReport>();
    for (const [rank, text] of await this.#job.peers.callOrders(isEcho)) {
      const report = parseReport(text);
      if (report !== undefined) reports.set(rank, report);
    }
    const orders = findJobInversion(reports, hasFuture);
    if (orders === undefined) return this.#kept?.orders;
    const kept = { orders, report: this.#report() };
    this.#kept = kept;
    const forget = (): void => {
      if (this.#kept === kept) this.#kept = undefined;
    };
    setOwnTimer(forget, keptMs, false);
    return orders;
  }

  async #check(isEcho: boolean): Promise<void> {
    this.#isDue = false;
    if (!this.#world.isBlocked()) return;
    const orders = await this.#compare(isEcho, false).catch(() => undefined);
    if (orders !== undefined && this.#world.isBlocked()) this.#world.onInversion(orders);
  }

  #report(): string {
    return this.#kept?.report ?? JSON.stringify(reportOrder(this.#world.openCalls()));
  }
}
