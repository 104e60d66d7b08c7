/**
 * The ranks' parts in the conformance suite. Every rank runs the same part, in whatever process it lives; its results are judged
 * by `ranks.ts`, never here. Arguments and results are plain data, so that they can cross to another process.
 */
import {
  type Capabilities,
  type CommError,
  type Communicator,
  type Data,
  type DeviceBuffer,
  type DType,
  dtypes,
  type Explanation,
  type Question,
} from "../../api/index.ts";
import { CallExecution, type RankOutcome } from "../call-execution.ts";
import { hostBytes } from "../call-memory.ts";
import type { Program, ProgramCall } from "../program.ts";
import { runProgramAs } from "../run-program.ts";
import { textOf } from "./expectations.ts";

/** The work of one rank in the conformance suite, by name. All ranks run the same part with the same arguments. */
export interface ConformanceParts {
  /** The backend's name and declared capabilities. */
  backendFacts(comm: Communicator): { backend: string; capabilities: Capabilities };
  /** The rank, the size of its communicator, and its device. Different devices need different names, also across processes. */
  placement(comm: Communicator): { rank: number; size: number; device: string };
  /** The answers of `comm.supports`, by question. */
  supports(comm: Communicator, questions: readonly Question[]): boolean[];
  /** Makes calls that are not supported; returns the codes of their errors. */
  refusals(comm: Communicator, calls: readonly ProgramCall[]): Promise<string[]>;
  /** Runs programs one after another; returns the results of `runProgramAs`, by program. */
  programs(
    comm: Communicator,
    all: readonly Program[],
  ): Promise<(readonly (RankOutcome | undefined)[])[]>;
  /** The times at which this rank entered a barrier and left it, in nanoseconds of one clock; odd ranks come late. */
  barrier(comm: Communicator): Promise<{ entered: bigint; left: bigint }>;
  /** Posts four sums from each of two buffers to the other, in turn, before it awaits any; returns the contents after the last. */
  callsInOrder(comm: Communicator): Promise<number[]>;
  /** Reads a buffer before and after each of two writes, and awaits the reads last; returns their contents. */
  earlyReads(comm: Communicator): Promise<number[][]>;
  /** Fills, writes and reads parts of a buffer; returns the contents of all of it, and of a part. */
  views(comm: Communicator): Promise<number[][]>;
  /** Fills one element of each dtype with a value of `filledWith`; returns its bytes, by dtype. */
  fills(comm: Communicator): Promise<number[][]>;
  /**
   * Allocates memory, fills it and gives it back, three times; copies 7 from memory that is given back during the call. `set`
   * counts the bytes of each allocation that were not zero at first, `live` has the addresses and lengths of simultaneous
   * allocations, `copied` the copy.
   */
  newMemory(
    comm: Communicator,
  ): Promise<{ set: number[]; live: { ptr: bigint; bytes: number }[]; copied: number[] }>;
  /** The virtual time in ns, NaN without one: at first, after a sum, after `work` of 1000 ns and a barrier, and after another. */
  virtualTimes(comm: Communicator): Promise<number[]>;
  /** Sums values that round at nearly every hop; returns the elements as bits. */
  roundedSum(comm: Communicator): Promise<number[]>;
  /** Makes calls with an invalid argument each; returns the codes of their errors. */
  wrongArguments(comm: Communicator): Promise<string[]>;
  /**
   * Makes a call in which the count of rank 1 is too small. Returns the fields of its error, the result of the next call with
   * the same memory, and the contents of a new buffer.
   */
  countMismatch(
    comm: Communicator,
  ): Promise<Pick<CommError, "code" | "field" | "ranks"> & { held: number[][] }>;
  /** Replays a captured graph twice, disposes of it and replays it again; returns the last code and the contents. */
  replays(comm: Communicator): Promise<{ disposed: boolean; code: string; held: number[] }>;
  /** Closes a communicator of all ranks twice; returns the code of a barrier on it afterwards. */
  closeTwice(comm: Communicator): Promise<string>;
  /**
   * Makes a sum on a split, which rank 0 aborts once the sum is under way, and then a barrier. Returns the codes of both, and the
   * contents of a sum on the communicator itself.
   */
  aborts(comm: Communicator): Promise<{ sum: string; barrier: string; held: number[] }>;
  /** Splits by the same color three times; returns the names of the communicators, as hooks see them. */
  splitNames(comm: Communicator): Promise<string[]>;
  /**
   * Makes one sum five times: on a split that shares the ranks' streams, on each of two splits with streams of their own, and on
   * these two at once, which odd ranks await in the other order. Returns the elements of each sum as bits.
   */
  ownStreams(comm: Communicator): Promise<number[][]>;
  /** The plan of a call as plain data, with its text and the chunk that holds each element. */
  explanation(comm: Communicator, question: Question): PlainPlan;
  /** Runs a sum and a barrier, which succeed if the ranks still work after a failure; returns the contents of the sum. */
  healthCheck(comm: Communicator): Promise<number[]>;
}

