/**
 * The times of a simulated program: its steps, what each rank did meanwhile, and its calls by collective and size.
 *
 * `comm.work(0, "step")` begins a step. Work and calls of a rank overlap as on a GPU with a stream for each: communication is
 * hidden while work runs beside it.
 */
import type { TracedSpan } from "../../backends/sim/index.ts";
import { findCollective } from "../../bench/index.ts";

/** The label of work without a duration that begins a step. */
const stepLabel = "step";

/** One rank's time, from its first step on, or from the beginning where no step is marked. Nanoseconds. */
export interface RankTimes {
  readonly rank: number;
  readonly totalNs: number;
  /** Time with work, with calls, with both, with calls alone, and with neither. */
  readonly workNs: number;
  readonly callNs: number;
  readonly hiddenNs: number;
  readonly exposedNs: number;
  readonly idleNs: number;
  /** Bytes that the rank sends, as bus bandwidth counts them. */
  readonly sentBytes: number;
}

/** The calls of one collective, dtype and size. */
export interface CallRow {
  readonly collective: string;
  readonly dtype: string | undefined;
  readonly ranks: number;
  /** Bytes as nccl-tests counts them. */
  readonly bytes: number;
  /** Calls of communicators; sends and receives by rank. */
  readonly calls: number;
  /** From the arrival of the last rank to the end, and the mean waiting of ranks before that; of all calls together. */
  readonly movingNs: number;
  readonly waitingNs: number;
  /** The machine of the times, or nothing for links. */
  readonly predictedFor: string | undefined;
  readonly extrapolated: string | undefined;
}

/** The times of a program. */
export interface JobTimes {
  /** Duration of each marked step on the slowest rank; empty where none is marked. */
  readonly stepsNs: readonly number[];
  /** Time before the first step. */
  readonly beforeNs: number;
  /** The program on the slowest rank. */
  readonly totalNs: number;
  readonly ranks: readonly RankTimes[];
  readonly calls: readonly CallRow[];
}

/** An interval of a rank's time, in picoseconds. */
type Interval = readonly [from: number, to: number];

/** The times of a program by its trace; `endsPs` are the ends of the program by rank. */
export function jobTimes(spans: readonly TracedSpan[], endsPs: readonly number[]): JobTimes {
  const ofRanks = endsPs.map((_, rank) => spans.filter((span) => span.rank === rank));
  const ends = endsPs.map((end, rank) =>
    (ofRanks[rank] ?? []).reduce((last, { endPs }) => Math.max(last, endPs), end),
  );
  const marks = ofRanks.map((own) => own.filter(isMark).map(({ startPs }) => startPs));
  const count = marks.every(({ length }) => length === marks[0]?.length)
    ? (marks[0]?.length ?? 0)
    : 0;
  const begins = marks.map(([first = 0]) => (count === 0 ? 0 : first));
  const measured = ofRanks.map((own, rank) =>
    own.filter(({ startPs }) => startPs >= (begins[rank] ?? 0)),
  );
  const sets = setsOf(measured.flat());
  const sent = sentBytes(sets, endsPs.length);
  return {
    stepsNs: Array.from({ length: count }, (_, at) => {
      const lengths = marks.map((own, rank) => (own[at + 1] ?? ends[rank] ?? 0) - (own[at] ?? 0));
      return Math.max(...lengths) / 1000;
    }),
    beforeNs: Math.max(...begins) / 1000,
    totalNs: Math.max(...ends) / 1000,
    ranks: measured.map((own, rank) => {
      const window: Interval = [begins[rank] ?? 0, ends[rank] ?? 0];
      return { rank, ...rankTimes(own, window), sentBytes: sent[rank] ?? 0 };
    }),
    calls: callRows(sets),
  };
}

function isMark({ kind, name, startPs, endPs }: TracedSpan): boolean {
  return kind === "work" && name === stepLabel && startPs === endPs;
}

