/** An open simulated world: plans each complete call, predicts its time, and passes its data to an executor. */

import { AddressSpace, HostDevice } from "../../algorithms/host-memory.ts";
import {
  type Layout,
  type Link,
  linkModel,
  linkOf,
  type MessageTime,
  type MessageUse,
  type Plan,
  type Planner,
  type PlanQuestion,
  planOf,
} from "../../algorithms/index.ts";
import {
  type BlockCounts,
  explainCall,
  namesOf,
  planQuestion,
  symmetricRefusal,
} from "../../algorithms/plans/index.ts";
import type {
  CallObserver,
  CallSet,
  CommInfo,
  Exchange,
  Memory,
  RankCall,
  RankDevice,
  Session,
  SessionInfo,
  Transfer,
  Work,
} from "../../api/backend-entry.ts";
import { bytesOf, type CollectiveName, type Explanation, type Question } from "../../api/index.ts";
import { bind, bindTransfers, shapeOf, splitIntoReduces } from "./bind.ts";
import { type CallTimes, LinkTimes, MachineTimes, StreamTimes } from "./call-times.ts";
import type { BoundCall, Executor, SimMemory } from "./executor.ts";
import type { FaultPlan } from "./faults.ts";
import { Recording } from "./recording.ts";
import { type ScheduleName, SimClock, SimScheduler } from "./scheduler.ts";
import { StrictLending } from "./strict.ts";
import type { WorldTrace } from "./trace/trace.ts";
import { linkMessage, predictTransfers } from "./transfer-times.ts";

/** The options of `sim()`, checked. */
export interface SimSettings {
  readonly seed: number;
  readonly schedule: ScheduleName;
  /** Left out, times are those of the planner's machine, where it was measured. */
  readonly link: Link | undefined;
  readonly executor: Executor;
  readonly planner: Planner;
  readonly strict: boolean;
  /** True when buffers have sizes and no contents, and no data is moved. */
  readonly phantom: boolean;
}

/** A call with its plan, its memory and its times: the part of the work that depends on the arguments alone, cached for repeats. */
interface PlannedCall {
  /** The collective of its messages: a reduce-scatter may be several reduces. */
  readonly collective: CollectiveName;
  readonly plans: readonly Plan[];
  /** The name of the plan. */
  readonly algorithm: string;
  /** A rank begins the call of each plan when it finishes the one before. */
  readonly times: readonly CallTimes[];
  /** Nothing for a barrier. */
  readonly bound: readonly BoundCall[];
}

/** The ranks of one simulated world. */
export class SimSession implements Session {
  readonly info: SessionInfo;
  readonly scheduler: SimScheduler;
  readonly observer: CallObserver | undefined;
  readonly #lending: StrictLending | undefined;
  readonly #settings: SimSettings;
  readonly #devices: readonly RankDevice[];
  /** Times of calls by the layout of their plan and bytes per element. */
  readonly #times = new WeakMap<Layout, Map<number, CallTimes>>();
  /** The link of calls and messages whose time no measured machine gives. */
  readonly #link: Link;
  readonly #streams = new StreamTimes();
  /** The number of each rank in the first generation of the world. */
  readonly initialRanks: readonly number[];
  /** The injected faults; a rebuilt world continues with them. */
  readonly faults: FaultPlan;
  /** The world's part of the trace; a rebuilt world's part follows it. */
  readonly trace: WorldTrace | undefined;
  #closed = false;

  constructor(
    settings: SimSettings,
    initialRanks: readonly number[],
    faults: FaultPlan,
    trace: WorldTrace | undefined,
  ) {
    const { seed, phantom, executor, strict } = settings;
    const size = initialRanks.length;
    this.#settings = settings;
    this.#link = settings.link ?? linkOf();
    this.initialRanks = initialRanks;
    this.trace = trace;
    this.faults = faults;
    this.info = {
      backend: "sim",
      size,
      localRanks: Array.from({ length: size }, (_, rank) => rank),
      capabilities: {
        hostArrays: !phantom,
        virtualTime: true,
        deterministic: true,
        symmetricMemory: true,
        ownStreams: true,
        ...(phantom ? { phantom } : {}),
      },
      isStrict: strict,
      timeoutMs: undefined,
    };
    const addresses = new AddressSpace();
    this.#devices = this.info.localRanks.map(
      (rank) => new SimDevice(rank, addresses, executor, phantom),
    );
    const clock = new SimClock(size, this.#streams, trace);
    this.scheduler = new SimScheduler(size, seed, settings.schedule, clock);
    this.#lending = strict ? new StrictLending() : undefined;
    this.observer =
      !faults.isEmpty || strict || trace !== undefined ? this.#newObserver() : undefined;
  }

