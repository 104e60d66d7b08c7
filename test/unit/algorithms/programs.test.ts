/** Programs as text, and the laws of layouts and of time. */
import fc from "fast-check";
import {
  algorithmsOf,
  buildProgram,
  builtCollectives,
  catalogue,
  evaluate,
  findAlgorithm,
  input,
  layoutOf,
  output,
  type Program,
  ProgramBuilder,
  packed,
  stepAt,
  stepCount,
  stepText,
} from "twinccl/algorithms";
import { describe, expect, test } from "vitest";
import { holds } from "../../support/seed.ts";

function textOf(program: Program, rank: number): string[] {
  const { channels, starts } = program;
  const steps: string[] = [];
  for (let lane = rank * channels; lane < (rank + 1) * channels; lane++) {
    for (let step = starts[lane] as number; step < (starts[lane + 1] as number); step++) {
      steps.push(stepText(stepAt(program, step)));
    }
  }
  return steps;
}

describe("a program", () => {
  test("reads like the paper", () => {
    const ring = buildProgram("allReduce", catalogue.allReduce.ring, 3, -1);
    expect(textOf(ring, 0)).toEqual([
      "take in[2], send to 1",
      "receive from 2, fold with in[1], send to 1",
      "receive from 2, fold with in[0], complete, store in out[0], send to 1",
      "receive from 2, store in out[2], send to 1",
      "receive from 2, store in out[1]",
    ]);
    const barrier = buildProgram("barrier", catalogue.barrier.dissemination, 3, -1);
    expect(textOf(barrier, 1)).toEqual(["signal 2", "wait for 0", "signal 0", "wait for 2"]);
  });

  test("keeps every verb, span and channel that was written", () => {
    const builder = new ProgramBuilder({
      collective: "allReduce",
      algorithm: "none",
      ranks: 2,
      root: -1,
      chunksPerBlock: 4,
      channels: 2,
    });
    builder.everyRank((lane, rank) => lane.send(input(rank), 1 - rank, { span: 3 }));
    builder.everyRank((lane, rank) => lane.recvCopySend(1 - rank, output(1), 1 - rank), 1);
    builder.lane(1, 1).reduce(input(0), input(1), output(2), { final: true }).wait(0);
    const program = builder.build();
    expect(stepCount(program)).toBe(6);
    expect(Array.from(program.starts)).toEqual([0, 1, 2, 3, 6]);
    expect(textOf(program, 0)).toEqual([
      "take in[0..2], send to 1",
      "receive from 1, store in out[1], send to 1",
    ]);
    expect(textOf(program, 1)).toEqual([
      "take in[1..3], send to 0",
      "receive from 0, store in out[1], send to 0",
      "take in[0], fold with in[1], complete, store in out[2]",
      "wait for 0",
    ]);
  });

  test("is found in the catalogue by name, the default without one", () => {
    expect(findAlgorithm("allReduce", undefined)?.name).toBe("ring");
    expect(findAlgorithm("allReduce", "linear")?.name).toBe("linear");
    expect(findAlgorithm("allReduce", "toString")).toBeUndefined();
    for (const collective of builtCollectives) {
      for (const [name, algorithm] of Object.entries(catalogue[collective])) {
        expect(algorithm.name).toBe(name);
        expect([algorithm.summary, algorithm.source].every((text) => text.length > 5)).toBe(true);
      }
    }
  });
});

describe("a layout", () => {
  test("covers every element once, in chunks that differ by at most one, longer ones first", async () => {
    const cases = fc.record({
      ranks: fc.integer({ min: 1, max: 20 }),
      count: fc.nat({ max: 500 }),
    });
    await holds(
      cases,
      ({ ranks, count }) => {
        const program = buildProgram("allReduce", catalogue.allReduce.ring, ranks, -1);
        const layout = layoutOf(program, { count });
        for (const table of [...layout.in, ...layout.out]) {
          const offsets = Array.from(table.offsets);
          const lengths = Array.from(table.lengths);
          expect(lengths).toHaveLength(ranks);
          let at = 0;
          offsets.forEach((offset, chunk) => {
            expect(offset).toBe(at);
            at += lengths[chunk] as number;
          });
          expect(at).toBe(count);
          expect(lengths).toEqual([...lengths].sort((a, b) => b - a));
          expect((lengths[0] as number) - (lengths.at(-1) as number)).toBeLessThanOrEqual(1);
        }
      },
      200,
    );
  });

  test("of an all-to-allv puts blocks where the offsets say", () => {
    const program = buildProgram("allToAllv", catalogue.allToAllv.pairwise, 2, -1);
    const shifted = [
      { counts: [1, 2], offsets: [5, 0] },
      { counts: [3, 0], offsets: [2, 9] },
    ];
    const blocks = { in: shifted, out: [packed([1, 3]), packed([2, 0])] };
    const layout = layoutOf(program, { count: 3, blocks });
    expect(layout.in.map(({ offsets }) => Array.from(offsets))).toEqual([
      [5, 0],
      [2, 9],
    ]);
    expect(layout.out.map(({ offsets }) => Array.from(offsets))).toEqual([
      [0, 1],
      [0, 2],
    ]);
    expect(layout.out.map(({ lengths }) => Array.from(lengths))).toEqual([
      [1, 3],
      [2, 0],
    ]);
  });
});

