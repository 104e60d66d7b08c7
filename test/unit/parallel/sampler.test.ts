/** Samples: each once an epoch, the same steps whatever the number of ranks, resumable anywhere. */
import fc from "fast-check";
import { Sampler } from "twinccl/parallel";
import { describe, expect, test } from "vitest";

const deal = (options: ConstructorParameters<typeof Sampler>[0], batches: number): number[][] => {
  const sampler = new Sampler(options);
  return Array.from({ length: batches }, () => [...sampler.next().indexes]);
};

const sizes = fc.record({
  samples: fc.integer({ min: 1, max: 97 }),
  batch: fc.integer({ min: 1, max: 40 }),
  size: fc.integer({ min: 1, max: 9 }),
  seed: fc.integer(),
});

describe("one epoch", () => {
  test("gives every sample once, to one rank, in parts that differ by one at most", () => {
    fc.assert(
      fc.property(sizes, ({ samples, batch, size, seed }) => {
        const all = Array.from({ length: size }, (_, rank) => {
          const sampler = new Sampler({ samples, batch, size, rank, seed });
          return [...sampler].map(({ indexes }) => indexes);
        });
        expect(all[0]).toHaveLength(Math.ceil(samples / batch));
        expect(
          all.flatMap((each) => each.flatMap((part) => [...part])).sort((a, b) => a - b),
        ).toEqual(Array.from({ length: samples }, (_, at) => at));
        for (const [at] of all[0]!.entries()) {
          const lengths = all.map((each) => each[at]!.length);
          expect(Math.max(...lengths) - Math.min(...lengths)).toBeLessThanOrEqual(1);
        }
      }),
      { seed: 5, numRuns: 200 },
    );
  });

  test("has the same batches on any number of ranks", () => {
    fc.assert(
      fc.property(sizes, ({ samples, batch, size, seed }) => {
        const options = { samples, batch, seed };
        const one = deal({ ...options, size: 1, rank: 0 }, 12);
        const many = Array.from({ length: size }, (_, rank) =>
          deal({ ...options, size, rank }, 12),
        );
        expect(one.map((_, at) => many.flatMap((each) => each[at]!))).toEqual(one);
      }),
      { seed: 6, numRuns: 100 },
    );
  });

  test("drops a partial batch by choice", () => {
    const sampler = new Sampler({ samples: 10, batch: 4, size: 1, rank: 0, partial: "drop" });
    expect(sampler.batchesPerEpoch).toBe(2);
    expect([...sampler].map(({ samples }) => samples)).toEqual([4, 4]);
    expect(sampler.epoch).toBe(1);
    expect(sampler.next().epoch).toBe(1);
    const full = new Sampler({ samples: 8, batch: 4, size: 1, rank: 0, partial: "drop" });
    expect([...full].map(({ samples }) => samples)).toEqual([4, 4]);
  });

  test("has every order with equal frequency", () => {
    const sampler = new Sampler({ samples: 3, batch: 3, size: 1, rank: 0, seed: 3 });
    const tally = new Map<string, number>();
    for (let epoch = 0; epoch < 1200; epoch++) {
      const order = sampler.next().indexes.join();
      tally.set(order, (tally.get(order) ?? 0) + 1);
    }
    // 200 of each are expected; a deviation is 13.
    expect(tally.size).toBe(6);
    for (const [order, found] of tally) expect(Math.abs(found - 200), order).toBeLessThan(52);
  });
});

test("epochs and seeds have orders of their own; without shuffling samples come as numbered", () => {
  const options = { samples: 50, batch: 50, size: 1, rank: 0 };
  const [first, second] = deal({ ...options, seed: 1 }, 2);
  expect(first).not.toEqual(second);
  expect(deal({ ...options, seed: 2 }, 1)[0]).not.toEqual(first);
  expect(deal({ ...options, seed: 1 }, 1)[0]).toEqual(first);
  expect(deal({ ...options, shuffle: false }, 2)[1]).toEqual(
    Array.from({ length: 50 }, (_, i) => i),
  );
});

test("a sampler continues from any place, on any number of ranks", () => {
  fc.assert(
    fc.property(sizes, fc.nat(20), ({ samples, batch, size, seed }, done) => {
      const options = { samples, batch, seed };
      const whole = deal({ ...options, size: 1, rank: 0 }, done + 8);
      const stopped = new Sampler({ ...options, size: 3, rank: 1 });
      for (let at = 0; at < done; at++) stopped.next();
      const kept = JSON.parse(JSON.stringify(stopped.state()));
      const resumed = Array.from({ length: size }, (_, rank) => {
        const sampler = new Sampler({ ...options, size, rank });
        sampler.restore(kept);
        return Array.from({ length: 8 }, () => [...sampler.next().indexes]);
      });
      expect(whole.slice(done)).toEqual(
        Array.from({ length: 8 }, (_, at) => resumed.flatMap((each) => each[at]!)),
      );
    }),
    { seed: 7, numRuns: 100 },
  );
});

test("wrong options and states of other data are refused by name", () => {
  const good = { samples: 10, batch: 4, size: 2, rank: 0 };
  for (const [field, value] of Object.entries({
    samples: 0,
    batch: 1.5,
    size: 0,
    rank: 2,
    seed: 0.5,
    partial: "some",
    shuffle: 1,
  })) {
    expect(() => new Sampler({ ...good, [field]: value } as never), field).toThrow(
      new RegExp(`Sampler: ${field}: found`),
    );
  }
  expect(() => new Sampler({ ...good, batch: 11, partial: "drop" })).toThrow(/batch: found 11/);
  const state = new Sampler(good).state();
  for (const [field, value] of Object.entries({
    samples: 11,
    seed: 1,
    shuffle: false,
    epoch: -1,
    position: 11,
  })) {
    const wrong = { ...state, values: { ...state.values, [field]: value } };
    expect(() => new Sampler(good).restore(wrong), field).toThrow(new RegExp(`restore: ${field}`));
  }
});
