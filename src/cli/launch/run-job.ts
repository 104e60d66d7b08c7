/** Runs a job from its first process to its last: hosts the store at which they meet, and hands signals on. */
import { randomBytes } from "node:crypto";
import { StoreServer } from "../../backends/nccl/rendezvous/index.ts";
import type { Context } from "../context.ts";
import { standardOutput } from "../standard-output.ts";
import { Job, type JobOptions } from "./job.ts";
import { firstFailure, summary } from "./report.ts";

/** Signals that end a launcher, and are the ranks' affair. */
const forwarded = ["SIGINT", "SIGTERM", "SIGHUP"] as const;

/** Starts the processes, on as many imitated hosts, and resolves to 0 or the status of the rank that failed first. */
export async function runJob(
  { hosts = 1, ...wanted }: Omit<JobOptions, "variables"> & { readonly hosts?: number },
  context: Pick<Context, "err">,
): Promise<number> {
  const { size } = wanted;
  const jobId = `launch-${randomBytes(8).toString("hex")}`;
  const secret = randomBytes(32).toString("hex");
  const server = await StoreServer.listen({ jobId, size, hosted: false, secret });
  const variables = (rank: number): NodeJS.ProcessEnv => {
    const { host, localRank, localSize } = hostPlace(rank, size, hosts);
    return {
      ...process.env,
      TWINCCL_RANK: String(rank),
      TWINCCL_SIZE: String(size),
      TWINCCL_LOCAL_RANK: String(localRank),
      TWINCCL_LOCAL_SIZE: String(localSize),
      TWINCCL_JOB_ID: jobId,
      TWINCCL_STORE: "launcher",
      TWINCCL_ADDRESS: server.host,
      TWINCCL_PORT: String(server.port),
      TWINCCL_SECRET: secret,
      ...(hosts > 1 && { NCCL_HOSTID: `${jobId}-host${host}` }),
    };
  };
  const job = new Job({ ...wanted, variables });
  const watch = watchReasonsToStop(job);
  try {
    const ends = await job.ended;
    context.err(summary(ends, watch.reason()));
    return firstFailure(ends)?.status ?? 0;
  } finally {
    watch.over();
    await server.close();
  }
}

/** Stops the job for a signal, and when its output has no reader any more. */
interface Watch {
  /** Why it was stopped; `undefined` when it was not. */
  reason(): string | undefined;
  /**
   * The job has ended: signals mean this process from here on. The reader of the end may send one at once, which would be lost
   * if the listeners went while it is on its way: they stay, and do what would have been done without them.
   */
  over(): void;
}

function watchReasonsToStop(job: Job): Watch {
  let reason: string | undefined;
  let isOver = false;
  const onSignal = (signal: NodeJS.Signals): void => {
    if (isOver) {
      for (const each of forwarded) process.removeListener(each, onSignal);
      process.kill(process.pid, signal);
      return;
    }
    reason ??= `${signal} was handed on`;
    job.stop(signal);
  };
  const onClosed = (): void => {
    reason ??= "the output has no reader any more";
    job.stop("SIGTERM");
  };
  for (const signal of forwarded) process.on(signal, onSignal);
  for (const stream of [standardOutput, process.stderr]) stream.once("error", onClosed);
  const over = (): void => {
    isOver = true;
    for (const stream of [standardOutput, process.stderr]) stream.removeListener("error", onClosed);
  };
  return { reason: () => reason, over };
}

/** The place of a rank on imitated hosts: consecutive ranks share one, and each has as many as the next, or one more. */
export interface HostPlace {
  readonly host: number;
  readonly localRank: number;
  /** Ranks on its host. */
  readonly localSize: number;
}

/** The place of a rank of a job of `size` on so many hosts. */
function hostPlace(rank: number, size: number, hosts: number): HostPlace {
  const firstOn = (host: number): number => Math.ceil((host * size) / hosts);
  const host = Math.floor((rank * hosts) / size);
  const first = firstOn(host);
  return { host, localRank: rank - first, localSize: firstOn(host + 1) - first };
}
