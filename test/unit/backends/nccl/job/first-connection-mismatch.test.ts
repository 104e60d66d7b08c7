/** Calls that all ranks make, but not alike: what one of them connects or registers for it, the others do not. */
import type { CallOptions, CommError, Communicator } from "twinccl";
import { describe, expect, test } from "vitest";
import { within } from "../../../../support/planted.ts";
import { quickTime } from "../../../../support/quick-time.ts";
import { cleanGpus, turns } from "../gpus.ts";
import { closeRest, joinAll, onAll } from "./joined.ts";

quickTime();

const bytes = (comm: Communicator, length = comm.size) => comm.alloc("int8", length).fill(1);

type Call = (comm: Communicator, options: CallOptions) => PromiseLike<unknown>;

const cases: [string, Call][] = [
  [
    "an all-to-allv whose counts one rank alone knows",
    (comm, options) => {
      const known = comm.rank === 0 ? { recvCounts: [1, 1, 1] } : {};
      return comm.allToAllv({ send: bytes(comm), sendCounts: [1, 1, 1], ...known, ...options });
    },
  ],
  [
    "an all-reduce of which one rank alone uses symmetric memory",
    (comm, options) => {
      const send = comm.alloc("int8", 4, { symmetric: comm.rank === 1 });
      return comm.allReduce({ send, op: "max", ...options });
    },
  ],
  [
    "an all-to-allv of which the counts are no transposes",
    (comm, options) => {
      // Rank 0 expects data that no rank sends.
      const counts = { sendCounts: [0, 0, 0], recvCounts: [0, comm.rank === 0 ? 1 : 0, 0] };
      const [send, recv] = [bytes(comm, 0), bytes(comm, comm.rank === 0 ? 1 : 0)];
      return comm.allToAllv({ send, recv, ...counts, ...options });
    },
  ],
];

const codeOf = (op: PromiseLike<unknown>): Promise<CommError | undefined> =>
  within(
    5000,
    Promise.resolve(op).then(
      () => undefined,
      (error: CommError) => error,
    ),
  );

describe("all ranks made the call, but their barriers differ, and every waiting rank gets that error:", () => {
  test.each(cases)("%s", async (_, call) => {
    const ranks = await joinAll(3, "off", cleanGpus());
    // Deadlines one after another: a rank that queries after another has given up gets the same error.
    const errors = await onAll(ranks, ({ comm }) =>
      codeOf(call(comm, { timeoutMs: 100 + 150 * comm.rank })),
    );
    const late = errors.filter((error) => error !== undefined);
    expect(late.length).toBeGreaterThan(0);
    for (const error of late) {
      expect(error).toMatchObject({ code: "ERR_COMM_TIMEOUT", size: 3, call: 0, ranks: [] });
      expect(error.message).toContain("all ranks made the call, but its setup did not complete");
      expect(error.hint).toContain('compareCalls: "always"');
    }
    await closeRest(ranks);
  });

  test("a rank that arrives after another's timeout gets this as a possible cause", async () => {
    const ranks = await joinAll(2, "off", cleanGpus());
    const all: Call = (comm, options) =>
      comm.allToAll({ send: bytes(comm), recv: bytes(comm), ...options });
    const [early, late] = ranks.map(
      ({ comm }) =>
        () =>
          codeOf(all(comm, { timeoutMs: 100 })),
    );
    expect(await early?.()).toMatchObject({ code: "ERR_COMM_TIMEOUT", ranks: [1] });
    // The store notices that the other rank waits no longer.
    await turns();
    const error = await late?.();
    expect(error).toMatchObject({ code: "ERR_COMM_TIMEOUT", ranks: [] });
    expect(error?.message).toContain("setup did not complete: one rank cancelled, or");
    await closeRest(ranks);
  });

  test("but a missing rank is named", async () => {
    const [, call] = cases[0] as (typeof cases)[0];
    const ranks = await joinAll(3, "off", cleanGpus());
    const errors = await Promise.all(
      ranks.slice(0, 2).map(({ comm }) => codeOf(call(comm, { timeoutMs: 100 }))),
    );
    for (const error of errors) {
      expect(error).toMatchObject({ code: "ERR_COMM_TIMEOUT", ranks: [2] });
      expect(error?.message).toContain("rank 2 had not made it");
    }
    await closeRest(ranks);
  });

  test("and not where the work itself takes long", async () => {
    const gpus = cleanGpus();
    const ranks = await joinAll(3, "off", gpus);
    const all: Call = (comm, options) =>
      comm.allToAll({ send: bytes(comm), recv: bytes(comm), ...options });
    await onAll(ranks, ({ comm }) => all(comm, {}));
    gpus.machine.hold();
    const errors = await onAll(ranks, ({ comm }) => codeOf(all(comm, { timeoutMs: 100 })));
    for (const error of errors) expect(error?.message).toMatch(/: all ranks had made it$/m);
    gpus.machine.release();
    await closeRest(ranks);
  });
});
