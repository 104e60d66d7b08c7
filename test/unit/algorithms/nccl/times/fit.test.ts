/** The fit: measurements made by a profile give its numbers back, and equal measurements equal numbers. */
import { describe, expect, test } from "vitest";
import {
  fitProfile,
  type MachineProfile,
  type MeasuredCollective,
  type Measurement,
  machineProfiles,
  residualsOf,
  timeOf,
} from "../../../../../src/algorithms/index.ts";
import { InvalidArgumentError } from "../../../../../src/api/errors.ts";

const profile = machineProfiles["h200x8"] as MachineProfile;

const oneCall: Measurement = {
  ...{ collective: "allReduce", ranks: 8, count: 1024, dtype: "float32", mode: profile.mode },
  ...{ us: 50, source: "a test" },
};

/** All-reduces of a machine with other numbers. */
function measuredOn(machine: MachineProfile): Measurement[] {
  return [2, 4, 8].flatMap((ranks) =>
    [2, 256, 8192, 65_536, 2 ** 19, 2 ** 23, 2 ** 25, 2 ** 27].map((count): Measurement => {
      const call = { collective: "allReduce", ranks, count, dtype: "float32" } as const;
      const { us } = timeOf(machine, call);
      return { ...call, mode: machine.mode, us, source: "a test" };
    }),
  );
}

/** The profile of a machine with a slower Ring. */
function slower(): MachineProfile {
  const { numbers } = structuredClone(profile);
  const { LL, Simple } = numbers.ring;
  const ring = { ...numbers.ring, LL: { ...LL, hopUs: 1.3 * LL.hopUs } };
  const slow = { ...ring, Simple: { ...Simple, hopRate: 0.6 * Simple.hopRate } };
  return { ...profile, numbers: { ...numbers, ring: slow } };
}

describe("a fit", () => {
  const machine = slower();
  const measurements = measuredOn(machine);

  test("finds the numbers behind the measurements", () => {
    const { profile: found, residuals } = fitProfile(profile, measurements, profile);
    expect(residuals).toHaveLength(measurements.length);
    for (const { measurement, modelUs } of residuals) {
      expect(modelUs / measurement.us).toBeGreaterThan(0.97);
      expect(modelUs / measurement.us).toBeLessThan(1.03);
    }
    const { hopRate } = machine.numbers.ring.Simple;
    expect(found.numbers.ring.Simple.hopRate / hopRate).toBeGreaterThan(0.9);
    expect(found.numbers.ring.Simple.hopRate / hopRate).toBeLessThan(1.1);
  });

  test("keeps the numbers that no measurement depends on, and states what was measured", () => {
    const { profile: found } = fitProfile(profile, measurements, profile);
    expect(found.numbers.symmetric).toEqual(profile.numbers.symmetric);
    const { modes, choices, dtypes } = found.measured["allReduce"] as MeasuredCollective;
    expect(modes).toEqual({
      "recorded, registered memory": { ranks: [2, 8], bytes: [8, 536_870_912] },
    });
    // Two ranks leave LL between 256 KiB and 2 MiB, eight use LL128 for 32 MiB; the next sizes are the bounds.
    expect(choices).toEqual({
      "Ring LL": { ranks: [2, 8], bytes: [8, 33_554_431] },
      "Ring LL128": { ranks: [8, 8], bytes: [2_097_153, 134_217_727] },
      "Ring Simple": { ranks: [2, 8], bytes: [262_145, 536_870_912] },
    });
    expect(dtypes).toEqual(["float32"]);
    expect(Object.keys(found.measured)).toEqual(["allReduce"]);
  });

  test("lets a choice reach up to sizes in memory of its kind, and a forced one no further than measured", () => {
    const at = (bytes: number, others: Partial<Measurement>): Measurement => {
      const mode = { ...profile.mode, memory: "ordinary" } as const;
      const call = { collective: "allReduce", ranks: 8, dtype: "float32", us: 10 } as const;
      return { ...call, count: bytes / 4, mode, source: "a test", ...others };
    };
    const symmetric = { mode: { ...profile.mode, memory: "symmetric" } } as const;
    const forced = { forced: { algorithm: "Tree", protocol: "LL" } } as const;
    const calls = [
      ...[at(1024, {}), at(24_576, {}), at(8192, forced)],
      ...[at(16_384, symmetric), at(65_536, symmetric)],
    ];
    const { choices } = fitProfile(profile, calls, profile).profile.measured[
      "allReduce"
    ] as MeasuredCollective;
    expect(choices).toEqual({
      "Ring LL": { ranks: [8, 8], bytes: [1024, 24_576] },
      "Tree LL": { ranks: [8, 8], bytes: [8192, 8192] },
      "Symmetric LL": { ranks: [8, 8], bytes: [16_384, 65_535] },
      "Symmetric LD": { ranks: [8, 8], bytes: [16_385, 65_536] },
    });
  });

  test("gives equal numbers for equal measurements", () => {
    const once = fitProfile(profile, measurements, profile);
    expect(fitProfile(profile, measurements, profile)).toEqual(once);
  });
});

test.each<[string, () => unknown]>([
  ["us", () => fitProfile(profile, [{ ...oneCall, us: Number.POSITIVE_INFINITY }], profile)],
  ["us", () => fitProfile(profile, [{ ...oneCall, us: Number.NaN }], profile)],
  ["us", () => fitProfile(profile, [{ ...oneCall, us: -5 }], profile)],
  ["us", () => fitProfile(profile, [{ ...oneCall, us: "50" as never }], profile)],
  ["us", () => residualsOf(profile, [null as never])],
  ["weight", () => fitProfile(profile, [{ ...oneCall, weight: Number.NaN }], profile)],
  ["weight", () => fitProfile(profile, [{ ...oneCall, weight: -1 }], profile)],
  ["measurements", () => fitProfile(profile, undefined as never, profile)],
  ["origin", () => fitProfile({} as never, [oneCall], profile)],
  ["profile", () => residualsOf(undefined as never, [oneCall])],
  ["name", () => fitProfile(profile, [oneCall], {} as never)],
])("a wrong %s of a fit is refused by name", (field, call) => {
  expect(call).toThrow(InvalidArgumentError);
  expect(call).toThrow(expect.objectContaining({ field }));
});
