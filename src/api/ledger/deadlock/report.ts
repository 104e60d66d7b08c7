/**
 * Tables of ranks that wait: the report of a deadlock, a stall or a run that ended with calls left open, and of calls that ranks
 * made in different orders.
 */
import type { CommInfo } from "../../backend.ts";
import {
  callText,
  type ErrorText,
  errorMessage,
  outliers,
  type Row,
  rankRows,
  ranksText,
} from "../../error-text.ts";
import {
  type CallOrder,
  CallOrderError,
  type CommErrorFacts,
  CommTimeoutError,
  DeadlockError,
  type OrderedCall,
  type RankWait,
} from "../../errors.ts";
import { getOrCreate } from "../../get-or-create.ts";
import { type CallLabel, callFacts, type Termination } from "../failures.ts";
import type { OpenWait } from "../queues.ts";
import type { LiveResources } from "./runtime.ts";

/** The state of every rank of the world, by rank: of its waits, which are given in order, the one that it awaits first. */
export function waitsOf(
  size: number,
  state: (rank: number) => RankWait["state"],
  waits: readonly OpenWait[],
): RankWait[] {
  const firstOf: OpenWait[] = [];
  const awaitedOf: OpenWait[] = [];
  for (const wait of waits) {
    const { op } = wait.posting;
    firstOf[op.callingRank] ??= wait;
    if (op.isObserved) awaitedOf[op.callingRank] ??= wait;
  }
  return Array.from({ length: size }, (_, rank): RankWait => {
    const wait = awaitedOf[rank] ?? firstOf[rank];
    if (wait === undefined) return { rank, state: state(rank), missing: [] };
    const { posting, missing, behind, comm } = wait;
    const { op, call } = posting;
    const foreign = op.worldRank === rank ? {} : { owner: op.worldRank };
    const what = { comm, collective: call.collective, call: op.call, missing };
    const where = op.place === undefined ? {} : { place: op.place };
    const order = behind.length === 0 ? {} : { behind };
    return { rank, state: state(rank), ...what, ...order, ...foreign, ...where };
  });
}

/** An open call of a rank in each state. */
const stateTexts = { waits: "waits in", runs: "runs, left open", finished: "left open" } as const;

/** The rows of a report about every rank. */
function waitRows(waits: readonly RankWait[]): Row[] {
  const texts = new Map<readonly number[], string>();
  const textOf = (ranks: readonly number[]): string => getOrCreate(texts, ranks, ranksText);
  return rankRows(waits.map((wait) => ({ rank: wait.rank, cells: waitCells(wait, textOf) })));
}

/** `textOf` names ranks; it caches the text of a list, which many waits share. */
function waitCells(wait: RankWait, textOf: (ranks: readonly number[]) => string): Row {
  const { state, comm, collective, call, missing, behind, owner, place } = wait;
  if (collective === undefined) {
    const what = state === "finished" ? "has finished" : "runs, or waits for something else";
    return [what, "", "", ""];
  }
  const whose = owner === undefined ? "" : ` as rank ${owner}`;
  const what = `${stateTexts[state]} ${collective}${whose}`;
  const whom = missing.length === 0 ? "made by all ranks here" : `for ${textOf(missing)}`;
  const order = behind === undefined ? "" : `, made by ${textOf(behind)} behind an earlier call`;
  return [what, `call ${call} on "${comm}"`, whom + order, place ?? ""];
}

/**
 * The error of each rank; its `ranks` are those that the others wait for. The texts are equal, except that of a call that is made
 * later, which begins with the name of the call.
 */
export function deadlockErrors(waits: readonly RankWait[]): Termination {
  const ranks = missingIn(waits);
  const headline = deadlockHeadline(waits, ranks);
  const text: ErrorText = { headline, table: waitRows(waits), hint: hintFor(waits) };
  return (_, rank, failed) =>
    new DeadlockError(textFor(text, failed), { ...factsOf(waits, rank, failed), ranks, waits });
}

