/** Values of no use where they are given: refused by name there, not by a TypeError at their first use. */
import { firstAvailable } from "twinccl";
import { Optimizer, ParameterSet } from "twinccl/parallel";
import { sim } from "twinccl/sim";
import { checkProperty, worldSizes } from "twinccl/testing";
import { expect, test } from "vitest";

// biome-ignore lint/suspicious/noExplicitAny: wrong kinds are the point
type Wrong = any;

const slips: readonly (readonly [string, () => unknown])[] = [
  [
    "ParameterSet: declarations: found an object, needs an array of { name, shape }",
    () => new ParameterSet({ w: [2] } as Wrong),
  ],
  [
    "optimizer: w: found an object, needs an update rule, such as sgd({ learningRate: 0.1 })",
    () =>
      new Optimizer(new ParameterSet([{ name: "w", shape: [2] }]), { learningRate: 1 } as Wrong),
  ],
  [
    "firstAvailable: backends[1]: found the function sim, needs a backend value\nhint: call it: sim()",
    () => firstAvailable(sim(), sim as Wrong),
  ],
  [
    "checkProperty: law: found undefined, needs a function",
    () => checkProperty(worldSizes(), undefined as Wrong),
  ],
  [
    'sim: algorithms.allReduce: found "rng", needs one of ring, chain, double-tree, halving-doubling, recursive-doubling, linear, or an algorithm',
    () => sim({ algorithms: { allReduce: "rng" as Wrong } }),
  ],
  [
    'sim: algorithms.allReduce: found "Chain", needs one of chain, ring,',
    () => sim({ algorithms: { allReduce: "Chain" as Wrong } }),
  ],
  [
    "sim: algorithms.allreduce: it is not known here, needs one of allReduce, reduce, broadcast,",
    () => sim({ algorithms: { allreduce: "ring" } as Wrong }),
  ],
];

test.each(slips)("%s", async (line, work) => {
  const error = await Promise.resolve()
    .then(work)
    .catch((thrown: unknown) => thrown);
  expect(error).toMatchObject({ code: "ERR_COMM_ARG", message: expect.stringContaining(line) });
});
