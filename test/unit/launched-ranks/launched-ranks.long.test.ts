/** Ranks of a launched job run their test's parts; a failure there is reported at once, and no process is left. */
import { fileURLToPath } from "node:url";
import { afterEach, describe, expect, test } from "vitest";
import { LaunchedRanks } from "../../support/launched-ranks.ts";
import { isRunning } from "../job/launched.ts";
import type { parts } from "./parts.ts";

type Ranks = LaunchedRanks<typeof parts>;

const job = {
  size: 2,
  script: fileURLToPath(new URL("rank.mjs", import.meta.url)),
  openMs: 15_000,
  partMs: 10_000,
};
const open: Ranks[] = [];

/** Opens a job that is closed after the test. */
async function opened(how: { readonly size?: number } = {}): Promise<Ranks> {
  const ranks = await LaunchedRanks.open<typeof parts>({ ...job, ...how });
  open.push(ranks);
  return ranks;
}

afterEach(async () => {
  for (const ranks of open.splice(0)) await ranks.close();
});

test("results are given by rank, with every bit, and processes end when the test closes them", async () => {
  const ranks = await opened({ size: 3 });
  const places = await ranks.each("place");
  expect(places.map(({ rank, size }) => [rank, size])).toEqual([0, 1, 2].map((rank) => [rank, 3]));
  const value = {
    big: [2n ** 64n, -1n],
    nan: new Uint8Array(Uint32Array.of(0x7fc1_2345, 0xffa0_0001).buffer),
    part: Uint16Array.from({ length: 100_000 }, (_, i) => i).subarray(7, 90_000),
    nothing: [undefined, null, -0],
    map: new Map([[1n, new Set(["a"])]]),
  };
  for (let round = 0; round < 3; round++) {
    const needed = [0, 1, 2].map((rank) => ({ rank, value }));
    expect(await ranks.each("echo", value)).toEqual(needed);
  }
  await ranks.close();
  await ranks.close();
  expect(places.map(({ pid }) => isRunning(pid))).toEqual([false, false, false]);
  await expect(ranks.each("place")).rejects.toThrow('part "place": the job has ended');
});

describe("a job", () => {
  const wrong = [
    ["throws", [/rank 1: CommClosedError: planted/, /field: 'send'/, /parts\.ts:\d+/]],
    ["givesFunction", [/rank 1: .*could not be cloned/]],
    ["exits", [/rank 1: its process is gone/, /rank 1 failed first.*exit status 3/]],
    ["exitsWell", [/rank 1: its process is gone/]],
    ["isKilled", [/rank 1: its process is gone/, /rank 1 failed first.*SIGKILL/]],
    ["neverAnswers", [/rank 1: no answer in ([2-9]|\d{2,})\.\d s/, /\[1\] rank 1 begins/]],
    ["neverReturns", [/rank 1: no answer in ([2-9]|\d{2,})\.\d s/]],
  ] as const;

  test.each(wrong)(
    "with rank 1 in the part %s reports the failure and is over",
    async (part, patterns) => {
      const ranks = await opened();
      const pids = (await ranks.each("place")).map(({ pid }) => pid);
      if (part.startsWith("never")) ranks.partMs = 2000;
      const began = performance.now();
      const failure = await ranks.each(part).catch((error: unknown) => error);
      expect(performance.now() - began).toBeLessThan(25_000);
      expect(failure).toBeInstanceOf(Error);
      const { message } = failure as Error;
      // The launcher stops rank 0 for what became of rank 1: on a busy machine both are seen to be gone at once.
      const stopped =
        part === "exits" || part === "isKilled" ? "(rank 0: its process is gone\n)?" : "";
      expect(message).toMatch(new RegExp(`^part "${part}" on 2 ranks failed\n${stopped}rank 1: `));
      for (const each of patterns) expect(message).toMatch(each);
      expect(pids.map(isRunning)).toEqual([false, false]);
      await expect(ranks.each("place")).rejects.toThrow("the job has ended");
    },
  );

  test("that ends before all ranks start does not open", async () => {
    const opening = LaunchedRanks.open({ ...job, args: ["early"] });
    await expect(opening).rejects.toThrow(/^opening on 2 ranks failed\n(.*\n)*.*exit status 5/);
  });

  test("that does not start in time does not open", async () => {
    const opening = LaunchedRanks.open({ ...job, args: ["never"], openMs: 3000 });
    await expect(opening).rejects.toThrow(/rank 1: no answer in ([3-9]|\d{2,})\.\d s\n/);
  });

  test("with a rank that ends with an error does not close without one", async () => {
    const ranks = await LaunchedRanks.open({ ...job, args: ["late"] });
    await expect(ranks.close()).rejects.toThrow(/^closing 2 ranks: status 5\n/);
  });
});