const everyAlgorithm = builtCollectives
  .filter((collective) => ["allReduce", "broadcast", "allToAll", "barrier"].includes(collective))
  .flatMap((collective) =>
    algorithmsOf(collective).map((algorithm) => ({ collective, algorithm })),
  );

/** A program, its layout and a link to judge its time with. */
const timed = fc.record({
  which: fc.constantFrom(...everyAlgorithm),
  ranks: fc.integer({ min: 1, max: 12 }),
  count: fc.nat({ max: 60 }),
  latency: fc.nat({ max: 1000 }),
  perElement: fc.nat({ max: 20 }),
  starts: fc.array(fc.nat({ max: 3000 }), { minLength: 12, maxLength: 12 }),
  late: fc.nat({ max: 11 }),
  by: fc.integer({ min: 1, max: 500 }),
});

describe("time", () => {
  test("never gets earlier when a link gets slower, a message longer or a rank later", async () => {
    await holds(
      timed,
      ({ which, ranks, count, latency, perElement, starts, late, by }) => {
        const root = which.collective === "broadcast" ? 0 : -1;
        const program = buildProgram(which.collective, which.algorithm, ranks, root);
        // Lanes that share a port take it in the order of time, and a delay may change that order for the better.
        if (program.channels > 1) return;
        const layout = layoutOf(program, { count });
        const times = (start: readonly number[], delay: number, width: number): Float64Array =>
          evaluate(program, layout, start, {
            latency: delay,
            occupancy: (elements) => elements * width,
          }).finished;
        const base = times(starts, latency, perElement);
        const lateStarts = starts.map((start, rank) =>
          rank === late % ranks ? start + by : start,
        );
        const worse = [
          times(starts, latency + by, perElement),
          times(starts, latency, perElement + by),
          times(lateStarts, latency, perElement),
        ];
        for (const finished of worse) {
          finished.forEach((time, rank) => {
            expect(time).toBeGreaterThanOrEqual(base[rank] as number);
          });
        }
        // A late start moves nothing by more than the delay.
        worse[2]?.forEach((time, rank) => {
          expect(time).toBeLessThanOrEqual((base[rank] as number) + by);
        });
        base.forEach((time, rank) => {
          expect(time).toBeGreaterThanOrEqual(starts[rank] as number);
        });
        // Starting everyone later shifts everything by just that.
        const shifted = times(
          starts.map((start) => start + by),
          latency,
          perElement,
        );
        expect(Array.from(shifted)).toEqual(Array.from(base, (time) => time + by));
      },
      400,
    );
  });

  test("charges both ends: senders of one receiver queue, and so do receivers of one sender", () => {
    const build = (write: (program: ProgramBuilder) => void): Program => {
      const head = { collective: "allReduce", algorithm: "none", root: -1 } as const;
      const builder = new ProgramBuilder({ ...head, ranks: 4, chunksPerBlock: 1 });
      write(builder);
      return builder.build();
    };
    const incast = build((program) => {
      for (const peer of [1, 2, 3]) {
        program.lane(peer).send(input(0), 0);
        program.lane(0).recv(peer, output(0));
      }
    });
    const outcast = build((program) => {
      for (const peer of [1, 2, 3]) {
        program.lane(0).send(input(0), peer);
        program.lane(peer).recv(0, output(0));
      }
    });
    const model = { latency: 100, occupancy: (elements: number) => 10 * elements };
    const start = new Float64Array(4);
    const timeOf = (program: Program) =>
      evaluate(program, layoutOf(program, { count: 5 }), start, model);
    expect(Array.from(timeOf(incast).finished)).toEqual([250, 50, 50, 50]);
    expect(Array.from(timeOf(outcast).finished)).toEqual([150, 150, 200, 250]);
    expect(Array.from(timeOf(outcast).sentElements)).toEqual([15, 0, 0, 0]);
  });

  test("shows every message with both ports' times", () => {
    const program = buildProgram("broadcast", catalogue.broadcast.binomial, 4, 0);
    const events: string[] = [];
    const model = { latency: 7, occupancy: () => 2 };
    evaluate(program, layoutOf(program, { count: 1 }), new Float64Array(4), model, (event) => {
      const { from, to, sendStart, sendEnd, recvStart, recvEnd } = event;
      events.push(`${from}>${to} ${sendStart}-${sendEnd} ${recvStart}-${recvEnd}`);
    });
    expect(events.sort()).toEqual(["0>1 2-4 9-11", "0>2 0-2 7-9", "2>3 9-11 16-18"]);
  });
});
