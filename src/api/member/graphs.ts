/** Groups of calls, and recordings: captured, replayed, disposed, and refused afterwards. */
import type { RankCall, RecordedCalls, RecordedMessages } from "../backend.ts";
import {
  type Allocation,
  allocationOf,
  type DeviceBuffer,
  isReleased,
  LastUse,
} from "../buffer.ts";
import type { CallOptions } from "../calls.ts";
import type { Graph } from "../communicator.ts";
import { CommClosedError } from "../errors.ts";
import { graphNumber } from "../ledger/dispatch.ts";
import {
  buffersIn,
  type Prepared,
  type PreparedHalf,
  rankCall,
  type SignatureField,
} from "../ledger/posting.ts";
import type { Memory } from "../memory.ts";
import { addBehind, MemoryUses } from "../memory-uses.ts";
import { failOp, type Operation } from "../op.ts";
import { sum } from "../sums.ts";
import type { CachedCall, CollectedCall } from "./call-cache.ts";
import {
  completeTogether,
  isMessage,
  isWork,
  neverRunsError,
  refuseTogether,
  type Step,
  type VirtualWork,
} from "./call-collector.ts";
import { publishGroup } from "./observers.ts";
import type { Poster } from "./poster.ts";

/**
 * Posts the calls of a synchronous callback as one operation. What is wrong becomes its rejection; inside another
 * callback it is thrown instead, and ends that one too.
 */
export function postGroup(poster: Poster, callback: () => void, options: unknown): Operation<void> {
  poster.assertOwn("group");
  const whole = poster.createOp<void>();
  let calls: readonly CollectedCall[] = [];
  try {
    calls = poster.collect("group", callback, options).calls;
    assertNoExchange(poster, "group", calls);
    assertApart(poster, calls);
    completeTogether(whole, calls, undefined);
    if (!poster.collector)
      publishGroup(poster.facts, whole, calls.length, () => firstNumber(poster, calls));
    poster.postTogether(calls);
  } catch (error) {
    if (poster.collector === undefined) refuseTogether(poster, whole, calls, error);
    else {
      for (const { op } of calls) failOp(op, error);
      throw error;
    }
  }
  return whole;
}

/** The number of the first call of a group that is posted: collective ones come first; -1 where there is none. */
function firstNumber(poster: Poster, calls: readonly CollectedCall[]): number {
  if (calls.length === 0) return -1;
  return poster.nextNumber(calls.every(isMessage));
}

/**
 * Records the calls of a synchronous callback. All ranks record the same collective calls, and both ends of each message, as
 * many on each rank as it has.
 */
export function postCapture(
  poster: Poster,
  callback: () => void,
  options: unknown,
): Operation<Graph> {
  return poster.post("capture", undefined, (): Prepared<Graph> => {
    const { steps, calls } = poster.collect("capture", callback, options);
    endRecorded(poster, calls);
    // The number comes first: with another one the fields that follow are no longer the same ones.
    const collectives = calls.flatMap(({ prepared }) =>
      "transfers" in prepared ? [] : [prepared],
    );
    const signature: SignatureField[] = [
      ["collective", "capture"],
      ["calls", collectives.length],
    ];
    for (const [index, prepared] of collectives.entries()) {
      for (const [field, value] of prepared.signature)
        signature.push([`calls[${index}].${field}`, value]);
    }
    const recorded = recordedCalls(poster, steps, calls);
    return {
      call: { count: calls.length, recorded },
      signature,
      toResult: ({ graph }) =>
        graph === undefined
          ? new RecordedGraph(poster, steps, calls)
          : new NativeGraph(poster, steps, calls, recorded, graph),
    };
  });
}

/** Fails the operations of recorded calls, which never run. Throws where a call cannot be recorded. */
function endRecorded(poster: Poster, calls: readonly CollectedCall[]): void {
  let error: unknown = neverRunsError(poster.facts, "capture: a recorded", "graph.replay()");
  try {
    assertRecordable(poster, calls);
  } catch (refusal) {
    error = refusal;
    throw refusal;
  } finally {
    for (const { op } of calls) failOp(op, error);
  }
}

