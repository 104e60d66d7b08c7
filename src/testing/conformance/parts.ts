/**
 * The ranks' parts in the conformance suite. Every rank runs the same part, in whatever process it lives; its results are judged
 * by `ranks.ts`, never here. Arguments and results are plain data, so that they can cross to another process.
 */
import type { Capabilities, CommError, Communicator, Question } from "../../api/index.ts";
import { CallSite, type RankOutcome } from "../call-site.ts";
import type { Program, ProgramCall } from "../program.ts";
import { runProgramAs } from "../run-program.ts";
import { textOf } from "./expectations.ts";

/** Named parts: a rank's work on its communicator, with arguments that are the same on all ranks. */
export type Parts<C = never> = Readonly<Record<string, (comm: C, ...args: never) => unknown>>;

/** The arguments of a part beside the communicator. */
export type ArgumentsOf<F> = F extends (comm: never, ...args: infer A) => unknown ? A : never;

/** The result of a part. */
export type ResultOf<F> = F extends (...args: never) => infer R ? Awaited<R> : never;

/** The ranks of one communicator, wherever they live. */
export interface Ranks<P extends Parts> {
  readonly size: number;
  /** Has every rank do a part; returns the results by rank. Rejects when one fails, or takes too long. */
  each<N extends keyof P & string>(part: N, ...args: ArgumentsOf<P[N]>): Promise<ResultOf<P[N]>[]>;
}

/** The facts of an error. */
type Facts = Pick<CommError, "code" | "field" | "ranks">;

/** By call of a program; `undefined` for calls of others. */
type HeldByRank = readonly (RankOutcome | undefined)[];

function whatIsIt(comm: Communicator): { backend: string; capabilities: Capabilities } {
  return { backend: comm.backend, capabilities: comm.capabilities };
}

function placeOf({ rank, size, device }: Communicator): {
  rank: number;
  size: number;
  device: string;
} {
  return { rank, size, device };
}

function supports(comm: Communicator, questions: readonly Question[]): boolean[] {
  return questions.map((question) => comm.supports(question));
}

/** The codes of calls that are not supported; the calls are made all the same. */
async function refusals(comm: Communicator, calls: readonly ProgramCall[]): Promise<string[]> {
  const codes: string[] = [];
  for (const call of calls) {
    const site = new CallSite(comm, call);
    const made = site.post();
    codes.push(made === undefined ? "no part in it" : await codeOf(made));
    site.dispose();
  }
  return codes;
}

function codeOf(operation: PromiseLike<unknown>): PromiseLike<string> {
  return operation.then(
    () => "it was taken",
    (error: CommError) => error.code,
  );
}

/** Runs programs one after another: a rank's data after every call of each. */
async function programs(comm: Communicator, all: readonly Program[]): Promise<HeldByRank[]> {
  const held: HeldByRank[] = [];
  for (const [at, program] of all.entries()) {
    try {
      held.push(await runProgramAs(comm, program));
    } catch (cause) {
      throw new Error(`program ${at}: ${textOf(program)}`, { cause });
    }
  }
  return held;
}

/** The times at which this rank entered a barrier and left it, in nanoseconds of one clock; odd ranks come late. */
async function barrier(comm: Communicator): Promise<{ entered: bigint; left: bigint }> {
  if (comm.rank % 2 === 1) await new Promise((resolve) => setTimeout(resolve, 20));
  const entered = nowNs();
  await comm.barrier();
  return { entered, left: nowNs() };
}

/** The clock of the machine, which its processes share; elsewhere that of the runtime. */
function nowNs(): bigint {
  return globalThis.process?.hrtime?.bigint() ?? BigInt(Math.round(performance.now() * 1e6));
}

async function sumsInOrder(comm: Communicator): Promise<bigint[]> {
  const data = comm.alloc("int64", 3).fill(1);
  const ops = [1, 2, 3, 4].map(() => comm.allReduce({ send: data, op: "sum" }));
  await Promise.all(ops);
  return Array.from(await data.toHost());
}

async function earlyReads(comm: Communicator): Promise<number[][]> {
  const data = comm.alloc("int32", 3).fill(1);
  const early = data.toHost();
  data.fill(2);
  const later = data.toHost();
  data.copyFrom(Int32Array.of(3, 4, 5));
  return [await early, await later, await data.toHost()].map((read) => Array.from(read));
}

/** Values whose sums round at nearly every hop. */
export function noisyValues(rank: number): Float32Array<ArrayBuffer> {
  return Float32Array.from({ length: 1000 }, (_, i) => Math.sin(i * (rank + 1)) / 3);
}