/** The text for one call: that of a call that is made later begins with its name. */
function textFor(text: ErrorText, failed: CallLabel | undefined): ErrorText {
  const isLate = failed !== undefined && failed.call < 0;
  return isLate ? { ...text, headline: callText(failed) + text.headline } : text;
}

function factsOf(
  waits: readonly RankWait[],
  rank: number,
  failed: CallLabel | undefined,
): CommErrorFacts {
  const { comm, collective, call } = failed ?? waits[rank] ?? {};
  return { rank, size: waits.length, comm, collective, call };
}

function deadlockHeadline(waits: readonly RankWait[], missing: readonly number[]): string {
  const done = missing.filter((rank) => waits[rank]?.state === "finished");
  if (done.length > 0) {
    return `deadlock: ${ranksText(done)} finished without making a call that others wait for`;
  }
  const away = missing.filter((rank) => waits[rank]?.state === "runs");
  if (away.length > 0) {
    return `deadlock: ${ranksText(away)} can no longer make a call that others wait for`;
  }
  return "deadlock: every unfinished rank waits for another one";
}

function hintFor(waits: readonly RankWait[]): string {
  const borrower = waits.find(({ owner }) => owner !== undefined);
  if (borrower === undefined) {
    const open = waits.filter(({ collective }) => collective !== undefined);
    const late = open.filter(({ behind }) => behind !== undefined);
    if (late.some(isMessage) || open.every(isMessage)) return messageHint;
    if (late.length > 0) return orderHint;
    return waits.some(({ state }) => state === "runs")
      ? "a rank that makes no call awaits something outside of the library, or another rank's communicator"
      : "every rank must make the same calls on a communicator, in the same order";
  }
  const { rank, owner } = borrower;
  return `rank ${rank} called the communicator of rank ${owner}; every rank must call its own`;
}

function isMessage({ collective }: RankWait): boolean {
  return collective === "send" || collective === "recv" || collective === "sendRecv";
}

/** The rule about messages. */
const messageHint =
  "every send needs a recv of its peer; a rank's messages are done in the order made, except in one group";

/** The rule about the order of calls. */
export const orderHint =
  "calls of a rank take effect in the order made, on all its communicators: make them in one order on all ranks";

/** The ranks that others wait for, ascending. */
function missingIn(waits: readonly RankWait[]): number[] {
  const lists = new Set(waits.map(({ missing }) => missing));
  return [...new Set([...lists].flat())].sort((a, b) => a - b);
}

/** The report of a stall, ready to print. */
export function stallText(waits: readonly RankWait[], alive: LiveResources | undefined): string {
  return errorMessage(stallReport(waits, `still alive: ${aliveText(alive)}`));
}

/** The error that each rank gets where a stall fails its calls. */
export function stallErrors(
  waits: readonly RankWait[],
  alive: LiveResources | undefined,
  stallMs: number,
): Termination {
  const hint = `nothing moved for ${stallMs} ms, though this is still alive: ${aliveText(alive)}; allow more with stallMs, or look at what the others did instead`;
  const text = stallReport(waits, hint);
  const ranks = missingIn(waits);
  return (_, rank, failed) =>
    new CommTimeoutError(textFor(text, failed), { ...factsOf(waits, rank, failed), ranks });
}

function stallReport(waits: readonly RankWait[], hint: string): ErrorText {
  return { headline: `stalled: ${stallHeadline(waits)}`, table: waitRows(waits), hint };
}

function aliveText(alive: LiveResources | undefined): string {
  if (alive === undefined) return "this runtime cannot tell";
  return alive.size === 0 ? "nothing that this runtime lists" : [...alive.keys()].join(", ");
}

