/** `twinccl golden record --launch`: a process for each rank makes its part of every call, on a host of its own if need be. */
import { bytesOf } from "../../api/index.ts";
import type { NcclBackend } from "../../backends/nccl/index.ts";
import { type GoldenCase, setupOf } from "../../golden/case.ts";
import { type GoldenHead, type GoldenPlan, headLine, lineOf } from "../../golden/format.ts";
import { RankRecords, type RankResult, recordRank } from "../../golden/rank-record.ts";
import { readCases } from "../../golden/read.ts";
import type { Recording } from "../../golden/record.ts";
import { explainedPlan } from "../../golden/replay.ts";
import { namedBackend } from "../backends.ts";
import type { BackendTable, Context } from "../context.ts";
import { askLauncher, reportToLauncher } from "../launch/job.ts";
import { startRanks } from "../placement.ts";
import { hostsOf, underGraphs } from "./graphs.ts";

/** Options of a recording over processes. */
export interface LaunchedOptions {
  /** The command line of the ranks, without the command's name. */
  readonly args: readonly string[];
  readonly head: GoldenHead;
  /** Longest time of the processes of one number of ranks, in milliseconds. */
  readonly timeoutMs: number | undefined;
}

/** A message of a rank: it is ready for calls, or has made some. */
type RankMessage = { readonly ready: true } | { readonly results: readonly RankResult[] };

/** A recording over processes. */
interface LaunchedRecording extends Recording {
  /** The signal that ended it; `undefined` without one. */
  readonly endedBy: NodeJS.Signals | undefined;
}

/** Records all calls: one job after another, for each number of ranks and each size of buffers. */
export async function recordLaunched(
  cases: readonly GoldenCase[],
  { args, head, timeoutMs }: LaunchedOptions,
  context: Context,
): Promise<LaunchedRecording> {
  const records = new RankRecords(cases);
  let endedBy: NodeJS.Signals | undefined;
  for (const places of jobsOf(cases)) {
    if (endedBy !== undefined) break;
    const calls = places.map((place) => cases[place] as GoldenCase);
    const size = (calls[0] as GoldenCase).ranks;
    const text = [headLine(head), ...calls.map(lineOf)].join("\n");
    const command = { name: "golden", args, size, hosts: hostsOf(head, size) };
    const status = await startRanks(
      {
        ...command,
        ...(timeoutMs !== undefined && { timeoutMs }),
        onSignal: (signal) => {
          endedBy = signal;
        },
        onMessage: (rank, message, reply) => {
          const own = message as RankMessage;
          if ("ready" in own) reply({ text });
          else records.add(rank, own.results, places);
          context.progress(`golden: ${records.complete} of ${cases.length} recorded`);
        },
      },
      context,
    );
    // After a failure the others may still be possible; a signal stops them too.
    if (status !== 0) context.err(`golden: the ranks of ${size} ended with status ${status}\n`);
  }
  return { ...records.recording(), endedBy };
}

/** Indices of the calls of each job: a process has one size of buffers. */
function jobsOf(cases: readonly GoldenCase[]): readonly (readonly number[])[] {
  const jobs = new Map<string, number[]>();
  cases.forEach((golden, index) => {
    const { buffSize, llBuffSize, ll128BuffSize } = setupOf(golden);
    const key = JSON.stringify([golden.ranks, buffSize, llBuffSize, ll128BuffSize]);
    jobs.set(key, [...(jobs.get(key) ?? []), index]);
  });
  return [...jobs.values()];
}

/** Options of one rank. */
export interface RankOptions {
  readonly backends: BackendTable;
  readonly name: "nccl" | "tcp";
  readonly streams: number;
  readonly bitsUpTo: number;
}

/** One rank: asks the launcher for its calls, makes them, and reports its parts. */
export async function recordAsRank({ backends, name, ...options }: RankOptions): Promise<void> {
  const { text } = (await askLauncher({ ready: true })) as { readonly text: string };
  const { cases, head } = readCases(text, "calls");
  const { library, topology } = head;
  const followed = name === "tcp" ? { like: library, topology } : { readPlan: true };
  let logged: NcclBackend["plans"] | undefined;
  const record = (): Promise<void> =>
    recordRank(cases, {
      ...options,
      backendFor: async (plan) => {
        const backend = await namedBackend(backends, name, { ...followed, plan });
        logged = (backend as Partial<NcclBackend>).plans;
        return backend;
      },
      plansOf: (calls, comm) =>
        logged === undefined
          ? calls.map((golden) => explainedPlan(comm, golden))
          : loggedPlans(calls, logged.take()),
      report: (results) => reportToLauncher({ results }),
    });
  await (name === "nccl" ? underGraphs(head, record) : record());
}

/** The plans that NCCL logged for calls made together, by collective and bytes; none where two of a kind differ. */
function loggedPlans(
  calls: readonly GoldenCase[],
  logged: ReturnType<NonNullable<NcclBackend["plans"]>["take"]>,
): (GoldenPlan | undefined)[] {
  return calls.map(({ collective, count, dtype }) => {
    const alike = logged.filter(
      (plan) => plan.collective === collective && plan.bytes === count * bytesOf(dtype),
    );
    const texts = alike.map(({ algorithm, protocol, channels }) =>
      JSON.stringify({ algorithm, protocol, channels }),
    );
    const [first] = texts;
    if (first === undefined || texts.some((each) => each !== first)) return undefined;
    return JSON.parse(first) as GoldenPlan;
  });
}