/** The elements of the sum of `noisyValues`, as bits. */
async function noisySum(comm: Communicator): Promise<number[]> {
  const values = noisyValues(comm.rank);
  const data = comm.alloc("float32", values.length).copyFrom(values);
  await comm.allReduce({ send: data, op: "sum" });
  const host = await data.toHost();
  return Array.from(new Uint32Array(host.buffer, host.byteOffset, host.length));
}

async function wrongArguments(comm: Communicator): Promise<string[]> {
  const send = comm.alloc("int8", 4);
  const wrong = [
    comm.allReduce({ send, op: "plus" as never }),
    comm.allReduce({ send, recv: comm.alloc("int8", 5), op: "sum" }),
    comm.allReduce({ send, op: { preMul: 1000 } }),
    comm.broadcast({ recv: send, root: comm.size }),
    comm.allToAll({ send, recv: send }),
    comm.allToAllv({ send, sendCounts: [] }),
  ];
  return Promise.all(wrong.map((each) => codeOf(each)));
}

/** Rank 1 brings an element less: the error of all ranks, and the result of the next call with the same memory. */
async function disagreement(comm: Communicator): Promise<Facts & { held: number[][] }> {
  const send = comm.alloc("float32", 8).fill(3);
  const part = comm.rank === 1 ? send.subarray(0, 7) : send;
  const error = await comm.allReduce({ send: part, op: "sum" }).catch((caught) => caught);
  const { code, field, ranks } = error as CommError;
  const fresh = await comm.alloc("int8", 1).toHost();
  await comm.allReduce({ send, op: "sum" });
  const held = [await send.toHost(), fresh];
  return { code, field, ranks, held: held.map((each) => Array.from<number>(each)) };
}

async function replays(
  comm: Communicator,
): Promise<{ disposed: boolean; code: string; held: number[] }> {
  const data = comm.alloc("int32", 2).fill(1);
  const graph = await comm.capture(() => {
    void comm.allReduce({ send: data, op: { preMul: 2 } });
  });
  await graph.replay();
  const last = graph.replay();
  graph.dispose();
  graph.dispose();
  const code = await codeOf(graph.replay());
  await last;
  return { disposed: graph.disposed, code, held: Array.from(await data.toHost()) };
}

/** A communicator of all ranks, closed twice and used then. */
async function closedTwice(comm: Communicator): Promise<string> {
  const own = await comm.split({ color: 0 });
  await own.barrier();
  await own.close();
  await own.close();
  return codeOf(own.barrier());
}

/** The hooks' names for communicators of splits: one color again and again, and splits of only some ranks. */
async function splitNames(comm: Communicator): Promise<string[]> {
  const half = await comm.split({ color: comm.rank === 0 ? 0 : 1 });
  // Only some of the ranks make more communicators than the others.
  const more = comm.rank > 0 ? await half.split({ color: 0 }) : undefined;
  const names: string[] = [];
  for (let time = 0; time < 3; time++) {
    const whole = await comm.split({ color: 0 });
    whole.hooks.after((info) => names.push(info.comm));
    await whole.barrier();
    await whole.close();
  }
  await more?.close();
  await half.close();
  return names;
}

/** A plan as data. */
export interface Explained {
  readonly collective: string;
  readonly ranks: number;
  readonly chunks: readonly {
    readonly offset: number;
    readonly length: number;
    readonly order: readonly number[];
    readonly fold: string;
  }[];
  readonly text: string;
}

function explanation(comm: Communicator, question: Question): Explained {
  const plan = comm.explain(question);
  const { collective, ranks } = plan;
  const chunks = plan.chunks.map(({ offset, length, order, fold }) => {
    return { offset, length, order: [...order], fold };
  });
  return { collective, ranks, chunks, text: String(plan) };
}

/** A small healthy program, by which ranks show that they still work after a failure: a rank's data afterwards. */
export async function healthOf(comm: Communicator): Promise<number[]> {
  const buffer = comm.alloc("int32", 3).copyFrom(Int32Array.of(1, comm.rank, -comm.rank));
  await comm.allReduce({ send: buffer, op: "sum" });
  await comm.barrier();
  return Array.from(await buffer.toHost());
}

/** The required result of `healthOf` on each rank. */
export function healthyAmong(size: number): number[] {
  const total = (size * (size - 1)) / 2;
  return [size, total, 0 - total];
}

/** All parts, by name, for ranks that live in processes of their own. */
export const conformanceParts = {
  whatIsIt,
  placeOf,
  supports,
  refusals,
  programs,
  barrier,
  sumsInOrder,
  earlyReads,
  noisySum,
  wrongArguments,
  disagreement,
  replays,
  closedTwice,
  splitNames,
  explanation,
  healthOf,
} as const;

/** The parts of the suite. */
export type ConformanceParts = typeof conformanceParts;
