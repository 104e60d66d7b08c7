/** The benchmark on the NCCL backend, over fakes of CUDA and NCCL: every way of issuing calls is right and leaves nothing. */
import { bench, measuredCollectives, tally } from "twinccl/bench";
import { describe, expect, test } from "vitest";
import { fakeGpus } from "../../support/fake-gpus/index.ts";
import { isAll } from "../../support/seed.ts";

const ways = [
  { mode: "eager", latency: false, symmetric: false },
  { mode: "graph", latency: false, symmetric: false },
  { mode: "eager", latency: true, symmetric: false },
  { mode: "graph", latency: true, symmetric: false },
  { mode: "eager", latency: false, symmetric: true },
  { mode: "graph", latency: false, symmetric: true },
] as const;

/** In `npm test` each collective in one of the ways. */
const collectivesOf = (way: (typeof ways)[number]) =>
  measuredCollectives.filter((_, at) => isAll || ways[at % ways.length] === way);

describe.each(ways)("$mode, latency $latency, symmetric $symmetric", (way) => {
  test.each(collectivesOf(way))("$collective", async ({ collective, moves }) => {
    const { machine, ...gpus } = fakeGpus();
    const sizes = { min: 96, max: 192, factor: 2 };
    const { results } = await bench({
      ...{
        ...way,
        backend: gpus.backend(),
        collective,
        ranks: 3,
        sizes,
        iterations: 4,
        warmup: 2,
      },
    });
    expect(results).toHaveLength(moves ? 2 : 1);
    expect(tally(results)).toMatchObject({ wrong: 0 });
    expect(tally(results).elements).toBeGreaterThan(0);
    expect(results.every(({ out_of_place: { time } }) => time > 0)).toBe(true);
    expect(machine.complaints).toEqual([]);
    expect(machine.leaks()).toEqual([]);
  });
});
