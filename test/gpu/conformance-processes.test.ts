/** The conformance suite with one process per GPU, on one host and on two imitated nodes. */
import { processesConform } from "../conformance/processes.ts";
import { jobPath } from "./launched-jobs.ts";
import { describeOn, gpuSizes } from "./machine.ts";

const found = (await gpuSizes()).length;
const some = Math.min(4, found);

const nccl = {
  backend: "nccl",
  script: jobPath("conformance-rank.mjs"),
  // Processes do not know of each other's calls unless they tell.
  compare: ["--checks", "always"],
  capabilities: {
    hostArrays: false,
    virtualTime: false,
    deterministic: true,
    symmetricMemory: true,
  },
};

describeOn(2, found)("one process per GPU", () => {
  const sizes = [...new Set([2, some, found === 8 ? 8 : some])];
  processesConform({ ...nccl, name: "nccl between processes", sizes });
});

describeOn(2, found)("one process per GPU on two imitated nodes", () => {
  const args = ["--nodes", "2"];
  processesConform({ ...nccl, name: "nccl over sockets", args, sizes: [some] });
});
