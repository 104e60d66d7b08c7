/** The issue of timed calls: back to back, as a recorded graph, or each awaited alone. */
import type { Communicator } from "../api/index.ts";

/** The timed unit of a benchmark. */
export interface Issue {
  /** `graph`: up to 20 of the timed calls are recorded, and the graph is replayed, back to back, until all are made. */
  readonly mode: "eager" | "graph";
  /** Each call alone, from making it until its promise settles, instead of many back to back. */
  readonly latency: boolean;
  /** Buffers in symmetric memory, for which NCCL has other kernels. */
  readonly symmetric: boolean;
}

/** Timed calls of one rank. */
export interface Timed {
  /** On the process's own clock, in milliseconds. */
  readonly began: number;
  readonly ended: number;
  /** Microseconds of each call, ascending; empty unless each is timed alone. */
  readonly samples: readonly number[];
}

/** Most calls of a graph. */
const graphCalls = 20;

/** The number of timed calls: at least `iterations`, and as many as whole graphs hold. */
export function timedCalls(iterations: number, { mode, latency }: Issue): number {
  if (mode === "eager" || latency) return iterations;
  const calls = Math.min(iterations, graphCalls);
  return calls * Math.ceil(iterations / calls);
}

/** Numbers of repetitions of a call. */
interface Repeats {
  /** Those of `timedCalls`. */
  readonly iterations: number;
  readonly warmup: number;
  readonly issue: Issue;
}

/** Warms up and times a rank's call. All ranks start together. */
export async function timeCalls(
  comm: Communicator,
  { iterations, warmup, issue: { mode, latency } }: Repeats,
  call: () => PromiseLike<unknown>,
): Promise<Timed> {
  // With virtual time, queued calls are not faster: only their memory would be measured.
  const issueAll = comm.capabilities.virtualTime ? awaitEach : issueBackToBack;
  await issueAll(warmup, call);
  const calls = latency ? 1 : Math.min(iterations, graphCalls);
  const graph = mode === "graph" ? await recordCalls(comm, calls, call) : undefined;
  const next = graph === undefined ? call : () => graph.replay();
  // The first launch of a graph also uploads it.
  if (graph !== undefined) await next();
  await comm.barrier();
  const began = performance.now();
  const samples = latency ? await timeEach(iterations, next) : [];
  if (!latency) await issueAll(graph === undefined ? iterations : iterations / calls, next);
  const ended = performance.now();
  // While a graph is left, NCCL has more to do for every other call.
  graph?.dispose();
  return { began, ended, samples };
}

/** Makes a call whose result is checked as the timed ones are made: by a graph where they are in one. */
export async function callOnce(
  comm: Communicator,
  { mode }: Issue,
  call: () => PromiseLike<unknown>,
): Promise<void> {
  if (mode === "eager") {
    await call();
    return;
  }
  const graph = await recordCalls(comm, 1, call);
  await graph.replay();
  graph.dispose();
}

/** As nccl-tests: every call is issued before the last one is waited for. */
async function issueBackToBack(times: number, call: () => PromiseLike<unknown>): Promise<void> {
  let last: PromiseLike<unknown> | undefined;
  for (let at = 0; at < times; at++) last = call();
  await last;
}

async function awaitEach(times: number, call: () => PromiseLike<unknown>): Promise<void> {
  for (let at = 0; at < times; at++) await call();
}

async function timeEach(times: number, call: () => PromiseLike<unknown>): Promise<number[]> {
  const samples: number[] = [];
  for (let at = 0; at < times; at++) {
    const began = performance.now();
    await call();
    samples.push((performance.now() - began) * 1000);
  }
  return samples.sort((a, b) => a - b);
}

/** A graph of a number of the calls. */
function recordCalls(
  comm: Communicator,
  calls: number,
  call: () => PromiseLike<unknown>,
): ReturnType<Communicator["capture"]> {
  return comm.capture(() => {
    for (let at = 0; at < calls; at++) void call();
  });
}
