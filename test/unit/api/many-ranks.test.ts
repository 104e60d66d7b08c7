/** Reports on very many ranks: equal ones share a line, and the facts still hold each rank. */
import {
  type CollectiveMismatchError,
  type Communicator,
  createWorld,
  type DeadlockError,
  WorldError,
} from "twinccl";
import { sim } from "twinccl/sim";
import { expect, test } from "vitest";

const size = 600;

/** The end of a program's run on so many phantom ranks. */
async function failureOf(
  ranks: number,
  program: (comm: Communicator) => Promise<unknown>,
): Promise<WorldError> {
  const world = await createWorld({ backend: sim({ phantom: true }), size: ranks });
  const error = await world.run(program).catch((thrown: unknown) => thrown);
  await world.close();
  if (error instanceof WorldError) return error;
  throw new Error(`did not fail: ${String(error)}`);
}

const lines = (error: unknown): string[] => (error as Error).message.split("\n");

test("a deadlock: ranks with equal waits share a line", async () => {
  const error = await failureOf(size, async (comm) => {
    if (comm.rank !== 3) await comm.barrier();
  });
  const headline = "deadlock: rank 3 finished without making a call that others wait for";
  expect(lines(error)).toEqual([
    '599 of 600 ranks failed on "world", rank 0 first',
    `  ranks 0..2, 4..599  DeadlockError: ${headline}`,
    '    ranks 0..2, 4..599  waits in barrier  call 0 on "world"  for rank 3',
    "    rank 3              has finished",
    "hint: every rank must make the same calls on a communicator, in the same order",
  ]);
  expect(lines(error.cause)).toEqual([
    headline,
    '  ranks 0..2, 4..599  waits in barrier  call 0 on "world"  for rank 3',
    "  rank 3              has finished",
    "hint: every rank must make the same calls on a communicator, in the same order",
  ]);
  expect(error.failures).toHaveLength(599);
  const { waits } = error.cause as DeadlockError;
  expect(waits.map(({ rank }) => rank)).toEqual(Array.from({ length: size }, (_, rank) => rank));
});

test("a mismatch: ranks with equal calls share a line", async () => {
  const error = await failureOf(size, async (comm) => {
    const send = comm.alloc("float32", comm.rank === 7 ? 7 : 8);
    await comm.allReduce({ send, op: "sum" });
  });
  expect(lines(error.cause)).toEqual([
    'call 0 on "world": rank 7 differs in count',
    "  rank          call                  count",
    "  0..6, 8..599  allReduce float32[8]  8",
    "  7             allReduce float32[7]  7",
    "hint: nothing was written; make the same call on every rank, with equal arguments",
  ]);
  expect((error.cause as CollectiveMismatchError).values).toHaveLength(size);
});

test("ranks with a value each share a line past 32 of them", async () => {
  const error = await failureOf(size, async (comm) => {
    const send = comm.alloc("float32", comm.rank + 1);
    await comm.allReduce({ send, op: "sum" });
  });
  const found = lines(error.cause);
  expect(found).toHaveLength(2 + 32 + 1 + 1);
  expect(found.slice(-3)).toEqual([
    "  31       allReduce float32[32]  32",
    "  32..599  568 more rows",
    "hint: nothing was written; make the same call on every rank, with equal arguments",
  ]);
  expect((error.cause as CollectiveMismatchError).values).toHaveLength(size);
});

test("equal errors of ranks share a line", async () => {
  const error = await failureOf(20, async ({ rank }) => {
    throw new Error(rank % 2 === 0 ? "even" : `odd ${rank}`);
  });
  const rows = lines(error).slice(1, -1);
  expect(
    rows.map((row) => row.replace(/ {2}\S*many-ranks.test.ts:\d+:\d+$/, "")).toSorted(),
  ).toEqual(
    [
      "  ranks 0, 2, 4, 6, 8, 10, 12, 14, 16, 18  Error: even  ",
      ...Array.from({ length: 10 }, (_, half) => {
        const rank = `rank ${2 * half + 1}`;
        return `  ${rank.padEnd(39)}  ${`Error: odd ${2 * half + 1}`.padEnd(13)}`;
      }),
    ].toSorted(),
  );
});

test("a few ranks have a line each", async () => {
  const error = await failureOf(16, async (comm) => {
    if (comm.rank !== 3) await comm.barrier();
  });
  expect(lines(error)).toHaveLength(19);
  expect(lines(error.cause)).toHaveLength(18);
});

test("the JSON of many waiting ranks grows with their number", async () => {
  const lengthOf = async (ranks: number): Promise<number> => {
    const error = await failureOf(ranks, async (comm) => {
      const send = comm.alloc("float32", 8);
      await comm.send({ send, peer: (comm.rank + 1) % ranks });
    });
    return JSON.stringify(error).length;
  };
  expect(await lengthOf(800)).toBeLessThan(3 * (await lengthOf(400)));
});