/** A plan as plain data. */
export interface PlainPlan extends Pick<Explanation, "collective" | "ranks" | "rank" | "chunks"> {
  readonly text: string;
  /** The number of the chunk that `chunkOf` gives, by element of the output. */
  readonly holders: readonly number[];
}

/** The arguments of a part after the communicator. */
export type PartArguments<F> = F extends (comm: never, ...args: infer A) => unknown ? A : never;

/** The result of a part on one rank. */
export type PartResult<F> = F extends (...args: never) => infer R ? Awaited<R> : never;

function backendFacts(comm: Communicator): PartResult<ConformanceParts["backendFacts"]> {
  return { backend: comm.backend, capabilities: comm.capabilities };
}

function placement({
  rank,
  size,
  device,
}: Communicator): PartResult<ConformanceParts["placement"]> {
  return { rank, size, device };
}

function supports(comm: Communicator, questions: readonly Question[]): boolean[] {
  return questions.map((question) => comm.supports(question));
}

async function refusals(comm: Communicator, calls: readonly ProgramCall[]): Promise<string[]> {
  const codes: string[] = [];
  for (const call of calls) {
    const execution = new CallExecution(comm, call);
    const made = execution.post();
    codes.push(made === undefined ? "no part in it" : await codeOf(made));
    execution.dispose();
  }
  return codes;
}

function codeOf(operation: PromiseLike<unknown>): PromiseLike<string> {
  return operation.then(
    () => "it was taken",
    (error: CommError) => error.code,
  );
}

async function programs(
  comm: Communicator,
  all: readonly Program[],
): Promise<PartResult<ConformanceParts["programs"]>> {
  const held: PartResult<ConformanceParts["programs"]> = [];
  for (const [at, program] of all.entries()) {
    try {
      held.push(await runProgramAs(comm, program));
    } catch (cause) {
      throw new Error(`program ${at}: ${textOf(program)}`, { cause });
    }
  }
  return held;
}

async function barrier(comm: Communicator): Promise<PartResult<ConformanceParts["barrier"]>> {
  if (comm.rank % 2 === 1) await new Promise((resolve) => setTimeout(resolve, 20));
  const entered = nowNs();
  await comm.barrier();
  return { entered, left: nowNs() };
}

/** The clock of the machine, which its processes share; elsewhere that of the runtime. */
function nowNs(): bigint {
  return globalThis.process?.hrtime?.bigint() ?? BigInt(Math.round(performance.now() * 1e6));
}

async function callsInOrder(comm: Communicator): Promise<number[]> {
  const [first, second] = [comm.alloc("int32", 1).fill(1), comm.alloc("int32", 1)];
  const ops = [0, 1, 2, 3].map((time) => {
    const [send, recv] = time % 2 === 0 ? [first, second] : [second, first];
    return comm.allReduce({ send, recv, op: "sum" });
  });
  await Promise.all(ops);
  return Array.from(await first.toHost());
}

async function earlyReads(comm: Communicator): Promise<number[][]> {
  const data = comm.alloc("int32", 3).fill(1);
  const early = data.toHost();
  data.fill(2);
  const later = data.toHost();
  data.copyFrom(Int32Array.of(3, 4, 5));
  return [await early, await later, await data.toHost()].map((read) => Array.from(read));
}