  /** Injects faults, checks lent buffers, and traces failures. */
  #newObserver(): CallObserver {
    const lending = this.#lending;
    return {
      posting: (worldRank, call) =>
        this.faults.strike(this.initialRanks[worldRank] as number, worldRank, call),
      posted: (comm, call) => lending?.acquire(comm, call),
      findWrite: (calls) => lending?.findWrite(calls),
      settled: (call) => lending?.release(call),
      failed: (comm, failed) => {
        const { rank, postedAtPs, finishedAtPs } = failed.call;
        const isServed = finishedAtPs > postedAtPs;
        this.trace?.failed(comm, failed, isServed ? postedAtPs : this.#streams.freePs(comm, rank));
      },
    };
  }

  device(rank: number): RankDevice {
    return this.#devices[rank] as RankDevice;
  }

  refusal(question: Question, comm: CommInfo): string | undefined {
    return symmetricRefusal(this.#settings.planner, question, comm);
  }

  explain(question: Question, comm: CommInfo, rank: number): Explanation {
    return explainCall(this.#settings.planner, this.#settings.link, question, comm, rank);
  }

  estimate(question: Question, comm: CommInfo): number {
    return this.explain(question, comm, 0).predictedNs;
  }

  execute(work: Work): void | Promise<void> {
    if ("transfers" in work) return this.#exchange(work);
    return work.collective === "replay" ? this.#replay(work) : this.#serve(work);
  }

  split(): void {
    // A communicator is its ranks: nothing is made for it.
  }

  capture(_comm: CommInfo, recorded: readonly CallSet[]): Recording {
    return new Recording(recorded);
  }

  discard(): void {
    // A recording is memory of the program.
  }

  abort(): void {
    // Work is done when it was submitted.
  }

  release(): void {
    // Nothing is kept of a communicator.
  }

  /** Executes the calls of a recording one after another, as if every rank had made them together. */
  #replay(replay: CallSet): void | Promise<void> {
    const { comm, calls } = replay;
    const recording = (calls[0] as RankCall).graph as Recording;
    this.#streams.begin(comm, calls);
    const watched = this.trace !== undefined || this.#lending !== undefined;
    if (watched || !recording.predictEnds(calls)) return this.#replayEach(recording, replay);
    this.#streams.end(comm, calls);
    return executeAll(this.#settings.executor, recording.bound);
  }

  #replayEach(recording: Recording, { calls, number }: CallSet): void | Promise<void> {
    const beganPs = calls.map(({ finishedAtPs }) => finishedAtPs);
    const serve = (set: CallSet): void | Promise<void> => {
      for (const call of set.calls) {
        call.finishedAtPs = (calls[call.rank] as RankCall).postedAtPs + call.postedAtPs;
      }
      const done = this.#serve(this.trace === undefined ? set : { ...set, number }, calls);
      for (const { rank, finishedAtPs } of set.calls) {
        (calls[rank] as RankCall).finishedAtPs = finishedAtPs;
      }
      return done;
    };
    return startAll(recording.sets, serve, () => {
      recording.recordEnds(calls, beganPs);
      recording.bound = recording.sets.flatMap((set) => this.#planned(set).bound);
    });
  }

  /** `posted` are the calls as the ranks made them: the replay in place of its calls. */
  #serve(set: CallSet, posted = set.calls): void | Promise<void> {
    const { comm, calls } = set;
    const ready = this.#planned(set);
    try {
      return this.#move(comm, calls, ready.bound);
    } finally {
      // Comes behind the submission: an executor on another thread or device works meanwhile.
      this.#streams.begin(comm, calls);
      if (this.trace === undefined) for (const each of ready.times) each.predict(calls);
      else this.#predictTraced(this.trace, set, ready, posted);
      this.#streams.end(comm, calls);
    }
  }

  /** Sets the time at which each rank is done, and records the call. */
  #predictTraced(
    trace: WorldTrace,
    set: CallSet,
    { collective, plans, algorithm, times }: PlannedCall,
    posted: readonly RankCall[],
  ): void {
    const started = set.calls.map(({ finishedAtPs }) => finishedAtPs);
    for (const each of times) {
      if (!trace.hasMessages) each.predict(set.calls);
      else each.predictMessages(set.calls, (event) => trace.message(set, collective, event));
    }
    const unclaimed = plans.some((plan) => plan.unclaimed) || scalarsDiffer(set);
    trace.call(set, started, algorithm, { unclaimed, posted, on: times[0]?.machine });
  }

