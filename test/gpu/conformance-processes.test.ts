/** The conformance suite with one process per rank, on one host and on two imitated nodes. */
import { describe } from "vitest";
import { processesConform } from "../conformance/processes.ts";
import { hostOptions, isShared, jobPath, jobRanks } from "./launched-jobs.ts";
import { describeOn, gpuSizes } from "./machine.ts";

const some = Math.min(4, jobRanks);

const nccl = {
  backend: "nccl",
  foldsAsExplained: false,
  script: jobPath("conformance-rank.mjs"),
  // Processes do not know of each other's calls unless they tell.
  compare: ["--compare-calls", "always"],
  capabilities: {
    hostArrays: false,
    virtualTime: false,
    deterministic: true,
    symmetricMemory: true,
    ownStreams: true,
  },
};

describe(isShared ? "processes that share a GPU" : "one process per GPU", () => {
  const sizes = [...new Set([2, some, jobRanks === 8 ? 8 : some])];
  const shared = { launcher: hostOptions, sharesDevice: isShared };
  processesConform({ ...nccl, ...shared, name: "nccl between processes", sizes });
});

describeOn(2, (await gpuSizes()).length)("one process per GPU on two imitated nodes", () => {
  const args = ["--nodes", "2"];
  processesConform({ ...nccl, name: "nccl over sockets", args, sizes: [some] });
});