async function views(comm: Communicator): Promise<number[][]> {
  const data = comm.alloc("float32", 8).fill(0.1);
  const part = data.subarray(2, 6).fill(2.7);
  part.subarray(1, 3).copyFrom(Float32Array.of(3, 4.5));
  return [await data.toHost(), await part.toHost()].map((read) => Array.from(read));
}

/** A value for an element of each dtype, which its bits hold or round. */
export const filledWith: Readonly<Record<DType, number | bigint>> = {
  int8: -3,
  uint8: 200,
  int32: -70_001,
  uint32: 4_000_000_001,
  int64: -(2n ** 61n) - 5n,
  uint64: 2n ** 63n + 9n,
  float16: 2.7,
  bfloat16: 2.7,
  float32: 2.7,
  float64: 2.7,
  float8e4m3: 2.7,
  float8e5m2: 2.7,
};

async function fills(comm: Communicator): Promise<number[][]> {
  const filled = dtypes.map((dtype) => comm.alloc(dtype, 1).fill(filledWith[dtype]));
  const bytes = await Promise.all(filled.map((buffer) => hostBytes(buffer as Data)));
  return bytes.map((each) => Array.from(each));
}

async function newMemory(comm: Communicator): Promise<PartResult<ConformanceParts["newMemory"]>> {
  const set: number[] = [];
  let live: { ptr: bigint; bytes: number }[] = [];
  for (let time = 0; time < 3; time++) {
    const buffers = [1, 64, 1000, 64].map((length) => comm.alloc("int32", length));
    live = buffers.map(({ ptr, byteLength }) => ({ ptr, bytes: byteLength }));
    for (const buffer of buffers) {
      set.push((await hostBytes(buffer)).reduce((sum, byte) => sum + (byte === 0 ? 0 : 1), 0));
      buffer.fill(-1);
    }
    // Work that comes after the fills.
    await comm.allReduce({ send: buffers[0] as DeviceBuffer<"int32">, op: "sum" });
    for (const buffer of buffers) buffer.dispose();
  }
  const alone = (await comm.split({ color: comm.rank })) as Communicator;
  const [send, recv] = [comm.alloc("int32", 1).fill(7), comm.alloc("int32", 1)];
  const copy = alone.allReduce({ send, recv, op: "sum" });
  send.dispose();
  await copy;
  const copied = Array.from(await recv.toHost());
  await alone.close();
  return { set, live, copied };
}

async function virtualTimes(comm: Communicator): Promise<number[]> {
  const now = (): number => comm.stats().virtualNs ?? Number.NaN;
  const times = [now()];
  await comm.allReduce({ send: comm.alloc("int32", 1000), op: "sum" });
  times.push(now());
  comm.work(1000);
  for (let time = 0; time < 2; time++) {
    await comm.barrier();
    times.push(now());
  }
  return times;
}

/** Values whose sums round at nearly every hop. */
export function valuesThatRound(rank: number): Float32Array<ArrayBuffer> {
  return Float32Array.from({ length: 1000 }, (_, i) => Math.sin(i * (rank + 1)) / 3);
}

function roundedSum(comm: Communicator): Promise<number[]> {
  const data = comm.alloc("float32", valuesThatRound(comm.rank).length);
  return roundedSumIn(data, comm);
}

