/** The ranks that keep messages waiting, found from report to report. */
import { expect, test, vi } from "vitest";
import type { Message, MessageCounts } from "../../../src/job/comm-status.ts";
import { blockingRanks } from "../../../src/job/missing-ranks.ts";

/** A message of a world of four: `"0>1 #2"` is the third from 0 to 1. */
function message(text: string): Message {
  const [, from, to, number] = /^(\d)>(\d) #(\d+)$/u.exec(text) as unknown as string[];
  return [4 * Number(from) + Number(to), Number(number)];
}

/** A rank's report: the number of its calls, and those that wait. */
function says(made: readonly string[], waiting: readonly string[] = []): MessageCounts {
  const counts = made.map((text): [number, number] => {
    const [pair, number] = message(text);
    return [pair, number + 1];
  });
  return { posted: counts, waiting: waiting.map(message) };
}

function lacking(
  rank: number,
  together: readonly string[],
  words: Readonly<Record<number, MessageCounts>>,
) {
  const of = vi.fn(async (each: number) => words[each] ?? says([]));
  return blockingRanks(4, of, rank, together.map(message)).then((ranks) => ({ ranks, of }));
}

test.each<[string, readonly string[], Readonly<Record<number, MessageCounts>>, readonly number[]]>([
  ["one that has said nothing", ["0>1 #0"], {}, [1]],
  ["one that has made fewer", ["0>1 #2"], { 1: says(["0>1 #1"]) }, [1]],
  ["one that has made the other direction", ["0>1 #0"], { 1: says(["1>0 #0"]) }, [1]],
  ["no rank where the end is there", ["0>1 #1"], { 1: says(["0>1 #1"]) }, []],
  ["no rank where more are there", ["0>1 #1"], { 1: says(["0>1 #7"]) }, []],
  ["of several all that lack", ["0>1 #0", "3>0 #0", "0>2 #0"], { 1: says(["0>1 #0"]) }, [2, 3]],
  [
    "whom a rank waits for that has come",
    ["0>1 #0"],
    { 0: says(["0>1 #0"]), 1: says(["0>1 #0", "1>2 #0"], ["0>1 #0", "1>2 #0"]) },
    [2],
  ],
  [
    "whom a rank waits for that another one waits for",
    ["0>1 #0"],
    {
      0: says(["0>1 #0"]),
      1: says(["0>1 #0", "1>2 #0"], ["0>1 #0", "1>2 #0"]),
      2: says(["1>2 #0", "3>2 #4"], ["1>2 #0", "3>2 #4"]),
      3: says(["3>2 #3"]),
    },
    [3],
  ],
  [
    "the nearest that lacks",
    ["0>1 #0", "0>2 #0"],
    { 1: says(["0>1 #0", "3>1 #0"], ["0>1 #0", "3>1 #0"]) },
    [2],
  ],
  [
    "the asker, where its own call stands in line",
    ["0>1 #0"],
    { 1: says(["0>1 #0"], ["0>1 #0"]) },
    [0],
  ],
  [
    "the asker, where others wait for it",
    ["0>1 #0"],
    { 0: says(["0>1 #0"]), 1: says(["0>1 #0", "1>0 #0"], ["0>1 #0", "1>0 #0"]) },
    [0],
  ],
  [
    "no rank of a ring that has come",
    ["0>1 #0"],
    {
      0: says(["0>1 #0", "2>0 #0"], ["0>1 #0", "2>0 #0"]),
      1: says(["0>1 #0", "1>2 #0"], ["0>1 #0", "1>2 #0"]),
      2: says(["1>2 #0", "2>0 #0"], ["1>2 #0", "2>0 #0"]),
    },
    [],
  ],
])("names %s", async (_, together, words, expected) => {
  const { ranks, of } = await lacking(0, together, words);
  expect(ranks).toEqual(expected);
  // Each rank is queried once.
  const queried = of.mock.calls.map(([rank]) => rank);
  expect(new Set(queried).size).toBe(queried.length);
});

test("many messages of one pair need one status query", async () => {
  const together = Array.from({ length: 20_000 }, (_, number) => `0>1 #${number}`);
  const { ranks, of } = await lacking(0, together, { 1: says(["0>1 #19998"]) });
  expect(ranks).toEqual([1]);
  expect(of).toHaveBeenCalledOnce();
});