/** The report of an interrupted program, ready to print. */
export function interruptedText(comm: string, waits: readonly RankWait[]): string {
  const hint = waits.some(
    ({ place, collective }) => collective !== undefined && place === undefined,
  )
    ? "createWorld({ callSites: true }) and connect({ callSites: true }) name the line of each call"
    : undefined;
  return errorMessage({
    headline: `interrupted while ranks of "${comm}" wait`,
    table: waitRows(waits),
    hint,
  });
}

function stallHeadline(waits: readonly RankWait[]): string {
  const those = (state: RankWait["state"]): number[] =>
    waits.flatMap((wait) => (wait.state === state ? [wait.rank] : []));
  const waiting = those("waits");
  const running = those("runs");
  const wait = `${ranksText(waiting)} ${waiting.length === 1 ? "waits" : "wait"}`;
  if (running.length === 0)
    return `${wait}, and only something else can wake ${waiting.length === 1 ? "it" : "them"}`;
  const run = `${ranksText(running)} ${running.length === 1 ? "runs" : "run"}`;
  return `${wait}, and ${run} without making a call`;
}

// Calls that ranks made in different orders.

/** The text of an order that differs, and the errors of a communicator's ranks. */
export interface OrderErrors {
  readonly text: ErrorText;
  readonly errorOf: (comm: CommInfo) => Termination;
}

/** The effect of different orders. */
interface Effect {
  readonly what: string;
  readonly hint: string;
}

/** Calls that share a stream on some rank. */
export const deadlocked: Effect = {
  what: "and would wait for each other for ever",
  hint: orderHint,
};

/** Calls on streams of their own. */
export const concurrent: Effect = {
  what: "on different streams",
  hint: "NCCL does not promise that calls of two communicators run at the same time: make them in one order on all ranks",
};

export function orderErrors(orders: readonly CallOrder[], { what, hint }: Effect): OrderErrors {
  const ranks = oddRanks(orders);
  const headline = `${orderText(orders)}, ${what}`;
  const text: ErrorText = { headline, table: orderRows(orders), hint };
  const errorOf =
    ({ name, ranks: { length } }: CommInfo): Termination =>
    (rank, _, failed) =>
      new CallOrderError(textFor(text, failed), {
        ...{ rank, size: length, comm: name, ...callFacts(failed, name), ranks, orders },
      });
  return { text, errorOf };
}

/** The names of the communicators. */
export function commsIn(orders: readonly CallOrder[]): ReadonlySet<string> {
  return new Set(orders.flatMap(({ calls }) => calls.map(({ comm }) => comm)));
}

/** The finding, with the communicators. */
export function orderText(orders: readonly CallOrder[]): string {
  const names = [...commsIn(orders)].sort().map((name) => `"${name}"`);
  return `ranks made calls on ${names.join(" and ")} in different orders`;
}

/** The ranks that have not made a call of an order; else those with another order than most, and all while none is that of most. */
export function oddRanks(orders: readonly CallOrder[]): number[] {
  const late = orders.filter(({ calls }) => calls.some(({ isMissing }) => isMissing === true));
  if (late.length > 0) return late.map(({ rank }) => rank);
  const named = orders.map(({ calls }) => calls.map(callName).join(" before "));
  const odd = outliers(named);
  const isMost = 2 * odd.length < named.length;
  return isMost ? odd.map((at) => (orders[at] as CallOrder).rank) : orders.map(({ rank }) => rank);
}

/** A row for each rank. */
export function orderRows(orders: readonly CallOrder[]): Row[] {
  return rankRows(orders.map(({ rank, calls }) => ({ rank, cells: cellsOf(calls) })));
}

function callName({ comm, collective, call }: OrderedCall): string {
  return `${collective}: call ${call} on "${comm}"`;
}

function cellsOf(calls: readonly OrderedCall[]): string[] {
  return calls.map((call, at) => {
    const place = call.place === undefined ? "" : ` at ${call.place}`;
    const later = call.isMissing === true ? ", not made yet" : "";
    return `${at === 0 ? "" : "before "}${callName(call)}${place}${later}`;
  });
}
