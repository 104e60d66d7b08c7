/** The share of a pipeline's time in which its stages are idle: by formula, and measured on the virtual clock. */
import { invalid, textOf } from "../../api/option-kinds.ts";
import { assertCount } from "../argument-checks.ts";

/** An event of `Trace.toChrome().traceEvents`; times are microseconds, and each rank is a process. */
export interface TimelineEvent {
  readonly name: string;
  readonly ph: string;
  readonly pid: number;
  readonly tid: number;
  readonly ts?: number | undefined;
  readonly dur?: number | undefined;
  readonly args?: Readonly<Record<string, unknown>> | undefined;
}

/** Compute time of stages in a span of virtual time. */
export interface Bubble {
  /** From the start of the first compute to the end of the last, in nanoseconds. */
  readonly spanNs: number;
  /** Compute time of every rank of the trace in it, in nanoseconds, in the order of processes. */
  readonly busyNs: readonly number[];
  /** Share of all ranks' time in the span in which they did not compute. */
  readonly share: number;
}

/**
 * The share of idle time of both `gpipe` and `1f1b`, with equal stages and messages without duration: (p − 1) / (m + p − 1) for
 * p stages and m micro-batches. The schedules differ in memory: see `PipelineStep`.
 *
 * @throws InvalidArgumentError for a number that is not an integer of at least 1.
 */
export function idealBubble(stages: number, microBatches: number): number {
  assertCount("idealBubble", "stages", stages, 1);
  assertCount("idealBubble", "microBatches", microBatches, 1);
  return (stages - 1) / (microBatches + stages - 1);
}

/**
 * Measures the bubble from the trace of a run with stages that report virtual compute (`PipelineOptions.work`, or `comm.work`
 * of their own). The trace's fractions of microseconds are rounded to nanoseconds.
 *
 * @throws InvalidArgumentError for a value that is not an array of events, or a trace without compute.
 * @example
 * const { share } = measureBubble(trace.toChrome().traceEvents);
 */
export function measureBubble(events: readonly TimelineEvent[]): Bubble {
  const isEvent = (each: unknown): boolean => typeof each === "object" && each !== null;
  if (!Array.isArray(events) || !events.every(isEvent)) {
    const needed = "an array of them: trace.toChrome().traceEvents";
    throw invalid("measureBubble", "events", textOf(events), needed);
  }
  const rows = new Set(
    events
      .filter(
        ({ ph, name, args }) => ph === "M" && name === "thread_name" && args?.["name"] === "work",
      )
      .map(({ pid, tid }) => `${pid} ${tid}`),
  );
  const pids = [...new Set(events.map(({ pid }) => pid))].sort((a, b) => a - b);
  const ranks = new Map(pids.map((pid, rank) => [pid, rank]));
  const busyNs = pids.map(() => 0);
  let [begin, end] = [Number.POSITIVE_INFINITY, 0];
  for (const { ph, pid, tid, ts = 0, dur = 0 } of events) {
    if (ph !== "X" || !rows.has(`${pid} ${tid}`)) continue;
    const [from, to] = [Math.round(ts * 1000), Math.round((ts + dur) * 1000)];
    const rank = ranks.get(pid) as number;
    busyNs[rank] = (busyNs[rank] as number) + to - from;
    begin = Math.min(begin, from);
    end = Math.max(end, to);
  }
  if (!(end > begin)) throw invalid("measureBubble", "events", "no work", "a trace with comm.work");
  const spanNs = end - begin;
  const busy = busyNs.reduce((sum, each) => sum + each, 0);
  const wholeNs = pids.length * spanNs;
  return { spanNs, busyNs, share: (wholeNs - busy) / wholeNs };
}