/** The calls in the form of a backend; the virtual compute before a call delays it. */
function recordedCalls(
  { facts: { rank } }: Poster,
  steps: readonly Step[],
  made: readonly CollectedCall[],
): RecordedCalls {
  const calls: RankCall[] = [];
  const messages: RecordedMessages[] = [];
  let laterPs = 0;
  for (const step of steps) {
    if (isWork(step)) {
      laterPs += Math.round(1000 * step.durationNs);
      continue;
    }
    for (const { collective, prepared } of step) {
      if (!("transfers" in prepared))
        calls.push(rankCall(collective, rank, prepared.call, laterPs));
    }
    const ends = step.flatMap(halvesOf).map(({ direction, peer, call }) => {
      return { direction, peer, call: rankCall(direction, rank, call, laterPs) };
    });
    if (ends.length > 0) messages.push({ place: calls.length, ends });
  }
  const buffers = new Map(buffersOf(made).map((buffer) => [allocationOf(buffer), buffer]));
  const sendBytes = sum(made.map(({ prepared }) => prepared.call.send?.byteLength ?? 0));
  return { calls, messages, buffers: [...buffers.values()], sendBytes };
}

/** Throws when a receive among sends and receives that match in any order would overwrite what another one uses. */
function assertApart(poster: Poster, calls: readonly CollectedCall[]): void {
  if (areAscending(calls)) return;
  const messages = calls.filter(isMessage);
  const uses = new MemoryUses();
  for (const message of messages) {
    const { send, recv } = message.prepared.call;
    if (send !== undefined) uses.add(send, message);
    if (recv !== undefined) uses.add(recv, message);
  }
  const isShared = (message: CollectedCall): boolean => {
    const { recv } = message.prepared.call;
    return recv !== undefined && uses.isShared(recv, message);
  };
  if (!messages.some(isShared)) return;
  throw poster.fault(
    { collective: "recv", field: "recv" },
    "recv: recv: it overlaps memory of another send or receive of the group, needs memory of its own",
  );
}

/** True where every buffer begins behind those before it in its memory: no two overlap, and no index is needed. */
function areAscending(calls: readonly CollectedCall[]): boolean {
  const ends = new Map<Memory, number>();
  for (const { prepared } of calls) {
    if (!("transfers" in prepared)) continue;
    const { send, recv } = prepared.call;
    if (send !== undefined && !addBehind(ends, send)) return false;
    if (recv !== undefined && !addBehind(ends, recv)) return false;
  }
  return true;
}

/** The sends and receives of a call. */
function halvesOf({ prepared }: CollectedCall): readonly PreparedHalf[] {
  return "transfers" in prepared ? prepared.transfers : [];
}

/** Calls that need an answer from the host in between have no place among grouped or recorded ones. */
function assertNoExchange(poster: Poster, action: string, calls: readonly CollectedCall[]): void {
  for (const { collective, prepared } of calls) {
    const exchanges = collective === "allToAllv" && prepared.call.blocks?.recvCounts === undefined;
    if (!exchanges && collective !== "split" && collective !== "capture") continue;
    throw poster.fault(
      { collective, field: exchanges ? "recvCounts" : "calls" },
      `${action}: ${collective}${exchanges ? " without recvCounts" : ""} needs an answer in between`,
      exchanges ? "pass recvCounts and recv" : "call it outside",
    );
  }
}

/** A recorded call does not run: its replays have deadlines and signals of their own, and no memory is allocated for its result. */
function assertRecordable(poster: Poster, calls: readonly CollectedCall[]): void {
  assertNoExchange(poster, "capture", calls);
  for (const { collective, prepared, options } of calls) {
    const fault = (field: string, why: string, hint: string): Error =>
      poster.fault({ collective, field }, `capture: ${collective}: ${field}: ${why}`, hint);
    const [option] = Object.keys(options ?? {});
    if (option !== undefined) {
      const hint = `pass it to every replay: graph.replay({ ${option} })`;
      throw fault(option, "a recorded call does not run, needs none", hint);
    }
    if (collective === "allToAllv" && prepared.call.recv === undefined)
      throw fault("recv", "it was left out, needs a buffer", "pass recvCounts and recv");
  }
}

// Recordings.

/** A rank's end of a recording. */
abstract class Recording implements Graph {
  protected readonly poster: Poster;
  #calls: readonly CollectedCall[];
  readonly #closings: number;
  /** The memory of the calls. */
  protected readonly allocations: readonly Allocation[];
  #disposed = false;

  constructor(poster: Poster, calls: readonly CollectedCall[]) {
    this.poster = poster;
    this.#calls = calls;
    this.allocations = [...new Set(buffersOf(calls).map(allocationOf))];
    this.#closings = poster.closings;
  }

  abstract replay(options?: CallOptions): Operation<void>;

  /** Lets go of what the recording holds; called once. */
  protected abstract giveBack(): void;

  get disposed(): boolean {
    return this.#disposed || this.poster.closings !== this.#closings;
  }

