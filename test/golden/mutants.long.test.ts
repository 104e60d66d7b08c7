/** Every rule of plans over hosts is exposed by recorded results: broken on purpose, some of them come out otherwise. */
import type * as simulation from "twinccl/sim";
import { expect, test } from "vitest";
import type * as checking from "../../src/golden/check.ts";
import { mutated } from "../support/mutated.ts";
import { mutants } from "./mutants.ts";
import { recordsOf } from "./replay.ts";

const { head, cases } = recordsOf("nccl-2.28.9-h200-hosts.jsonl");

/** Small calls, every third of them, in parts: most mutants are exposed by the first one. */
const parts = 12;
const drawn = cases.filter(({ count }) => count < 20_000).filter((_, at) => at % 3 === 0);

test.each(mutants)(
  "without $rule",
  async (mutant) => {
    const { check, sim } = await mutated<typeof checking & typeof simulation>(mutant, [
      "golden/check.ts",
      "backends/sim/index.ts",
    ]);
    const { topology } = head;
    let exposed = 0;
    for (let part = 0; part < parts && exposed === 0; part++) {
      const { mismatches, planDifferences, refusals } = await check(
        drawn.filter((_, at) => at % parts === part),
        (plan) => sim({ like: "nccl-2.28", topology, plan }),
      );
      exposed = mismatches.length + planDifferences.length + refusals.length;
    }
    expect(exposed).toBeGreaterThan(0);
  },
  60_000,
);