function rankTimes(
  spans: readonly TracedSpan[],
  [from, to]: Interval,
): Omit<RankTimes, "rank" | "sentBytes"> {
  const of = (kind: TracedSpan["kind"]): Interval[] =>
    joined(
      spans.filter((span) => span.kind === kind).map(({ startPs, endPs }) => [startPs, endPs]),
    );
  const [work, calls] = [of("work"), of("call")];
  const [workPs, callPs] = [lengthOf(work), lengthOf(calls)];
  const bothPs = workPs + callPs - lengthOf(joined([...work, ...calls]));
  const totalPs = to - from;
  return {
    totalNs: totalPs / 1000,
    workNs: workPs / 1000,
    callNs: callPs / 1000,
    hiddenNs: bothPs / 1000,
    exposedNs: (callPs - bothPs) / 1000,
    idleNs: (totalPs - workPs - callPs + bothPs) / 1000,
  };
}

/** The union of intervals. */
function joined(intervals: readonly Interval[]): Interval[] {
  const union: [number, number][] = [];
  for (const [from, to] of [...intervals].sort((a, b) => a[0] - b[0])) {
    const last = union.at(-1);
    if (last !== undefined && from <= last[1]) last[1] = Math.max(last[1], to);
    else union.push([from, to]);
  }
  return union;
}

function lengthOf(intervals: readonly Interval[]): number {
  return intervals.reduce((sum, [from, to]) => sum + to - from, 0);
}

/** The ranks' parts of one call. */
type CallSpans = readonly TracedSpan[];

/** Parts of each call. A replay makes several calls under its one number, in the same order on every rank. */
function setsOf(spans: readonly TracedSpan[]): CallSpans[] {
  const sets = new Map<string, TracedSpan[]>();
  const seen = new Map<string, number>();
  for (const span of spans) {
    const { call, rank } = span;
    if (call === undefined) continue;
    const isMessage = call.collective === "send" || call.collective === "recv";
    const number = `${call.comm}\t${call.number}\t${isMessage ? `${call.collective} of ${rank}` : ""}`;
    const turn = seen.get(`${number}\t${rank}`) ?? 0;
    seen.set(`${number}\t${rank}`, turn + 1);
    const key = `${number}\t${turn}`;
    const set = sets.get(key) ?? [];
    sets.set(key, set);
    set.push(span);
  }
  return [...sets.values()];
}

function bytesOfSet(set: CallSpans): number {
  return Math.max(...set.map(({ call }) => call?.bytes ?? 0));
}

function sentBytes(sets: readonly CallSpans[], ranks: number): number[] {
  const sent = new Array<number>(ranks).fill(0);
  for (const set of sets) {
    const [first] = set;
    const call = first?.call;
    if (call === undefined || call.collective === "recv") continue;
    const factor = findCollective(call.collective)?.busFactor(call.ranks) ?? 1;
    for (const { rank } of set) sent[rank] = (sent[rank] ?? 0) + factor * bytesOfSet(set);
  }
  return sent;
}

/** The arrival of the other end of a message; 0 for other calls. */
function peerStartOf({ call }: TracedSpan): number {
  return call?.peerStartPs ?? 0;
}

function callRows(sets: readonly CallSpans[]): CallRow[] {
  const rows = new Map<string, CallRow>();
  for (const set of sets) {
    const call = set[0]?.call;
    if (call === undefined) continue;
    const { collective, dtype, ranks, predictedFor, extrapolated } = call;
    const bytes = bytesOfSet(set);
    const key = [collective, dtype, ranks, bytes].join("\t");
    const lastPs = Math.max(...set.map((span) => Math.max(span.startPs, peerStartOf(span))));
    const endPs = Math.max(...set.map((span) => span.endPs));
    const waitingPs = set.reduce((sum, { startPs }) => sum + lastPs - startPs, 0) / set.length;
    const known = rows.get(key);
    rows.set(key, {
      ...{ collective, dtype, ranks, bytes, predictedFor, extrapolated },
      calls: (known?.calls ?? 0) + 1,
      movingNs: (known?.movingNs ?? 0) + Math.max(0, endPs - lastPs) / 1000,
      waitingNs: (known?.waitingNs ?? 0) + waitingPs / 1000,
    });
  }
  return [...rows.values()].sort((a, b) => b.movingNs - a.movingNs);
}
