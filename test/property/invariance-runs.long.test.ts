/** The proof of invariance beside calls of the simulation: every count of a window runs, and every element is compared. */
import * as algorithms from "twinccl/algorithms";
import { type Answer, invariance } from "twinccl/algorithms";
import { expect, test } from "vitest";
import { holds } from "../support/seed.ts";
import { drawnQuestions, judge, questionOf } from "../unit/algorithms/invariance/cases.ts";

test("no answer is contradicted by a call", async () => {
  await holds(
    drawnQuestions,
    async (drawn) => {
      const { answers } = invariance(questionOf(drawn, algorithms));
      expect(await judge(drawn, answers[0] as Answer)).toBeUndefined();
    },
    500,
  );
});
