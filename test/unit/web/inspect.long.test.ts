/** The page's own reckoning beside the library's runs: every element that it explains is what an executor left. */
import { createWorld, dtypes, type HostArray, type SpecifiedCollective } from "twinccl";
import { builtCollectives } from "twinccl/algorithms";
import { cpu, sim, Trace } from "twinccl/sim";
import { describe, expect, test } from "vitest";
import { traits } from "../../../web/data/calls.ts";
import { filmOf } from "../../../web/data/film.ts";
import { inputsOf, runOn } from "../../../web/data/run.ts";
import { placeOf, targetAt } from "../../../web/data/strip.ts";
import { structureOf } from "../../../web/data/structure.ts";
import { cellOf, laneOf } from "../../../web/inspect/cell.ts";
import { inspect } from "../../../web/inspect/hops.ts";
import { isSymmetric, planIds, planOptions } from "../../../web/plans.ts";
import { defaults, opNames, type State } from "../../../web/state.ts";
import { someOf } from "../../support/seed.ts";

async function everything(state: State) {
  const trace = new Trace();
  const structure = structureOf(state);
  const inputs = inputsOf(state);
  const outcome = await runOn(cpu(), state, inputs, trace);
  const film = filmOf(state, structure, trace.messages());
  return { state, structure, inputs, outcome, film, messages: trace.messages() };
}

/** Elements of which the inspector says something else than the run. */
function differing({
  state,
  structure,
  inputs,
  outcome,
  film,
}: Awaited<ReturnType<typeof everything>>) {
  const { dtype } = state;
  const wrong: string[] = [];
  outcome.outputs.forEach((output: HostArray, rank) => {
    for (let element = 0; element < output.length; element++) {
      const report = inspect({ structure, film, dtype, inputs }, { rank, element });
      const { bits } = cellOf(dtype, laneOf(dtype, output, element));
      if (report?.result.bits !== bits) {
        wrong.push(
          `${rank}/${element}: ${report?.result.bits.toString(16)} is ${bits.toString(16)}`,
        );
      }
    }
  });
  return wrong;
}

const plans = builtCollectives
  .filter((collective) => collective !== "barrier")
  .flatMap((collective) =>
    planIds(collective, 5).map((plan): [SpecifiedCollective, string] => [collective, plan]),
  );

describe("every element", () => {
  test.each(someOf(plans))(
    "of %s by %s is explained with the bits of the run",
    async (collective, plan) => {
      const state = {
        ...defaults,
        collective,
        plan,
        ranks: 5,
        count: 38,
        root: 3,
        values: "wild",
      } as const;
      expect(differing(await everything({ ...state, dtype: "float16" }))).toEqual([]);
    },
  );
  test.each(someOf(dtypes))("of %s, by every operator", async (dtype) => {
    for (const op of opNames) {
      const scalar = /^(int|uint)/.test(dtype) ? 3 : 0.3;
      for (const plan of ["recursive-doubling", "nccl-ring-ll128"]) {
        const state: State = {
          ...defaults,
          dtype,
          op,
          scalar,
          plan,
          ranks: 6,
          count: 100,
          values: "wild",
        };
        expect(differing(await everything(state)), `${op} ${plan}`).toEqual([]);
      }
    }
  });
  test("where rounding goes by the position in the chunk", async () => {
    const state: State = { ...defaults, op: "avg", plan: "nccl-ring-ll128", ranks: 3, count: 2000 };
    expect(differing(await everything(state))).toEqual([]);
  });
});

describe("the hops of an element", () => {
  const state: State = { ...defaults, collective: "allReduce", ranks: 5, count: 64, seed: 7 };

  test.each(planIds("allReduce", 5))("by %s come in explain()'s order, in time", async (plan) => {
    const { film, structure, inputs } = await everything({ ...state, plan });
    const options = planOptions({ ...state, plan });
    const world = await createWorld({ backend: sim(options), size: state.ranks });
    const explanation = world.explain({
      ...{ collective: "allReduce", dtype: state.dtype, count: state.count, op: "sum" },
      symmetric: isSymmetric({ ...state, plan }),
    });
    await world.close();
    for (let element = 0; element < state.count; element += 3) {
      const { dtype } = state;
      const report = inspect({ structure, film, dtype, inputs }, { rank: 2, element })!;
      expect(report.order, `element ${element}`).toEqual(explanation.chunkOf(element).order);
      const times = report.hops.map(({ birth }) => birth!.atPs);
      // A tree folds branches side by side; what a hop folds was there before it.
      report.hops.forEach(({ right, left }, i) => {
        for (const operand of [left, right]) {
          const made = report.hops.findIndex(
            ({ result }) => `${result.order}` === `${operand?.order}`,
          );
          if (made >= 0 && made < i) expect(times[made]).toBeLessThanOrEqual(times[i]!);
        }
      });
    }
  });
  test("of a ring happen at the rank that adds its own, each a message after the previous one", async () => {
    const { film, structure, inputs } = await everything(state);
    for (let element = 0; element < state.count; element++) {
      const { dtype } = state;
      const report = inspect({ structure, film, dtype, inputs }, { rank: 2, element })!;
      expect(report.hops.map(({ birth }) => birth?.rank)).toEqual(report.order.slice(1));
      const times = report.hops.map(({ birth }) => birth!.atPs);
      times.slice(1).forEach((time, i) => {
        expect(time).toBeGreaterThan(times[i]!);
      });
    }
  });
});

describe("a message animation", () => {
  test.each(someOf(plans))(
    "of %s by %s carries every message, and ends complete",
    async (collective, plan) => {
      const state: State = { ...defaults, collective, plan, ranks: 5, count: 64, root: 3 };
      const { film, messages, outcome, structure } = await everything(state);
      expect(film.flights).toHaveLength(messages.length);
      expect(film.beats.at(-1)).toBe(film.endPs);
      // Every element of every output lies in a chunk that is complete at the end, or is the rank's own from the start.
      outcome.outputs.forEach((output, rank) => {
        for (let element = 0; element < output.length; element += 7) {
          const place = placeOf(state, structure, { rank, element }) ?? -1;
          const strip = film.strips[rank]!;
          expect(targetAt(state, structure, rank, place)).toEqual({ rank, element });
          const { offsets, lengths } = strip.chunks;
          const chunk = offsets.findIndex((at, i) => place >= at && place < at + lengths[i]!);
          const last = strip.changes.findLast((change) => change.chunk === chunk);
          if (traits(state).reduces) {
            expect(last?.final).toBe(true);
            expect([...(last?.order ?? [])].sort()).toEqual([0, 1, 2, 3, 4]);
          } else if (strip.start === undefined) expect(last?.order).toHaveLength(1);
        }
      });
    },
  );
});
