/** Groups of calls, and recorded ones: `group` and `capture`. */
import type { RankCall, RecordedCalls } from "../backend.ts";
import type { Allocation, DeviceBuffer } from "../buffer.ts";
import type { Graph } from "../communicator.ts";
import { InvalidArgumentError } from "../errors.ts";
import type { SignatureField } from "../ledger/calls/posting.ts";
import { type MemoryUse, MemoryUses } from "../memory-uses.ts";
import { type CommOp, failOp } from "../op.ts";
import { type Collected, isWork, type Step, workPs } from "./collecting.ts";
import type { Poster } from "./poster.ts";
import { type Prepared, rankCall } from "./prepared.ts";
import { NativeGraph, RecordedGraph } from "./recording.ts";
import { tellGroup } from "./telling.ts";
import { completeTogether, refuseTogether } from "./together.ts";

/**
 * Posts the calls of a synchronous callback as one operation. What is wrong becomes its rejection; inside another
 * callback it is thrown instead, and ends that one too.
 */
export function postGroup(poster: Poster, callback: () => void): CommOp<void> {
  poster.assertOwn("group");
  const whole = poster.createOp<void>();
  let calls: readonly Collected[] = [];
  try {
    calls = poster.collect("group", callback).calls;
    assertNoExchange(poster, "group", calls);
    assertApart(poster, calls);
    completeTogether(
      whole,
      calls.map(({ op }) => op.partOf(whole)),
      undefined,
    );
    if (!poster.collecting)
      tellGroup(poster.facts, whole, calls.length, () => firstNumber(poster, calls));
    poster.postTogether(calls);
  } catch (error) {
    const parts = calls.map(({ op }) => op);
    if (poster.collecting === undefined) refuseTogether(poster, whole, parts, error);
    else {
      for (const part of parts) failOp(part, error);
      throw error;
    }
  }
  return whole;
}

/** The number of the first call of a group that is posted: collective ones come first; -1 where there is none. */
function firstNumber(poster: Poster, calls: readonly Collected[]): number {
  if (calls.length === 0) return -1;
  return poster.nextNumber(calls.every(isMessage) ? 0 : undefined);
}

function isMessage({ prepared }: Collected): boolean {
  return "transfers" in prepared;
}

/**
 * Records the calls of a synchronous callback. All ranks record the same collective calls; messages pair up when they are
 * replayed, as many on each rank as it has.
 */
export function postCapture(poster: Poster, callback: () => void): CommOp<Graph> {
  return poster.post("capture", undefined, (): Prepared<Graph> => {
    const { steps, calls } = poster.collect("capture", callback);
    endRecorded(poster, calls);
    // The number comes first: with another one the fields that follow are no longer the same ones.
    const collectives = calls.flatMap(({ prepared }) =>
      "transfers" in prepared ? [] : [prepared],
    );
    const signature: SignatureField[] = [
      ["collective", "capture"],
      ["calls", collectives.length],
      // With them every rank replays call by call, without them all ranks may replay one graph.
      ["messages", collectives.length < calls.length ? "some" : "none"],
    ];
    for (const [index, prepared] of collectives.entries()) {
      for (const [field, value] of prepared.signature)
        signature.push([`calls[${index}].${field}`, value]);
    }
    const recorded = recordedCalls(poster, steps);
    return {
      call: { count: calls.length, recorded },
      signature,
      resultOf: ({ graph }) =>
        graph === undefined || recorded === undefined
          ? new RecordedGraph(poster, steps, calls)
          : new NativeGraph(poster, steps, calls, recorded, graph),
    };
  });
}

/** Recorded calls do not run: theirs are the replays. Throws where one cannot be recorded, with which all of them fail. */
function endRecorded(poster: Poster, calls: readonly Collected[]): void {
  let error: unknown = recordedError(poster);
  try {
    assertNoExchange(poster, "capture", calls);
    assertNoOptions(poster, calls);
    assertReceives(poster, calls);
  } catch (refusal) {
    error = refusal;
    throw refusal;
  } finally {
    for (const { op } of calls) failOp(op, error);
  }
}

/** Collective calls as a backend sees them, later by the work before them; `undefined` when messages are among them. */
function recordedCalls(poster: Poster, steps: readonly Step[]): RecordedCalls | undefined {
  const calls: RankCall[] = [];
  let laterPs = 0;
  for (const step of steps) {
    if (isWork(step)) {
      laterPs += workPs(step);
      continue;
    }
    for (const { collective, prepared } of step) {
      if ("transfers" in prepared) return undefined;
      calls.push(rankCall(collective, poster.facts.rank, prepared.call, laterPs));
    }
  }
  const buffers = new Map<Allocation, DeviceBuffer>();
  let sendBytes = 0;
  for (const { send, recv } of calls) {
    for (const buffer of [send, recv]) {
      if (buffer !== undefined) buffers.set(buffer.allocation, buffer);
    }
    sendBytes += send?.byteLength ?? 0;
  }
  return { calls, buffers: [...buffers.values()], sendBytes };
}

/** Throws when a receive among sends and receives that meet freely would overwrite what another one uses. */
function assertApart(poster: Poster, calls: readonly Collected[]): void {
  const sends: MemoryUse[] = [];
  const recvs: MemoryUse[] = [];
  for (const { prepared } of calls) {
    if (!("transfers" in prepared)) continue;
    for (const { call } of prepared.transfers) {
      const user = sends.length + recvs.length;
      if (call.send !== undefined) sends.push({ buffer: call.send, user });
      if (call.recv !== undefined) recvs.push({ buffer: call.recv, user });
    }
  }
  if (recvs.length === 0) return;
  const uses = new MemoryUses([...sends, ...recvs]);
  if (!recvs.some((use) => uses.isShared(use))) return;
  throw poster.check
    .begin("recv", {})
    .fault(
      "recv",
      "it overlaps memory of another send or receive of the group",
      "memory of its own",
    );
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

/** A recorded call does not run, and its replays have deadlines and signals of their own. */
function assertNoOptions(poster: Poster, calls: readonly Collected[]): void {
  for (const { collective, options } of calls) {
    const [field] = Object.keys(options ?? {});
    if (field === undefined) continue;
    throw new InvalidArgumentError(
      {
        headline: `capture: ${collective}: ${field}: a recorded call does not run, needs none`,
        hint: `pass it to every replay: graph.replay({ ${field} })`,
      },
      { ...poster.facts, collective, field },
    );
  }
}

/** The result of a recorded call is not given out, so no memory is allocated to receive it. */
function assertReceives(poster: Poster, calls: readonly Collected[]): void {
  for (const { collective, prepared } of calls) {
    if (collective !== "allToAllv" || "transfers" in prepared) continue;
    if (prepared.call.recv !== undefined) continue;
    throw new InvalidArgumentError(
      {
        headline: `capture: ${collective}: recv: it was left out, needs a buffer`,
        hint: "pass recvCounts and recv",
      },
      { ...poster.facts, collective, field: "recv" },
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