  dispose(): void {
    if (this.#disposed) return;
    this.#disposed = true;
    this.#calls = [];
    this.giveBack();
  }

  [Symbol.dispose](): void {
    this.dispose();
  }

  /** Its buffers live, as it does itself. */
  protected get isReplayable(): boolean {
    return !this.disposed && !this.allocations.some(isReleased);
  }

  protected assertReplayable(): void {
    const { poster } = this;
    if (this.isReplayable) return;
    if (!this.disposed) throw releasedBufferError(poster, this.#calls);
    throw new CommClosedError(
      {
        headline: "replay: the recording was disposed, needs a live one",
        hint: "dispose it after its last replay, or capture the calls again",
      },
      { ...poster.facts, collective: "replay" },
    );
  }
}

/** A recording that the backend runs as one call. */
class NativeGraph extends Recording {
  readonly #work: readonly VirtualWork[];
  readonly #graph: object;
  readonly #cached: CachedCall;

  constructor(
    poster: Poster,
    steps: readonly Step[],
    calls: readonly CollectedCall[],
    recorded: RecordedCalls,
    graph: object,
  ) {
    super(poster, calls);
    this.#work = steps.filter(isWork);
    this.#graph = graph;
    this.#cached = poster.cache.create("replay", {
      call: { count: calls.length, recorded, graph },
      signature: [
        ["collective", "replay"],
        ["graph", graphNumber(graph)],
      ],
      result: undefined,
    });
  }

  replay(options?: CallOptions): Operation<void> {
    const { poster } = this;
    poster.assertOwn("replay");
    poster.assertOutside("replay");
    const kept = this.isReplayable && isOptions(options) ? this.#cached : undefined;
    const op = poster.post("replay", options, this.#prepare, kept);
    if (op.pending) {
      const lastUse = new LastUse(op);
      for (const allocation of this.allocations) allocation.lastUse = lastUse;
    }
    // The recorded calls have their delays; the work advances the clock of the rank itself.
    if (op.status !== "failed") for (const work of this.#work) poster.work(work);
    return op;
  }

  readonly #prepare = (): Prepared<void> => {
    this.assertReplayable();
    return this.#cached.prepared as Prepared<void>;
  };

  protected giveBack(): void {
    this.poster.discard(this.#graph);
  }
}

function isOptions(options: unknown): boolean {
  return options === undefined || (typeof options === "object" && options !== null);
}

/** A recording that is replayed call by call. */
class RecordedGraph extends Recording {
  #steps: readonly Step[];

  constructor(poster: Poster, steps: readonly Step[], calls: readonly CollectedCall[]) {
    super(poster, calls);
    // They are made again by this recording alone, whatever else their buffers are used for.
    const keep = (call: CollectedCall): CollectedCall => ({
      ...call,
      cached: poster.cache.create(call.collective, call.prepared),
    });
    this.#steps = steps.map((step) => (isWork(step) ? step : step.map(keep)));
  }

  replay(given?: CallOptions): Operation<void> {
    const { poster } = this;
    poster.assertOwn("replay");
    poster.assertOutside("replay");
    const whole = poster.createOp<void>();
    const parts: CollectedCall[] = [];
    try {
      poster.assertOpen("replay");
      const options = poster.check.options(poster.check.given("replay", given));
      poster.assertNotCancelled("replay", options);
      this.assertReplayable();
      const calledAtPs = poster.nowPs;
      const steps = this.#steps.map((step): Step => {
        if (isWork(step)) return step;
        return step.map((call) => {
          const part = { ...call, options, op: poster.createOp(), calledAtPs };
          parts.push(part);
          return part;
        });
      });
      completeTogether(whole, parts, undefined);
      for (const part of parts) poster.announce(part);
      for (const step of steps) {
        if (isWork(step)) poster.work(step);
        else poster.postCollected(step, true);
      }
    } catch (error) {
      // Those that were posted go on.
      const unposted = parts.filter(({ op }) => op.call < 0);
      refuseTogether(poster, whole, unposted, error);
    }
    return whole;
  }

  protected giveBack(): void {
    this.#steps = [];
  }
}

function buffersOf(calls: readonly CollectedCall[]): DeviceBuffer[] {
  return calls.flatMap(({ prepared }) => buffersIn(prepared));
}

function releasedBufferError(poster: Poster, calls: readonly CollectedCall[]): CommClosedError {
  const isGone = (buffer: DeviceBuffer): boolean => isReleased(allocationOf(buffer));
  const call = calls.find((each) => buffersOf([each]).some(isGone));
  const collective = call?.collective ?? "replay";
  const buffer = call && buffersOf([call]).find(isGone);
  const what = buffer?.disposed
    ? `a buffer of the recorded ${collective} was disposed`
    : `an array of the recorded ${collective} was transferred away`;
  return new CommClosedError(
    { headline: `replay: ${what}`, hint: "capture the calls again with memory that stays" },
    { ...poster.facts, collective },
  );
}
