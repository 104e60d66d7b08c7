/** Trainings over the TCP backend have the bits of the simulation: with all ranks in one process, and with a process for each. */
import { fileURLToPath } from "node:url";
import type { Communicator } from "twinccl";
import { sim } from "twinccl/sim";
import { afterAll, expect, test } from "vitest";
import { type DividedRun, dividedRuns, runDivided } from "../support/divided-runs.ts";
import { KeptOpen } from "../support/kept-open.ts";
import { LaunchedRanks } from "../support/launched-ranks.ts";
import { longTest } from "../support/long-test.ts";
import { crossed } from "../support/messages.ts";
import { isAll } from "../support/seed.ts";
import { SmallNetwork } from "../support/small-network.ts";
import { TcpJob } from "../support/tcp-jobs.ts";
import { type Job, runJob, trainOn } from "../support/training-run.ts";

const jobs = new KeptOpen((size) => TcpJob.open(size));

interface Trainings {
  readonly train: (comm: Communicator, name: string) => unknown;
}

const script = fileURLToPath(new URL("jobs/training-rank.mjs", import.meta.url));
const processes = new KeptOpen((size) =>
  LaunchedRanks.open<Record<"train", Trainings["train"]>>({ size, script }),
);

afterAll(async () => {
  await jobs.close();
  await processes.close();
});

const network = new SmallNetwork([5, 7, 3], "float32");
const data = network.samples(40, 2);
const wires = ["full", "bfloat16", { topK: 0.3 }] as const;

test.each(isAll ? wires : wires.slice(0, 2))("data parallelism with the wire %o", async (wire) => {
  const options = { wire, bucketBytes: 100 };
  const job: Job = { network, data, batch: 18, microBatches: [2, 1, 3, 1], noise: true, options };
  const span = { until: isAll ? 50 : 8 };
  const expected = await runJob(sim(), 4, job, span);
  const found = await jobs.use(4, ({ comms }) =>
    Promise.all(comms.map((comm) => trainOn(comm, job, span))),
  );
  expect(found).toEqual(expected);
  // Another order of folding has other bits, where anything is folded.
  const other = await runJob(sim({ algorithms: { allReduce: "linear" } }), 4, job, span);
  expect(other[0]?.bits === found[0]?.bits).toBe(typeof wire === "object");
});

/** A parameter server has all ranks in one process. */
const divided = dividedRuns.filter(({ name }) => !name.startsWith("a parameter server"));
const runs = isAll ? divided : divided.filter(({ size }) => size <= 3);

test.each(runs)("$name", async (run) => {
  const found = await jobs.use(run.size, (job) => job.each(async (comm) => run.program(comm)));
  expect(found).toEqual(await runDivided(sim(), run));
});

const inProcesses = divided.filter(({ size }) => size <= 4);

longTest("those of up to four ranks, with a process for each", async () => {
  expect(inProcesses.length).toBeGreaterThan(0);
  for (const run of inProcesses) await expectSame(run);
});

async function expectSame(run: DividedRun): Promise<void> {
  const found = await processes.use(run.size, (ranks) => ranks.each("train", run.name));
  expect(found, run.name).toEqual(crossed(await runDivided(sim(), run)));
}
