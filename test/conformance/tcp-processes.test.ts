/** The suite on the TCP backend with a process for each rank, as `twinccl launch` starts them. */
import { fileURLToPath } from "node:url";
import fc from "fast-check";
import { createWorld } from "twinccl";
import { sim } from "twinccl/sim";
import {
  type ConformanceParts,
  expectSame,
  gatherRun,
  programs,
  runProgramIn,
} from "twinccl/testing";
import { LaunchedRanks } from "../support/launched-ranks.ts";
import { longTest } from "../support/long-test.ts";
import { isAll, partOf, replay } from "../support/seed.ts";
import { processesConform } from "./processes.ts";

const tcp = {
  backend: "tcp",
  script: fileURLToPath(new URL("../gpu/jobs/conformance-rank.mjs", import.meta.url)),
  env: { TWINCCL_TEST_BACKEND: "tcp" },
  compare: ["--compare-calls", "always"],
  capabilities: {
    hostArrays: true,
    virtualTime: false,
    deterministic: true,
    symmetricMemory: true,
    ownStreams: true,
  },
};

processesConform({ ...tcp, name: "tcp between processes", sizes: partOf([2, 3, 4, 5], [2]) });
if (isAll) processesConform({ ...tcp, name: "tcp with TLS", args: ["--tls"], sizes: [2, 3] });

longTest("tcp between processes has the simulation's bits", async () => {
  const size = 3;
  const drawn = programs({ payload: "bits", sizes: fc.constant(size), maxElements: 3000 });
  const all = fc.sample(drawn, { seed: replay.seed, numRuns: 100 });
  const world = await createWorld({ backend: sim(), size });
  const job = await LaunchedRanks.open<ConformanceParts>({ ...tcp, size });
  try {
    const byRank = await job.each("programs", all);
    for (const [at, program] of all.entries()) {
      const found = byRank.map((programsOfRank) => programsOfRank[at] ?? []);
      expectSame(gatherRun(program, found, "tcp"), await runProgramIn(world, program));
    }
  } finally {
    await job.close();
    await world.close();
  }
});