  /** The prepared work of a call, cached for repeated calls. */
  #planned(set: CallSet): PlannedCall {
    const planned = (set.cache?.planned as PlannedCall | undefined) ?? this.#prepare(set);
    if (set.cache !== undefined) set.cache.planned = planned;
    return planned;
  }

  #prepare(set: CallSet): PlannedCall {
    const { planner, phantom } = this.#settings;
    const question = planQuestion(set.calls[0] as RankCall, set.comm);
    if (planner.reducesEachRoot(question)) return this.#prepareReduces(set);
    const plan = planOf(planner, question);
    const layout = plan.layout(shapeOf(set));
    return {
      collective: set.collective,
      plans: [plan],
      algorithm: plan.name,
      times: [this.#timesOf(plan, layout, question, set)],
      bound: phantom ? [] : bind(set, plan, layout),
    };
  }

  #prepareReduces(set: CallSet): PlannedCall {
    const parts = splitIntoReduces(set).map((part) => this.#prepare(part));
    const plans = parts.flatMap((part) => part.plans);
    return {
      collective: "reduce",
      plans,
      algorithm: namesOf(plans),
      times: parts.flatMap(({ times }) => times),
      bound: parts.flatMap(({ bound }) => bound),
    };
  }

  /** The times of a plan's calls: the same object for calls with other buffers. */
  #timesOf(plan: Plan, layout: Layout, question: PlanQuestion, set: CallSet): CallTimes {
    const { link, planner } = this.#settings;
    const bytes = question.dtype === undefined ? 0 : bytesOf(question.dtype);
    const known = this.#times.get(layout) ?? new Map<number, CallTimes>();
    this.#times.set(layout, known);
    // Times in symmetric memory depend on the places of the buffers.
    const isShared = link !== undefined || question.place === undefined;
    const earlier = isShared ? known.get(bytes) : undefined;
    if (earlier !== undefined) return earlier;
    const onLinks = (): LinkTimes =>
      new LinkTimes(plan.program, layout, linkModel(this.#link, bytes));
    const time = link === undefined ? planner.time(question, countsOf(set)) : undefined;
    const times = time === undefined ? onLinks() : new MachineTimes(time, onLinks);
    if (isShared) known.set(bytes, times);
    return times;
  }

  #exchange({ comm, transfers }: Exchange): void | Promise<void> {
    const { trace } = this;
    // Most messages are like the one before.
    let last: TimedMessage | undefined;
    const timeOf = (transfer: Transfer, use: MessageUse): MessageTime => {
      if (last === undefined || !takesAsLong(transfer, use, last)) {
        last = { transfer, use, time: this.#messageOf(comm, transfer, use) };
      }
      return last.time;
    };
    predictTransfers(
      transfers,
      comm.ranks.length,
      timeOf,
      (rank, batch) => this.#streams.join(comm, rank, batch),
      trace && ((transfer, times, began) => trace.transfer(comm, transfer, times, began)),
    );
    const bound = this.#settings.phantom ? [] : [bindTransfers(transfers)];
    const isLent = this.#lending !== undefined;
    const calls = isLent ? transfers.flatMap(({ send, recv }) => [send, recv]) : [];
    return this.#move(comm, calls, bound);
  }

  /** The time of a message by its use among others on the planner's machine, else on the link. */
  #messageOf({ ranks }: CommInfo, { send }: Transfer, use: MessageUse): MessageTime {
    const { link, planner } = this.#settings;
    const width = send.dtype === undefined ? 0 : bytesOf(send.dtype);
    const time =
      link === undefined ? planner.message(send.count * width, ranks.length, use) : undefined;
    return time ?? linkMessage(linkModel(this.#link, width), send.count);
  }

  close(): void | Promise<void> {
    if (this.#closed) return;
    this.#closed = true;
    return this.#settings.executor.close?.();
  }

  /** Executes the data movement of these calls, one bound call after another. */
  #move(
    comm: CommInfo,
    calls: readonly RankCall[],
    bound: readonly BoundCall[],
  ): void | Promise<void> {
    const { executor } = this.#settings;
    if (this.#lending === undefined) return executeAll(executor, bound);
    return this.#lending.written(comm, calls, () => executeAll(executor, bound));
  }
}

interface TimedMessage {
  readonly transfer: Transfer;
  readonly use: MessageUse;
  readonly time: MessageTime;
}

/** Messages of one length and use take the same time. */
function takesAsLong({ send }: Transfer, use: MessageUse, known: TimedMessage): boolean {
  const { count, dtype } = known.transfer.send;
  if (send.count !== count || send.dtype !== dtype) return false;
  return use.kind === known.use.kind && use.isCrossing === known.use.isCrossing;
}

function executeAll(executor: Executor, bound: readonly BoundCall[]): void | Promise<void> {
  if (bound.length > 1 && executor.executeTogether !== undefined) {
    return executor.executeTogether(bound);
  }
  if (bound.length === 1) return executor.execute(bound[0] as BoundCall);
  return startAll(bound, (call) => executor.execute(call));
}

/** Starts all items in their order, none of which waits for the one before, then calls `started`. One that throws starts no further. */
function startAll<T>(
  items: readonly T[],
  start: (item: T) => void | Promise<void>,
  started?: () => void,
): void | Promise<void> {
  const underWay: Promise<void>[] = [];
  try {
    for (const item of items) {
      const done = start(item);
      if (done instanceof Promise) underWay.push(done);
    }
    started?.();
  } catch (error) {
    if (underWay.length === 0) throw error;
    return Promise.allSettled(underWay).then(() => Promise.reject(error));
  }
  if (underWay.length > 0) return Promise.all(underWay).then(() => undefined);
}

/** Blocks of different lengths: those of every rank for an all-to-allv, else of one rank that has all. */
function countsOf({ collective, calls }: CallSet): BlockCounts | undefined {
  if (collective === "allToAllv") {
    return calls.map(({ sendCounts, count }) => sendCounts ?? calls.map(() => count));
  }
  for (const { sendCounts, recvCounts } of calls) {
    const counts = sendCounts ?? recvCounts;
    if (counts !== undefined) return [counts];
  }
  return undefined;
}

/** Ranks multiply by scalars of their own, which no recorded result of NCCL covers. */
function scalarsDiffer({ calls }: CallSet): boolean {
  const scalars = calls.flatMap(({ op }) => (typeof op === "object" ? [op.preMul] : []));
  return scalars.some((scalar) => !Object.is(scalar, scalars[0]));
}

/** The device of one simulated rank: its memory is the executor's, or the host's where the executor has none. */
class SimDevice extends HostDevice {
  readonly #executor: Executor;
  readonly #phantom: boolean;

  constructor(rank: number, addresses: AddressSpace, executor: Executor, phantom: boolean) {
    super("sim", rank, addresses);
    this.#executor = executor;
    this.#phantom = phantom;
  }

  protected override create(ptr: bigint, byteLength: number): Memory {
    const { name } = this;
    if (this.#phantom) return phantomMemory(name, ptr, byteLength);
    return this.#executor.allocate?.(name, ptr, byteLength) ?? super.create(ptr, byteLength);
  }

  /** Memory of the executor; `undefined` where the executor has none. */
  override adopt(ptr: bigint, byteLength: number): Memory | undefined {
    return this.#executor.adopt?.(this.name, ptr, byteLength);
  }
}

/** Memory without contents. Its buffers refuse to write and to read, and drop the value of a fill. */
function phantomMemory(device: string, ptr: bigint, byteLength: number): SimMemory {
  const unused = { write: nothing, read: nothing, fill: nothing, fingerprint: () => 0 };
  return { device, ptr, byteLength, phantom: true, borrowed: false, ...unused, free: nothing };
}

function nothing(): void {}
