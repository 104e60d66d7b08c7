/** Groups of calls, and recorded ones: `group`, `capture` and `replay`. */
import type { CallOptions } from "../calls.ts";
import type { Graph } from "../communicator.ts";
import { CommClosedError, InvalidArgumentError } from "../errors.ts";
import type { SignatureField } from "../ledger/posting.ts";
import type { CommOp } from "../op.ts";
import { type Collected, isWork, type Step } from "./collecting.ts";
import { completeTogether, type Poster } from "./poster.ts";
import type { Prepared, PreparedCall } from "./prepared.ts";

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
      call: { count: calls.length },
      signature,
      resultOf: () => new RecordedGraph(poster, steps, calls),
    };
  });
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

function assertLive(poster: Poster, calls: readonly Collected[]): void {
  for (const { collective, prepared } of calls) {
    const parts: readonly PreparedCall[] =
      "transfers" in prepared ? prepared.transfers.map(({ call }) => call) : [prepared.call];
    const gone = parts.some(({ send, recv }) => send?.disposed === true || recv?.disposed === true);
    if (!gone) continue;
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
