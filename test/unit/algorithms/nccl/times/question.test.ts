/** Questions for times: every wrong value is an error with its field, and fields of a mode may be left out. */
import { describe, expect, test } from "vitest";
import {
  choiceOf,
  fitProfile,
  type MachineProfile,
  type Measurement,
  machineProfiles,
  type TimedQuestion,
  timeOf,
} from "../../../../../src/algorithms/index.ts";
import { callUs, type TimedCall, timedMessage } from "../../../../../src/algorithms/nccl/index.ts";
import { Uncertainty } from "../../../../../src/algorithms/nccl/times/uncertainty.ts";
import { errorOf } from "../../../../support/error-of.ts";

const profile = machineProfiles["h200x8"] as MachineProfile;
const allReduce = { collective: "allReduce", ranks: 8, count: 1024, dtype: "float32" } as const;

/** A question with other fields. */
function asked(fields: object): TimedQuestion {
  return { ...allReduce, ...fields };
}

describe("a question with a wrong value", () => {
  const pair = { ranks: 2, count: 1 };
  const row = [2, 3];
  const faults: [object, string, string][] = [
    [{ collective: "sendRecv", ranks: 2, count: -1, dtype: "int8" }, "count", "found -1"],
    [{ collective: "allToAll", count: -1 }, "count", "found -1"],
    [{ collective: "allToAll", count: Number.NaN }, "count", "found NaN"],
    [{ collective: "allReduce", count: 1.5 }, "count", "found 1.5"],
    ...(["allReduce", "gather", "sendRecv"] as const).flatMap((collective) =>
      [0, -1, 1.5, Number.NaN].map((ranks): [object, string, string] => {
        return [{ collective, ranks }, "ranks", `found ${ranks}, needs an integer of at least 1`];
      }),
    ),
    ...(["broadcast", "gather", "scatter"] as const).flatMap((collective) =>
      [8, -1, Number.NaN].map((root): [object, string, string] => {
        return [{ collective, root }, "root", `found ${root}, needs a rank of 0..7`];
      }),
    ),
    [{ collective: "allToAllv", counts: [row, [1]], ...pair }, "counts", "2 rows of 2"],
    [{ collective: "allToAllv", counts: [[0, -1], row], ...pair }, "counts", "2 rows of 2"],
    [{ collective: "allToAllv", counts: [row, row] }, "counts", "8 rows of 8"],
    [{ counts: [row, row], ranks: 2 }, "counts", "none: they are for allToAllv"],
    [{ collective: "foo" }, "collective", 'found "foo", needs one of'],
    [{ collective: "toString" }, "collective", 'found "toString", needs one of'],
    [{ collective: "__proto__" }, "collective", 'found "__proto__", needs one of'],
    [{ dtype: "foo" }, "dtype", 'found "foo", needs one of int8'],
    [{ collective: "allToAll", dtype: "toString" }, "dtype", 'found "toString"'],
    [{ op: "mean" }, "op", 'found "mean", needs sum'],
    [{ forced: null }, "forced", "found null, needs an object"],
    [{ forced: "LL" }, "forced", 'found "LL", needs an object'],
    [{ forced: { protocol: 7 } }, "forced.protocol", "found 7, needs one or several of LL, "],
    [{ mode: { launch: "later" } }, "mode.launch", 'found "later", needs one of eager, graph'],
    [{ mode: { memory: "fast" } }, "mode.memory", 'found "fast"'],
    [{ mode: { processes: 8 } }, "mode.processes", "found 8"],
    [{ mode: { awaited: 1 } }, "mode.awaited", "found 1"],
    [{ mode: { program: "mine" } }, "mode.program", 'found "mine"'],
    [{ rank: 4 }, "rank", "it is not known here, needs one of ranks, "],
    [{ toString: 1 }, "toString", "it is not known here, needs one of collective, "],
    [{ mode: { memry: "symmetric" } }, "mode.memry", "it is not known here, needs one of memory, "],
    [{ mode: "graph" }, "mode", 'found "graph", needs an object with launch, memory'],
    [{ forced: { algo: "Ring" } }, "forced.algo", "not known here, needs one of algorithm, "],
  ];
  test.each([
    [{ count: "1024" }, "count"],
    [{ ranks: "8" }, "ranks"],
    [{ op: { preMul: "2" } }, "op"],
  ])("%j is refused after a right one with the same text", (fields, field) => {
    for (const op of ["sum", { preMul: 2 }]) timeOf(profile, asked({ op }));
    for (const ask of [timeOf, choiceOf]) {
      expect(errorOf(() => ask(profile, asked(fields))).field).toBe(field);
    }
  });

  test.each(faults)("%j is refused", (fields, field, found) => {
    for (const ask of [timeOf, choiceOf]) {
      const error = errorOf(() => ask(profile, asked(fields)));
      expect(error.code).toBe("ERR_COMM_ARG");
      expect(error.field).toBe(field);
      expect(error.message).toContain(found);
    }
  });

  test.each(["allReduce", "allToAll", "gather", "sendRecv"])(
    "more ranks than the machine has are refused for %s",
    (collective) => {
      for (const ranks of [9, 64]) {
        const error = errorOf(() => timeOf(profile, asked({ collective, ranks })));
        expect(error.code).toBe("ERR_COMM_UNSUPPORTED");
        expect(error.message).toContain(`found ${ranks} ranks, has 8 GPUs`);
      }
    },
  );

  test("a measurement is a question too", () => {
    const measured = { us: 10, source: "a test", weight: 2 };
    expect(timeOf(profile, asked(measured))).toEqual(timeOf(profile, allReduce));
    expect(choiceOf(profile, asked(measured))).toEqual(choiceOf(profile, allReduce));
  });

  test("a measurement without a mode is refused by a fit", () => {
    const measurement = { ...allReduce, us: 10, source: "a test" } as unknown as Measurement;
    const error = errorOf(() => fitProfile(profile, [measurement], profile));
    expect(error.code).toBe("ERR_COMM_ARG");
    expect(error.field).toBe("mode.launch");
  });
});

