import { InvalidArgumentError } from "twinccl";
import {
  acrossHypercube,
  along,
  doublings,
  type Folds,
  hypercubeOf,
  powerBelow,
  roundRing,
} from "twinccl/algorithms";
import { expect, test } from "vitest";

/** Folds as text. */
const text: Folds<string> = {
  own: (rank) => `${rank}`,
  into: (partial, rank) => `(${partial}+${rank})`,
  join: (left, right) => `[${left} ${right}]`,
};

test("orders of folding that authors of algorithms can state", () => {
  expect(roundRing(4, 1)).toEqual([2, 3, 0, 1]);
  expect(along(text, roundRing(3, 2))).toBe("((0+1)+2)");
  expect(acrossHypercube(text, 4, "nearest")).toBe("[[0 1] [2 3]]");
  expect(acrossHypercube(text, 4, "farthest")).toBe("[[0 2] [1 3]]");
  expect(acrossHypercube(text, 3, "nearest")).toBe("[(1+0) 2]");
});

test("powers of two among rank counts", () => {
  expect([1, 2, 3, 8, 9].map(doublings)).toEqual([0, 1, 2, 3, 4]);
  expect([1, 2, 3, 8, 9].map(powerBelow)).toEqual([1, 2, 2, 8, 8]);
  const { cores, dimensions, extras, rankOf, extraOf, coreOf } = hypercubeOf(6);
  expect({ cores, dimensions, extras }).toEqual({ cores: 4, dimensions: 2, extras: 2 });
  expect([0, 1, 2, 3].map((core) => [rankOf(core), extraOf(core)])).toEqual([
    [0, 1],
    [2, 3],
    [4, undefined],
    [5, undefined],
  ]);
  expect([0, 1, 2, 3, 4, 5].map(coreOf)).toEqual([0, undefined, 1, undefined, 2, 3]);
});

test.each([undefined, null, -1, Number.NaN, 1.5, 2 ** 53, "3", {}, []] as never[])(
  "%s is refused as a number of ranks",
  (ranks) => {
    const calls = {
      acrossHypercube: () => acrossHypercube(text, ranks, "nearest"),
      doublings: () => doublings(ranks),
      hypercubeOf: () => hypercubeOf(ranks),
      powerBelow: () => powerBelow(ranks),
      roundRing: () => roundRing(ranks, 0),
    };
    for (const [name, call] of Object.entries(calls)) {
      expect(call, name).toThrow(InvalidArgumentError);
      expect(call).toThrow(expect.objectContaining({ field: "ranks" }));
      expect(call).toThrow(`${name}: ranks: found `);
    }
  },
);

test("wrong orders, verbs and partners are refused by field", () => {
  const wrong = (call: () => unknown, field: string): void => {
    expect(call).toThrow(expect.objectContaining({ code: "ERR_COMM_ARG", field }));
  };
  wrong(() => along(text, []), "order");
  wrong(() => along({ ...text, into: undefined as never }, [0]), "folds");
  wrong(() => acrossHypercube(text, 4, "next" as never), "partners");
  wrong(() => roundRing(4, 4), "last");
});
