/** Waiting for the answers of several ranks, but not for ever. */
import type { Answer } from "./parts.ts";

/** The outcome. */
export interface Collected {
  /** By rank; `undefined` where none came in time. */
  readonly answers: readonly (Answer | undefined)[];
  /** A line of text for every rank that has no value: those that failed in the order in which they did. */
  readonly faults: readonly string[];
}

/** Once a rank has failed, the others may never end; those that fail of themselves do so soon after. */
const othersMs = 1_000;

/** All answers, or those that came in so long. */
export async function collected(
  promises: readonly Promise<Answer>[],
  patienceMs: number,
): Promise<Collected> {
  const answers = promises.map((): Answer | undefined => undefined);
  const faults: string[] = [];
  const began = performance.now();
  await new Promise<void>((resolve) => {
    let left = promises.length;
    let timer = setTimeout(resolve, patienceMs);
    for (const [rank, each] of promises.entries()) {
      void each.then((answer) => {
        answers[rank] = answer;
        left -= 1;
        if ("fault" in answer) {
          faults.push(`rank ${rank}: ${answer.fault}`);
          clearTimeout(timer);
          timer = setTimeout(resolve, othersMs);
        }
        if (left > 0) return;
        clearTimeout(timer);
        resolve();
      });
    }
  });
  const waited = ((performance.now() - began) / 1000).toFixed(1);
  for (const [rank, answer] of answers.entries()) {
    if (answer === undefined) faults.push(`rank ${rank}: no answer in ${waited} s`);
  }
  return { answers, faults };
}