/** The same with given memory. */
async function roundedSumIn(data: DeviceBuffer<"float32">, comm: Communicator): Promise<number[]> {
  data.copyFrom(valuesThatRound(comm.rank));
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

async function countMismatch(
  comm: Communicator,
): Promise<PartResult<ConformanceParts["countMismatch"]>> {
  const send = comm.alloc("float32", 8).fill(3);
  const part = comm.rank === 1 ? send.subarray(0, 7) : send;
  const error = await comm.allReduce({ send: part, op: "sum" }).catch((caught) => caught);
  const { code, field, ranks } = error as CommError;
  const fresh = await comm.alloc("int8", 1).toHost();
  await comm.allReduce({ send, op: "sum" });
  const held = [await send.toHost(), fresh];
  return { code, field, ranks, held: held.map((each) => Array.from<number>(each)) };
}

async function replays(comm: Communicator): Promise<PartResult<ConformanceParts["replays"]>> {
  const data = comm.alloc("int32", 2).fill(1);
  const graph = await comm.capture(() => {
    void comm.allReduce({ send: data, op: "sum" });
  });
  await graph.replay();
  const last = graph.replay();
  graph.dispose();
  graph.dispose();
  const code = await codeOf(graph.replay());
  await last;
  return { disposed: graph.disposed, code, held: Array.from(await data.toHost()) };
}

async function closeTwice(comm: Communicator): Promise<string> {
  const own = await comm.split({ color: 0 });
  await own.barrier();
  await own.close();
  await own.close();
  return codeOf(own.barrier());
}

async function aborts(comm: Communicator): Promise<PartResult<ConformanceParts["aborts"]>> {
  const own = await comm.split({ color: 0 });
  const data = comm.alloc("float32", 100_000).fill(1);
  await own.barrier();
  // A rank that has not seen the end of that barrier yet would see the abort in its place.
  await comm.barrier();
  const sum = own.allReduce({ send: data, op: "sum" });
  const ended = codeOf(sum);
  if (comm.rank === 0) {
    await sum.enqueued;
    own.abort("enough");
  }
  const barrier = await codeOf(own.barrier());
  return { sum: await ended, barrier, held: await healthCheck(comm) };
}

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

async function ownStreams(comm: Communicator): Promise<number[][]> {
  const shared = (await comm.split({ color: 0 })) as Communicator;
  const first = (await comm.split({ color: 0, stream: "own" })) as Communicator;
  const second = (await comm.split({ color: 0, stream: "own" })) as Communicator;
  const held: number[][] = [];
  for (const each of [shared, first, second]) held.push(await roundedSum(each));
  const memory = [first, second].map(() => comm.alloc("float32", valuesThatRound(0).length));
  // All ranks have connected, and the memory is there.
  await shared.barrier();
  // Calls are made in one order on all ranks, also here: NCCL does not promise that those of two communicators run at once.
  const sums = [first, second].map((each, at) =>
    roundedSumIn(memory[at] as DeviceBuffer<"float32">, each),
  );
  if (comm.rank % 2 === 1) sums.reverse();
  for (const sum of sums) held.push(await sum);
  for (const each of [first, second, shared]) await each.close();
  return held;
}

function explanation(
  comm: Communicator,
  question: Question,
): PartResult<ConformanceParts["explanation"]> {
  const plan = comm.explain(question);
  const { collective, ranks, rank } = plan;
  const chunks = plan.chunks.map(({ chunk, offset, length, order, fold }) => {
    return { chunk, offset, length, order: [...order], fold };
  });
  const elements = chunks.reduce((sum, { length }) => sum + length, 0);
  const holders = Array.from({ length: elements }, (_, at) => plan.chunkOf(at).chunk);
  return { collective, ranks, rank, chunks, text: String(plan), holders };
}

/**
 * A small healthy program, by which ranks show that they still work after a failure: a rank's data afterwards.
 *
 * @internal
 */
export async function healthCheck(comm: Communicator): Promise<number[]> {
  const buffer = comm.alloc("int32", 3).copyFrom(Int32Array.of(1, comm.rank, -comm.rank));
  await comm.allReduce({ send: buffer, op: "sum" });
  await comm.barrier();
  return Array.from(await buffer.toHost());
}

/** The required result of `healthCheck` on each rank. */
export function healthyAmong(size: number): number[] {
  const total = (size * (size - 1)) / 2;
  return [size, total, 0 - total];
}

/** All parts, by name, for ranks in processes of their own. */
export const conformanceParts: ConformanceParts = {
  backendFacts,
  placement,
  supports,
  refusals,
  programs,
  barrier,
  callsInOrder,
  earlyReads,
  views,
  fills,
  newMemory,
  virtualTimes,
  roundedSum,
  wrongArguments,
  countMismatch,
  replays,
  closeTwice,
  aborts,
  splitNames,
  ownStreams,
  explanation,
  healthCheck,
};
