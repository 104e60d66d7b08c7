/** Groups of calls, and recorded ones: `group`, `capture` and `replay`. */
import type { RankCall } from "../backend.ts";
import type { DeviceBuffer } from "../buffer.ts";
import type { CallOptions } from "../calls.ts";
import type { Graph } from "../communicator.ts";
import { CommClosedError, InvalidArgumentError } from "../errors.ts";
import type { SignatureField } from "../ledger/posting.ts";
import type { CommOp } from "../op.ts";
import { type Collected, isWork, type Step } from "./collecting.ts";
import type { Poster } from "./poster.ts";
import { type Prepared, type PreparedCall, rankCall } from "./prepared.ts";
import { completeTogether } from "./together.ts";

/**
 * Posts the calls of a synchronous callback as one operation. What is wrong becomes its rejection; inside another
 * callback it is thrown instead, and ends that one too.
 */
export function postGroup(poster: Poster, callback: () => void): CommOp<void> {
  const whole = poster.createOp<void>();
  let calls: readonly Collected[] = [];
  try {
    calls = poster.collect("group", callback).calls;
    assertNoExchange(poster, "group", calls);
    poster.assertApart(calls);
    completeTogether(
      whole,
      calls.map(({ op }) => op.partOf(whole)),
      undefined,
    );
    if (!poster.collecting) poster.tellGroup(whole, calls.length);
    poster.postTogether(calls);
  } catch (error) {
    for (const { op } of calls) op.fail(error);
    if (poster.collecting) throw error;
    poster.refuse(whole, error);
  }
  return whole;
}

/** Records the calls of a synchronous callback; all ranks record the same ones. */
export function postCapture(poster: Poster, callback: () => void): CommOp<Graph> {
  return poster.post("capture", undefined, (): Prepared<Graph> => {
    const { steps, calls } = poster.collect("capture", callback);
    assertNoExchange(poster, "capture", calls);
    for (const { op } of calls) op.fail(recordedError(poster));
    // The number comes first: with another one the fields that follow are no longer the same ones.
    const signature: SignatureField[] = [
      ["collective", "capture"],
      ["calls", calls.length],
    ];
    calls.forEach(({ prepared }, index) => {
      if ("transfers" in prepared) return;
      for (const [field, value] of prepared.signature)
        signature.push([`calls[${index}].${field}`, value]);
    });
    return {
      call: { count: calls.length, recorded: recordedCalls(poster, calls) },
      signature,
      resultOf: ({ graph }) =>
        graph === undefined
          ? new RecordedGraph(poster, steps, calls)
          : new NativeGraph(poster, calls, graph),
    };
  });
}

/** Collective calls as a backend sees them; `undefined` when messages are among them. */
function recordedCalls(poster: Poster, calls: readonly Collected[]): RankCall[] | undefined {
  const recorded: RankCall[] = [];
  for (const { collective, prepared } of calls) {
    if ("transfers" in prepared) return undefined;
    recorded.push(rankCall(collective, poster.facts.rank, prepared.call, 0));
  }
  return recorded;
}

/** A recording that the backend runs as one call. */
class NativeGraph implements Graph {
  readonly #poster: Poster;
  readonly #calls: readonly Collected[];
  readonly #prepared: Prepared<void>;

  constructor(poster: Poster, calls: readonly Collected[], graph: object) {
    this.#poster = poster;
    this.#calls = calls;
    this.#prepared = {
      call: { count: calls.length, graph },
      signature: [
        ["collective", "replay"],
        ["graph", graphNumber(graph)],
      ],
      resultOf: () => undefined,
    };
  }

  replay(options?: CallOptions): CommOp<void> {
    const poster = this.#poster;
    if (poster.collecting) throw insideError(poster);
    const op = poster.post("replay", options, () => {
      assertLive(poster, this.#calls);
      return this.#prepared;
    });
    if (op.pending) {
      for (const buffer of buffersOf(this.#calls)) buffer.allocation.lastUse = op;
    }
    return op;
  }
}

const graphNumbers = new WeakMap<object, number>();
let graphsMade = 0;

/** Ranks of one process compare which recording they replay. */
function graphNumber(graph: object): number {
  let number = graphNumbers.get(graph);
  if (number === undefined) {
    number = ++graphsMade;
    graphNumbers.set(graph, number);
  }
  return number;
}

/** Recorded calls of one rank. */
class RecordedGraph implements Graph {
  readonly #poster: Poster;
  readonly #steps: readonly Step[];
  readonly #calls: readonly Collected[];

  constructor(poster: Poster, steps: readonly Step[], calls: readonly Collected[]) {
    this.#poster = poster;
    this.#steps = steps;
    this.#calls = calls;
  }

  replay(options?: CallOptions): CommOp<void> {
    const poster = this.#poster;
    if (poster.collecting) throw insideError(poster);
    const whole = poster.createOp<void>();
    try {
      poster.assertOpen("replay");
      poster.assertOptions("capture", options);
      assertLive(poster, this.#calls);
      const calledAtPs = poster.nowPs;
      const parts: CommOp[] = [];
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
      poster.refuse(whole, error);
    }
    return whole;
  }
}

/** Calls that need an answer from the host in between have no place among grouped or recorded ones. */
function assertNoExchange(poster: Poster, action: string, calls: readonly Collected[]): void {
  for (const { collective, prepared } of calls) {
    const exchanges =
      collective === "allToAllv" &&
      "call" in prepared &&
      prepared.call.blocks?.recvCounts === undefined;
    if (!exchanges && collective !== "split" && collective !== "capture") continue;
    throw new InvalidArgumentError(
      {
        headline: `${action}: ${collective}${exchanges ? " without recvCounts" : ""} needs an answer in between`,
        hint: exchanges ? "pass recvCounts and recv" : "call it outside",
      },
      { ...poster.facts, collective, field: exchanges ? "recvCounts" : "calls" },
    );
  }
}

function buffersOf(calls: readonly Collected[]): DeviceBuffer[] {
  return calls.flatMap(({ prepared }) => {
    const parts: readonly PreparedCall[] =
      "transfers" in prepared ? prepared.transfers.map(({ call }) => call) : [prepared.call];
    return parts.flatMap(({ send, recv }) => [send, recv]).filter((buffer) => buffer !== undefined);
  });
}

function assertLive(poster: Poster, calls: readonly Collected[]): void {
  for (const call of calls) {
    if (!buffersOf([call]).some(({ disposed }) => disposed)) continue;
    const { collective } = call;
    throw new CommClosedError(
      { headline: `replay: a buffer of the recorded ${collective} was disposed` },
      { ...poster.facts, collective },
    );
  }
}

function insideError(poster: Poster): InvalidArgumentError {
  return new InvalidArgumentError(
    { headline: "replay: called inside of group or capture, needs a place outside" },
    poster.facts,
  );
}

function recordedError(poster: Poster): InvalidArgumentError {
  return new InvalidArgumentError(
    {
      headline: "capture: a recorded call does not run, so it cannot be awaited",
      hint: "await graph.replay()",
    },
    poster.facts,
  );
}
