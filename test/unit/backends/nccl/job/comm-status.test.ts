/**
 * Ranks that wait without a deadline on communicators that others have aborted, closed or left behind: the wait fails
 * with the cause.
 */
import type { CommError, Communicator } from "twinccl";
import { describe, expect, test, vi } from "vitest";
import { fakeGpus } from "../../../../support/fake-gpus/index.ts";
import { quickTime } from "../../../../support/quick-time.ts";
import { cleanGpus, turns } from "../gpus.ts";
import { closeAll, errorOf, type Joined, joinAll, onAll } from "./joined.ts";

quickTime();

/** Calls in which a rank may wait for the other one, which makes none of them. */
const waits: readonly (readonly [string, (comm: Communicator) => PromiseLike<unknown>])[] = [
  ["a collective call", (comm) => comm.barrier()],
  ["a first message", (comm) => comm.recv({ recv: comm.alloc("int8", 1), peer: 1 - comm.rank })],
  [
    "a symmetric call",
    (comm) => comm.allReduce({ send: comm.alloc("int8", 4, { symmetric: true }), op: "sum" }),
  ],
  ["a split", (comm) => comm.split({ color: 0 })],
  ["a group", (comm) => comm.group(() => void comm.barrier())],
];

/** All ranks have made calls before. */
async function joined(size: number, gpus = cleanGpus()): Promise<Joined[]> {
  const ranks = await joinAll(size, "off", gpus);
  await onAll(ranks, ({ comm }) => comm.barrier());
  return ranks;
}

describe.each(waits)("a wait in %s", (_, wait) => {
  test("fails when another rank has aborted the communicator, with the reason", async () => {
    const [a, b] = (await joined(2)) as [Joined, Joined];
    const heard: unknown[] = [];
    b.comm.hooks.onAbort((reason) => void heard.push(reason));
    const waiting = errorOf(wait(b.comm));
    await turns(5);
    a.comm.abort(new Error("enough of this"));
    const error = (await waiting) as CommError;
    expect(error).toMatchObject({ code: "ERR_COMM_ABORTED", rank: 1, ranks: [0] });
    expect(error.message).toContain("rank 0 has aborted it");
    expect(error.message).toContain("enough of this");
    expect(error.cause).toMatchObject({ code: "ERR_COMM_REMOTE", ranks: [0] });
    expect(heard).toEqual([error.cause]);
    await closeAll([a, b]);
  });

  test("fails when another rank's deadline has passed", async () => {
    // Host memory that one frees is no other one's where each has a process of its own.
    const ranks = await joined(3, fakeGpus());
    const [a, b, c] = ranks as [Joined, Joined, Joined];
    const [late, waiting] = [errorOf(a.comm.barrier({ timeoutMs: 50 })), errorOf(wait(b.comm))];
    expect(await late).toMatchObject({ code: "ERR_COMM_TIMEOUT", rank: 0 });
    const error = (await waiting) as CommError;
    expect(error).toMatchObject({ code: "ERR_COMM_ABORTED", rank: 1, ranks: [0] });
    expect(error.message).toMatch(
      /rank 0 has aborted it: barrier: call 1 on "world" was not done within 50 ms/,
    );
    // A later call gets the same error.
    expect(await errorOf(c.comm.barrier())).toMatchObject({ code: "ERR_COMM_ABORTED", rank: 2 });
    await closeAll(ranks);
  });
});

test("the end of one communicator elsewhere leaves the others open", async () => {
  const ranks = await joined(2);
  const [a, b] = ranks as [Joined, Joined];
  const [mine, pair] = (await onAll(ranks, ({ comm }) => comm.split({ color: 0 }))) as [
    Communicator,
    Communicator,
  ];
  const late = errorOf(a.comm.barrier({ timeoutMs: 50 }));
  expect(await late).toMatchObject({ code: "ERR_COMM_TIMEOUT" });
  // The part of rank 0 may have been there already.
  await errorOf(b.comm.barrier());
  expect(await errorOf(b.comm.barrier())).toMatchObject({ code: "ERR_COMM_ABORTED", ranks: [0] });
  await Promise.all([mine.barrier(), pair.barrier()]);
  await closeAll(ranks);
});

test("a wait for a call of another rank fails once that rank has closed", async () => {
  const warn = vi.spyOn(process, "emitWarning").mockReturnValue(undefined);
  try {
    const [a, b] = (await joined(2)) as [Joined, Joined];
    const waiting = b.comm.barrier().then(null, (error: unknown) => error);
    await turns(5);
    const closing = a.comm.close();
    expect(await waiting).toMatchObject({
      ...{ code: "ERR_COMM_REMOTE", rank: 1, ranks: [0], collective: "barrier", call: 1 },
      message: expect.stringContaining("rank 0 will not make it: it has closed its end"),
    });
    await Promise.all([closing, b.comm.close()]);
  } finally {
    warn.mockRestore();
  }
}, 40_000);

describe("a rank that was left out when the others rebuilt", () => {
  const withoutTwoAndThree = (ranks: readonly Joined[]) =>
    onAll(ranks.slice(0, 2), ({ comm }) => comm.rebuild({ without: [2, 3] }));

  test.each([
    ["is in a call then", true],
    ["comes to a call later", false],
  ])("and %s fails with the ranks of the next generation", async (_, isEarly) => {
    const ranks = await joined(4, fakeGpus());
    const [, , c, d] = ranks as [Joined, Joined, Joined, Joined];
    const halves = (await onAll(ranks, ({ comm }) =>
      comm.split({ color: comm.rank < 2 ? 0 : 1 }),
    )) as Communicator[];
    // On its own communicator it waits for a rank that was left out as well, which may not come either.
    const wait = () => [errorOf(c.comm.barrier()), errorOf((halves[2] as Communicator).barrier())];
    const early = isEarly ? wait() : [];
    const next = await withoutTwoAndThree(ranks);
    const [onAllRanks, onHalf] = await Promise.all(isEarly ? early : wait());
    expect(onAllRanks).toMatchObject({
      ...{ code: "ERR_COMM_ABORTED", rank: 2, ranks: [0, 1] },
      message: expect.stringContaining("ranks 0, 1 went on without this rank"),
      hint: "this process is in the job no more: let it end",
      cause: { code: "ERR_COMM_REMOTE", ranks: [0, 1] },
    });
    expect(onHalf).toMatchObject({ code: "ERR_COMM_ABORTED", rank: 0, ranks: [] });
    expect(onHalf?.message).toContain("the job went on without this rank");
    expect(await errorOf(d.comm.rebuild())).toMatchObject({
      code: "ERR_COMM_CLOSED",
      ranks: [0, 1],
    });
    // The remaining ranks see nothing of it, and do not wait.
    await Promise.all(next.map((comm) => comm.barrier()));
    await Promise.all([...next, c.comm, d.comm].map((comm) => comm.close()));
  });

  test("closes without waiting for them", async () => {
    const warn = vi.spyOn(process, "emitWarning").mockReturnValue(undefined);
    try {
      const ranks = await joined(4);
      const next = await withoutTwoAndThree(ranks);
      await onAll(ranks.slice(2), ({ comm }) => comm.close());
      expect(warn).not.toHaveBeenCalled();
      await Promise.all(next.map((comm) => comm.close()));
    } finally {
      warn.mockRestore();
    }
  });
});
