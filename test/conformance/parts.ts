/**
 * The ranks' parts in the suite. Every rank runs the same part, in whatever process it lives; its results are
 * judged by `suite.ts`, never here.
 */
import { inspect } from "node:util";
import type { Capabilities, CommError, Communicator, Question } from "twinccl";
import { type Program, type ProgramCall, type RankOutcome, runProgramAs } from "twinccl/testing";
import { healthOf } from "../support/health.ts";

/** The facts of an error. */
type Facts = Pick<CommError, "code" | "field" | "ranks">;

/** By call of a program; `undefined` for calls of others. */
type HeldByRank = readonly (RankOutcome | undefined)[];

function whatIsIt(comm: Communicator): { backend: string; capabilities: Capabilities } {
  return { backend: comm.backend, capabilities: comm.capabilities };
}

function placeOf(comm: Communicator): { rank: number; size: number; device: string } {
  return { rank: comm.rank, size: comm.size, device: deviceOf(comm) };
}

/** The device by the number that all processes know it by: one that was shown a single GPU calls it `cuda:0`. */
function deviceOf({ device }: Communicator): string {
  const [kind = "", number = ""] = device.split(":");
  if (kind !== "cuda") return device;
  const visible = process.env["CUDA_VISIBLE_DEVICES"];
  if (visible === undefined) return `GPU ${number}`;
  const shown = visible.split(",")[Number(number)];
  return shown === undefined ? `${device}, not shown` : `GPU ${shown.trim()}`;
}

function supports(comm: Communicator, questions: readonly Question[]): boolean[] {
  return questions.map((question) => comm.supports(question));
}

/** The codes of calls that are not supported; the calls are made all the same. */
async function refusals(comm: Communicator, calls: readonly ProgramCall[]): Promise<string[]> {
  const codes: string[] = [];
  for (const call of calls) codes.push(await codeOf(made(comm, call)));
  return codes;
}

function made(comm: Communicator, call: ProgramCall): PromiseLike<unknown> {
  if (call.kind === "barrier") throw new Error("a barrier is always supported");
  const send = comm.alloc(call.dtype, comm.size);
  const recv = comm.alloc(call.dtype, comm.size);
  const counts = new Array<number>(comm.size).fill(1);
  const op = "op" in call ? call.op : "sum";
  const root = "root" in call ? call.root : 0;
  switch (call.kind) {
    case "allReduce":
      return comm.allReduce({ send, recv, op });
    case "broadcast":
      return comm.broadcast({ recv, root });
    case "allToAll":
      return comm.allToAll({ send, recv });
    case "allToAllv":
      return comm.allToAllv({ send, recv, sendCounts: counts, recvCounts: counts });
    default:
      throw new Error(`the suite makes no ${call.kind} that is refused`);
  }
}

function codeOf(operation: PromiseLike<unknown>): PromiseLike<string> {
  return operation.then(
    () => "it was taken",
    (error: CommError) => error.code,
  );
}

/** Runs programs one after another: what this rank holds after every call of each. */
async function programs(comm: Communicator, all: readonly Program[]): Promise<HeldByRank[]> {
  const held: HeldByRank[] = [];
  for (const [at, program] of all.entries()) {
    try {
      held.push(await runProgramAs(comm, program));
    } catch (cause) {
      throw new Error(`program ${at}: ${inspect(program, { depth: null })}`, { cause });
    }
  }
  return held;
}

/** When this rank came to a barrier and when it left, in nanoseconds of the machine's one clock; odd ranks come late. */
async function barrier(comm: Communicator): Promise<{ entered: bigint; left: bigint }> {
  if (comm.rank % 2 === 1) await new Promise((resolve) => setTimeout(resolve, 20));
  const entered = process.hrtime.bigint();
  await comm.barrier();
  return { entered, left: process.hrtime.bigint() };
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

/** Bytes of a sum that rounds at nearly every hop. */
async function noisySum(comm: Communicator): Promise<string> {
  const values = Float32Array.from({ length: 1000 }, (_, i) => Math.sin(i * (comm.rank + 1)) / 3);
  const data = comm.alloc("float32", 1000).copyFrom(values);
  await comm.allReduce({ send: data, op: "sum" });
  const host = await data.toHost();
  return Buffer.from(host.buffer, host.byteOffset, host.byteLength).toString("hex");
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

interface Explained {
  readonly collective: string;
  readonly ranks: number;
  readonly chunks: readonly { readonly length: number; readonly order: readonly number[] }[];
  readonly text: string;
}

function explanation(comm: Communicator, question: Question): Explained {
  const plan = comm.explain(question);
  const { collective, ranks } = plan;
  const chunks = plan.chunks.map(({ length, order }) => ({ length, order: [...order] }));
  return { collective, ranks, chunks, text: String(plan) };
}

/** All of them, by name. */
export const parts = {
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
export type SuiteParts = typeof parts;
