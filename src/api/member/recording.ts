/** Recordings as a rank holds them: replayed, disposed, and refused afterwards. */
import type { CommInfo, RecordedCalls } from "../backend.ts";
import type { Allocation, DeviceBuffer } from "../buffer.ts";
import type { CallOptions } from "../calls.ts";
import type { Graph } from "../communicator.ts";
import { CommClosedError, InvalidArgumentError } from "../errors.ts";
import type { CommOp } from "../op.ts";
import { type Collected, isWork, type Step, type Work } from "./collecting.ts";
import type { Poster } from "./poster.ts";
import type { Prepared, PreparedCall } from "./prepared.ts";
import type { Remembered } from "./repeats.ts";
import { completeTogether, refuseTogether } from "./together.ts";

/** A rank's end of a recording. */
abstract class Recording implements Graph {
  protected readonly poster: Poster;
  readonly #closings: number;
  /** The memory of the calls. */
  protected readonly allocations: readonly Allocation[];
  /** Those of them that are the caller's own host memory. */
  readonly #lent: readonly Allocation[];
  #disposed = false;

  constructor(poster: Poster, calls: readonly Collected[]) {
    this.poster = poster;
    this.allocations = [...new Set(buffersOf(calls).map(({ allocation }) => allocation))];
    this.#lent = this.allocations.filter(({ memory }) => memory.borrowed);
    this.#closings = poster.closings;
  }

  abstract replay(options?: CallOptions): CommOp<void>;

  /** Lets go of what the recording holds; called once. */
  protected abstract giveBack(): void;

  get disposed(): boolean {
    return this.#disposed || this.poster.closings !== this.#closings;
  }

  dispose(): void {
    if (this.#disposed) return;
    this.#disposed = true;
    this.giveBack();
  }

  [Symbol.dispose](): void {
    this.dispose();
  }

  /** Its buffers live, as it does itself. */
  protected get isReplayable(): boolean {
    if (this.disposed) return false;
    for (const { disposed } of this.allocations) if (disposed) return false;
    for (const { memory } of this.#lent) if (memory.detached === true) return false;
    return true;
  }

  protected assertReplayable(calls: readonly Collected[]): void {
    const { poster } = this;
    if (this.isReplayable) return;
    if (!this.disposed) throw deadBufferError(poster, calls);
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
export class NativeGraph extends Recording {
  readonly #calls: readonly Collected[];
  readonly #work: readonly Work[];
  readonly #graph: object;
  readonly #prepared: Prepared<void>;
  readonly #kept: Remembered;

  constructor(
    poster: Poster,
    steps: readonly Step[],
    calls: readonly Collected[],
    recorded: RecordedCalls,
    graph: object,
  ) {
    super(poster, calls);
    this.#calls = calls;
    this.#work = steps.filter(isWork);
    this.#graph = graph;
    this.#prepared = {
      call: { count: calls.length, recorded, graph },
      signature: [
        ["collective", "replay"],
        ["graph", graphNumbers.get(graph)],
      ],
      resultOf: () => undefined,
    };
    this.#kept = poster.repeats.keep("replay", this.#prepared, recorded.sendBytes);
  }

  replay(options?: CallOptions): CommOp<void> {
    const { poster } = this;
    assertOutside(poster);
    const isAgain = this.isReplayable && isOptions(options);
    const op = isAgain ? poster.postAgain(this.#kept, options) : this.#postNew(options);
    if (op.pending) for (const allocation of this.allocations) allocation.lastUse = op;
    // The calls know how much work comes before them: what is left is that the rank does it.
    if (op.status !== "failed") for (const work of this.#work) poster.work(work);
    return op;
  }

  /** With all checks, some of which fail. */
  #postNew(options: CallOptions | undefined): CommOp<void> {
    return this.poster.post("replay", options, () => {
      this.assertReplayable(this.#calls);
      return this.#prepared;
    });
  }

  protected giveBack(): void {
    this.poster.discard(this.#graph);
  }
}

function isOptions(options: unknown): boolean {
  return options === undefined || (typeof options === "object" && options !== null);
}

const graphNumbers = new WeakMap<object, number>();
const graphsMade = new WeakMap<CommInfo, number>();

/**
 * Numbers a recording among those of its communicator: ranks compare which one they replay. Other communicators do not
 * count, of which processes may have different ones.
 */
export function numberGraph(comm: CommInfo, graph: object): void {
  const number = (graphsMade.get(comm) ?? 0) + 1;
  graphsMade.set(comm, number);
  graphNumbers.set(graph, number);
}

/** Recorded calls of one rank, which are made again. */
export class RecordedGraph extends Recording {
  #steps: readonly Step[];
  #calls: readonly Collected[];

  constructor(poster: Poster, steps: readonly Step[], calls: readonly Collected[]) {
    super(poster, calls);
    this.#steps = steps;
    this.#calls = calls;
  }

  replay(given?: CallOptions): CommOp<void> {
    const { poster } = this;
    assertOutside(poster);
    const whole = poster.createOp<void>();
    const parts: CommOp[] = [];
    try {
      poster.assertOpen("replay");
      const options = poster.check.options(poster.check.given("replay", given));
      poster.assertWanted("replay", options);
      this.assertReplayable(this.#calls);
      const calledAtPs = poster.nowPs;
      const steps = this.#steps.map((step): Step => {
        if (isWork(step)) return step;
        return step.map((call) => {
          const op = poster.createOp().partOf(whole);
          parts.push(op);
          return { ...call, options, op, calledAtPs };
        });
      });
      completeTogether(whole, parts, undefined);
      for (const step of steps) {
        if (isWork(step)) poster.work(step);
        else poster.submit(step);
      }
    } catch (error) {
      // Those that were posted go on.
      const unposted = parts.filter(({ call }) => call < 0);
      refuseTogether(poster, whole, unposted, error);
    }
    return whole;
  }

  protected giveBack(): void {
    this.#steps = [];
    this.#calls = [];
  }
}

function buffersOf(calls: readonly Collected[]): DeviceBuffer[] {
  return calls.flatMap(({ prepared }) => {
    const parts: readonly PreparedCall[] =
      "transfers" in prepared ? prepared.transfers.map(({ call }) => call) : [prepared.call];
    return parts.flatMap(({ send, recv }) => [send, recv]).filter((buffer) => buffer !== undefined);
  });
}

function deadBufferError(poster: Poster, calls: readonly Collected[]): CommClosedError {
  const isDead = ({ allocation }: DeviceBuffer): boolean => isGone(allocation);
  const dead = calls.find((call) => buffersOf([call]).some(isDead));
  const collective = dead?.collective ?? "replay";
  const buffer = dead && buffersOf([dead]).find(isDead);
  const what = buffer?.disposed
    ? `a buffer of the recorded ${collective} was disposed`
    : `an array of the recorded ${collective} was transferred away`;
  return new CommClosedError(
    { headline: `replay: ${what}`, hint: "capture the calls again with memory that stays" },
    { ...poster.facts, collective },
  );
}

/** Given back, or moved to another owner of the caller's. */
function isGone({ disposed, memory }: Allocation): boolean {
  return disposed || memory.detached === true;
}

/** Throws inside of a callback of `group` or `capture`, its own or another communicator's. */
function assertOutside(poster: Poster): void {
  poster.assertOwn("replay");
  if (poster.collecting === undefined) return;
  throw new InvalidArgumentError(
    { headline: "replay: called inside of group or capture, needs a place outside" },
    { ...poster.facts, collective: "replay", field: "calls" },
  );
}
