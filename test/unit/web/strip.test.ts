/** The strips of memory: places stand for elements, and at the end of the film a strip holds its rank's output. */
import type { SpecifiedCollective } from "twinccl";
import { cpu, Trace } from "twinccl/sim";
import { expect, test } from "vitest";
import { filmOf } from "../../../web/data/film.ts";
import { inputsOf, runOn } from "../../../web/data/run.ts";
import { placeOf, targetAt } from "../../../web/data/strip.ts";
import { structureOf } from "../../../web/data/structure.ts";
import { defaults } from "../../../web/state.ts";

const calls: readonly [SpecifiedCollective, string][] = [
  ["allReduce", "ring"],
  ["allGatherv", "ring"],
  ["allToAll", "pairwise"],
  ["allToAllv", "pairwise"],
  ["broadcast", "binomial"],
];

test.each(calls)(
  "every rank's strip of %s holds its output at the end",
  async (collective, plan) => {
    for (const ranks of [2, 3, 8]) {
      const state = { ...defaults, collective, plan, ranks, count: 7 };
      const trace = new Trace();
      const { outputs } = await runOn(cpu(), state, inputsOf(state), trace);
      const structure = structureOf(state);
      const film = filmOf(state, structure, trace.messages());
      film.strips.forEach(({ chunks, length, changes }, rank) => {
        const complete = new Set(changes.filter(({ final }) => final).map(({ chunk }) => chunk));
        const held = [...complete].reduce((sum, chunk) => sum + (chunks.lengths[chunk] ?? 0), 0);
        expect([held, length]).toEqual([outputs[rank]?.length, held]);
        for (let element = 0; element < length; element++) {
          const place = placeOf(state, structure, { rank, element });
          expect(targetAt(state, structure, rank, place!)).toEqual({ rank, element });
        }
      });
    }
  },
);
