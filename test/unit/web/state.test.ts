/** The page's address: what is written is what is read, and nonsense is reported. */
import fc from "fast-check";
import { dtypes } from "twinccl";
import { builtCollectives } from "twinccl/algorithms";
import { expect, test } from "vitest";
import { planIds } from "../../../web/plans.ts";
import {
  defaults,
  mostCount,
  networkSpeeds,
  opNames,
  readState,
  type State,
  valueKinds,
  writeState,
} from "../../../web/state.ts";

const states: fc.Arbitrary<State> = fc
  .record({
    collective: fc.constantFrom(...builtCollectives),
    ranks: fc.integer({ min: 1, max: 32 }),
    count: fc.integer({ min: 0, max: 1_048_576 }),
    dtype: fc.constantFrom(...dtypes),
    op: fc.constantFrom(...opNames),
    scalar: fc.double({ noNaN: true, noDefaultInfinity: true }).filter((x) => !Object.is(x, -0)),
    channels: fc.constantFrom(0, 1, 4, 24),
    network: fc.constantFrom(...networkSpeeds),
    values: fc.constantFrom(...valueKinds),
    seed: fc.nat(),
    latency: fc.constantFrom(0, 0.5, 250),
    bandwidth: fc.constantFrom(0.25, 25),
    element: fc.nat(1000),
    time: fc.integer({ min: -1, max: 1e9 }),
    lanes: fc.constantFrom("ranks" as const, "links" as const),
    pick: fc.nat(),
  })
  .map(({ pick, ...rest }) => {
    const plans = planIds(rest.collective, rest.ranks);
    const plan = plans[pick % plans.length] ?? "";
    const state = { ...rest, plan, root: pick % rest.ranks, rank: pick % rest.ranks };
    return { ...state, count: Math.min(state.count, mostCount(state)) };
  });

test("an address gives the state that it was written from", () => {
  fc.assert(
    fc.property(states, (state) => {
      expect(readState(new URLSearchParams(writeState(state)))).toEqual({ state, faults: [] });
    }),
  );
});

test("an address omits defaults", () => {
  expect(writeState(defaults)).toBe("");
  expect(readState([])).toEqual({ state: defaults, faults: [] });
});

test.each([
  ["ranks", "0"],
  ["ranks", "33"],
  ["count", "-1"],
  ["count", "1.5"],
  ["count", "2M"],
  ["dtype", "float12"],
  ["op", "xor"],
  ["plan", "star"],
  ["channels", "3"],
  ["scalar", ""],
  ["bandwidth", "0"],
  ["latency", "-1"],
  ["root", "8"],
  ["lanes", "queues"],
])("reports that %s cannot be %s", (key, text) => {
  const { state, faults } = readState([[key, text]]);
  expect(state).toEqual(defaults);
  expect(faults).toHaveLength(1);
  expect(faults[0]).toContain(key);
});

test("an address takes counts in the forms that people write", () => {
  expect(readState([["count", "16K"]]).state.count).toBe(16_384);
  expect(readState([["count", "1,000"]]).state.count).toBe(1000);
  expect(readState([["colour", "red"]])).toEqual({ state: defaults, faults: [] });
});

test.each([
  ["allReduce", 1_048_576],
  ["barrier", 1_048_576],
  ["allToAll", 32_768],
  ["allGatherv", 32_768],
  ["reduceScatter", 32_768],
  ["scatter", 532_610],
])("%s on 32 ranks takes at most %i elements a block", (collective, most) => {
  const { state, faults } = readState(
    Object.entries({ collective, plan: "ring", ranks: "32", count: "1M" }),
  );
  expect(state.count).toBe(most);
  expect(faults).toEqual(
    most < 2 ** 20
      ? [
          `count: found 1048576, needs at most ${most.toLocaleString("en")} for ${collective} on 32 ranks`,
        ]
      : [],
  );
});
