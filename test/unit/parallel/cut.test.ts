/** The cut of shared state over files: every element in one file, equal shares, whatever the tensors. */
import fc from "fast-check";
import { bytesOf, dtypes } from "twinccl";
import { expect, test } from "vitest";
import { piecesOf } from "../../../src/parallel/checkpoint/rank-file.ts";

const tensors = fc.array(
  fc.record({
    dtype: fc.constantFrom(...dtypes),
    shape: fc.array(fc.integer({ min: 0, max: 9 }), { maxLength: 3 }),
  }),
  { maxLength: 7 },
);

test("every element is in one file, in order, and lengths differ by padding at most", () => {
  fc.assert(
    fc.property(tensors, fc.integer({ min: 1, max: 12 }), (all, size) => {
      const named = all.map((tensor, at): [string, typeof tensor] => [`t${at}`, tensor]);
      const files = Array.from({ length: size }, (_, rank) => piecesOf(named, rank, size));
      for (const [name, { shape }] of named) {
        const runs = files.flat().filter((piece) => piece.name === name);
        let covered = 0;
        for (const { begin, end } of runs) {
          expect(begin).toBe(covered);
          covered = end;
        }
        expect(covered).toBe(shape.reduce((product, each) => product * each, 1));
        expect(runs.length).toBeGreaterThan(0);
      }
      const widths = new Map(named.map(([name, { dtype }]) => [name, bytesOf(dtype)]));
      const bytes = files.map((pieces) =>
        pieces.reduce((sum, { name, begin, end }) => sum + (end - begin) * widths.get(name)!, 0),
      );
      // Each tensor is padded to a unit of 8 bytes for the cut.
      const slack = 8 + 7 * all.length;
      expect(Math.max(...bytes) - Math.min(...bytes)).toBeLessThanOrEqual(slack);
    }),
    { seed: 3, numRuns: 300 },
  );
});
