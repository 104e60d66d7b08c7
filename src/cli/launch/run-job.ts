/** Runs a job from its first process to its last: hosts the store at which they meet, and hands signals on. */
import { randomBytes } from "node:crypto";
import { StoreServer } from "../../backends/nccl/rendezvous/index.ts";
import type { Context } from "../context.ts";
import { hostPlace } from "./imitated-hosts.ts";
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
    // A signal of whoever reads this at once must not come to listeners that are about to go: it would be lost.
    watch.close();
    context.err(summary(ends, watch.reason()));
    return firstFailure(ends)?.status ?? 0;
  } finally {
    watch.close();
    await server.close();
  }
}

/** Stops the job for a signal, and when nobody reads its output any more. */
function watchReasonsToStop(job: Job): { reason(): string | undefined; close(): void } {
  let reason: string | undefined;
  const onSignal = (signal: NodeJS.Signals): void => {
    reason ??= `${signal} was handed on`;
    job.stop(signal);
  };
  const onClosed = (): void => {
    reason ??= "nobody reads the output any more";
    job.stop("SIGTERM");
  };
  for (const signal of forwarded) process.on(signal, onSignal);
  for (const stream of [process.stdout, process.stderr]) stream.once("error", onClosed);
  return {
    reason: () => reason,
    close: () => {
      for (const signal of forwarded) process.removeListener(signal, onSignal);
      for (const stream of [process.stdout, process.stderr]) {
        stream.removeListener("error", onClosed);
      }
    },
  };
}