test.each([
  ["timeOf", timeOf],
  ["choiceOf", choiceOf],
])("values of other kinds are refused as profile and as question by %s", (_name, ask) => {
  const { numbers: _, ...partial } = profile;
  for (const found of [undefined, null, {}, "h200x8", partial, { ...profile, topology: "x" }]) {
    const error = errorOf(() => ask(found as MachineProfile, allReduce));
    expect(error).toMatchObject({ name: "InvalidArgumentError", field: "profile" });
  }
  for (const found of [undefined, null, "allReduce"]) {
    const error = errorOf(() => ask(profile, found as unknown as TimedQuestion));
    expect(error).toMatchObject({ name: "InvalidArgumentError", field: "question" });
  }
});

describe("a mode", () => {
  const left = { launch: undefined, memory: undefined, processes: undefined, awaited: undefined };

  test("with fields that are undefined is that of the profile", () => {
    expect(timeOf(profile, asked({ mode: left }))).toEqual(timeOf(profile, allReduce));
    const eager = { ...left, launch: "eager" } as const;
    expect(timeOf(profile, asked({ mode: eager }))).toEqual(
      timeOf(profile, asked({ mode: { launch: "eager" } })),
    );
    const uncertainty = new Uncertainty(profile, 0.03);
    expect(uncertainty.of(asked({ mode: left }))).toBe(uncertainty.of(allReduce));
  });
});

describe("on one rank", () => {
  test.each(["allToAll", "gather", "scatter", "allReduce", "broadcast"])(
    "%s moves nothing",
    (collective) => {
      const question = asked({ collective, ranks: 1 });
      expect(timeOf(profile, question).us).toBe(0);
      expect(choiceOf(profile, question)).toBeUndefined();
    },
  );

  test("an allToAllv moves nothing, and a message to itself is a copy", () => {
    const counts = [[1024]];
    expect(timeOf(profile, asked({ collective: "allToAllv", ranks: 1, counts })).us).toBe(0);
    const own = timedMessage(4096, 1, { kind: "own", isCrossing: false });
    expect(own?.received).toEqual(own?.sent);
    const { us } = timeOf(profile, asked({ collective: "sendRecv", ranks: 1 }));
    expect(us).toBe(callUs(profile.numbers, own?.sent as TimedCall, profile.mode));
  });
});
