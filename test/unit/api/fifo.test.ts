/** A line that is a plain array's `push` and `shift`, whatever is done in between. */
import fc from "fast-check";
import { expect, test } from "vitest";
import { Fifo } from "../../../src/api/ledger/streams.ts";
import { holds } from "../../support/seed.ts";

const steps = fc.array(
  fc.record({
    kind: fc.constantFrom("push", "shift", "clear"),
    times: fc.integer({ min: 1, max: 150 }),
  }),
  { maxLength: 12 },
);

test("behaves like an array, first in, first out", async () => {
  await holds(
    steps,
    (drawn) => {
      const [line, norm] = [new Fifo<number>(), [] as number[]];
      let next = 0;
      for (const { kind, times } of drawn) {
        if (kind === "clear" && times < 10) {
          line.clear();
          norm.length = 0;
        }
        for (let time = 0; time < times; time++) {
          if (kind === "push") {
            line.push(next);
            norm.push(next++);
          } else if (kind === "shift") expect(line.shift()).toBe(norm.shift());
          expect([line.length, line.first]).toEqual([norm.length, norm[0]]);
        }
        expect(line.items()).toEqual(norm);
        expect(norm.map((_, at) => line.at(at))).toEqual(norm);
        expect(line.at(norm.length)).toBeUndefined();
      }
    },
    200,
  );
});
