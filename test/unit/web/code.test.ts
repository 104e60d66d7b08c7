/** The code that the page shows for a call does that call. */
import { createWorld, type SpecifiedCollective } from "twinccl";
import { builtCollectives } from "twinccl/algorithms";
import { cpu, sim, Trace } from "twinccl/sim";
import { expect, test } from "vitest";
import { inputsOf, runOn } from "../../../web/data/run.ts";
import { planIds } from "../../../web/plans.ts";
import { defaults, type State } from "../../../web/state.ts";
import { codeOf } from "../../../web/views/code.ts";

type Module = (create: typeof createWorld, simulation: typeof sim) => Promise<void>;

/** Runs the module, with its imports handed in. */
async function run(code: string, trace: Trace): Promise<void> {
  const body = code.replace(/^import .*$/gm, "");
  const AsyncFunction = (async () => {}).constructor as new (...texts: string[]) => Module;
  const module = new AsyncFunction("createWorld", "sim", body);
  await module(createWorld, (options) => sim({ ...options, trace }));
}

const plans = builtCollectives.flatMap((collective) =>
  planIds(collective, 4).map((plan): [SpecifiedCollective, string] => [collective, plan]),
);

test.each(plans)("%s by %s", async (collective, plan) => {
  const state: State = { ...defaults, collective, plan, ranks: 4, count: 24, root: 2, op: "avg" };
  const [shown, made] = [new Trace(), new Trace()];
  await run(codeOf(state), shown);
  await runOn(cpu(), state, inputsOf(state), made);
  expect(made.length).toBeGreaterThan(0);
  expect(shown.toText()).toBe(made.toText());
});
