/**
 * The suite on ranks that joined a job as processes do, each with a session of its own, on fakes of CUDA and NCCL: what
 * the ranks of `test/gpu/conformance-processes.test.ts` come to above their native calls.
 */
import { setTimeout } from "node:timers/promises";
import { CommAbortedError, type Communicator } from "twinccl";
import {
  type ConformanceRanks,
  conformanceOfRanks,
  conformanceParts,
  type UseRanks,
} from "twinccl/testing";
import { expect, test } from "vitest";
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

/** An object with other methods in place of some of its own. */
function withMethods<T extends object>(target: T, methods: Partial<T>): T {
  return new Proxy(target, {
    get(of, name) {
      const value = Reflect.get(methods, name) ?? Reflect.get(of, name, of);
      return typeof value === "function" && !Object.hasOwn(methods, name) ? value.bind(of) : value;
    },
  });
}

test("the case of aborts passes where a rank notices the end of its barrier late", async () => {
  const joined = await joinAll(2, undefined, fakeGpus());
  let isAborted = false;
  const split = async (comm: Communicator): Promise<Communicator> => {
    const own = (await comm.split({ color: 0 })) as Communicator;
    const abort: Communicator["abort"] = (reason) => {
      isAborted = true;
      own.abort(reason);
    };
    if (comm.rank === 0) return withMethods(own, { abort });
    const late = async (): Promise<void> => {
      await own.barrier();
      await setTimeout(50);
      if (isAborted) throw new CommAbortedError("the barrier is open here");
    };
    return withMethods(own, { barrier: late as Communicator["barrier"] });
  };
  const results = await onAll(joined, ({ comm }) =>
    conformanceParts.aborts(withMethods<Communicator>(comm, { split: () => split(comm) as never })),
  );
  expect(results.map(({ barrier }) => barrier)).toEqual(["ERR_COMM_ABORTED", "ERR_COMM_ABORTED"]);
  await closeAll(joined);
});
