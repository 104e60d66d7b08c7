/**
 * The suite on ranks that joined a job as processes do, each with a session of its own, on fakes of CUDA and NCCL: what
 * the ranks of `test/gpu/conformance-processes.test.ts` come to above their native calls.
 */
import { type ConformanceRanks, conformanceOfRanks, type UseRanks } from "twinccl/testing";
import { fakeGpus } from "../support/fake-gpus/index.ts";
import { crossed } from "../support/messages.ts";
import { expectClean } from "../unit/backends/nccl/gpus.ts";
import { closeAll, type Joined, joinAll, onAll } from "../unit/backends/nccl/job/joined.ts";
import { parts } from "./parts.ts";
import { someSizes } from "./sizes.ts";
import { testAll } from "./suite.ts";

/** A new job for every use. */
function joining(compareCalls?: "always"): UseRanks {
  return async (size, use) => {
    const gpus = fakeGpus();
    const joined = await joinAll(size, compareCalls, gpus);
    const ranks: ConformanceRanks = {
      size,
      each: async (part, ...args) => {
        const play = parts[part] as (...given: unknown[]) => unknown;
        const one = async ({ comm }: Joined) => play(comm, ...crossed(args));
        return crossed(await onAll(joined, one)) as never;
      },
    };
    const result = await use(ranks);
    await closeAll(joined);
    expectClean(gpus);
    return result;
  };
}

const cases = conformanceOfRanks({
  backend: "nccl",
  use: joining(),
  useCompared: joining("always"),
  sizes: someSizes,
  foldsAsExplained: false,
  capabilities: {
    hostArrays: false,
    virtualTime: false,
    deterministic: true,
    symmetricMemory: true,
    ownStreams: true,
  },
});
testAll("nccl in a job on fakes of CUDA and NCCL", cases);
