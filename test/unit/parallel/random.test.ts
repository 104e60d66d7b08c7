/** Random streams: fixed by their key, resumable, and spread as they should be. */
import { InvalidArgumentError } from "twinccl";
import { Random } from "twinccl/parallel";
import { expect, test } from "vitest";

const words = (random: Random, count: number): number[] =>
  Array.from({ length: count }, () => random.word());

test("a key fixes the numbers, and each part of it counts", () => {
  expect(words(new Random(7, 1), 9)).toEqual(words(new Random(7, 1), 9));
  const keys = [[7], [7, 0], [7, 1], [1, 7], [-7], [7 + 2 ** 32], []];
  const firsts = keys.map((key) => words(new Random(...key), 2).join());
  expect(new Set(firsts).size).toBe(keys.length);
  expect(() => new Random(0.5)).toThrow(/key: found 0.5/);
});

test("the numbers of a key stay the same across versions", () => {
  expect(words(new Random(7, 1), 3)).toMatchInlineSnapshot(`
    [
      994133120,
      1709340811,
      1141202009,
    ]
  `);
});

test("a stream continues from its state", () => {
  const random = new Random(3);
  words(random, 5);
  const kept = JSON.parse(JSON.stringify(random.state()));
  const next = words(random, 5);
  const resumed = new Random(99);
  resumed.restore(kept);
  expect(words(resumed, 5)).toEqual(next);
  for (const low of [1, 1n as unknown as number]) {
    const restore = () => resumed.restore({ values: { low }, tensors: {} });
    expect(restore).toThrow(InvalidArgumentError);
    expect(restore).toThrow(
      /: found low 1n?, high undefined, drawn undefined, needs the state of a Random/,
    );
  }
});

test("a stream does not repeat after 2^32 words", () => {
  const random = new Random(3);
  const { values } = random.state();
  const first = words(random, 5);
  random.restore({ values: { ...values, drawn: 2 ** 32 }, tensors: {} });
  expect(words(random, 5)).not.toEqual(first);
  random.restore({ values: { ...values, drawn: 2 ** 32 - 3 }, tensors: {} });
  const across = words(random, 6);
  expect(across.slice(3)).not.toEqual(first.slice(0, 3));
});

test("uniform, integer and normal numbers have their distributions", () => {
  const random = new Random(11);
  const count = 20_000;
  const draw = (one: () => number): number[] => Array.from({ length: count }, one);
  const mean = (of: number[]): number => of.reduce((sum, each) => sum + each, 0) / of.length;
  const uniform = draw(() => random.uniform());
  expect(uniform.every((each) => each >= 0 && each < 1)).toBe(true);
  expect(Math.abs(mean(uniform) - 0.5)).toBeLessThan(0.01);
  const normal = draw(() => random.normal());
  expect(Math.abs(mean(normal))).toBeLessThan(0.03);
  expect(Math.abs(mean(normal.map((each) => each * each)) - 1)).toBeLessThan(0.05);
  // Chi-square has 5 degrees of freedom and so the mean 5; that of 400 streams deviates by 0.16.
  const chis = Array.from({ length: 400 }, (_, key) => {
    const dice = new Random(11, key);
    const tally = [0, 0, 0, 0, 0, 0];
    for (let at = 0; at < 600; at++) tally[dice.below(6)]!++;
    return tally.reduce((sum, found) => sum + (found - 100) ** 2 / 100, 0);
  });
  expect(Math.abs(mean(chis) - 5)).toBeLessThan(0.7);
  // Three quarters of the words are below the bound: taken modulo it, the lower third would come twice as often.
  const bound = 3 * 2 ** 30;
  const low = draw(() => (random.below(bound) < 2 ** 30 ? 1 : 0));
  expect(Math.abs(mean(low) - 1 / 3)).toBeLessThan(0.02);
  expect(() => random.below(0)).toThrow(/bound: found 0/);
});
