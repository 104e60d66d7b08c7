/** Groups of calls, and recorded ones: `group` and `capture`. */
import type { RankCall } from "../backend.ts";
import type { Graph } from "../communicator.ts";
import { InvalidArgumentError } from "../errors.ts";
import type { SignatureField } from "../ledger/posting.ts";
import type { CommOp } from "../op.ts";
import type { Collected } from "./collecting.ts";
import type { Poster } from "./poster.ts";
import { type Prepared, rankCall } from "./prepared.ts";
import { NativeGraph, RecordedGraph } from "./recording.ts";
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

function recordedError(poster: Poster): InvalidArgumentError {
  return new InvalidArgumentError(
    {
      headline: "capture: a recorded call does not run, so it cannot be awaited",
      hint: "await graph.replay()",
    },
    poster.facts,
  );
}
