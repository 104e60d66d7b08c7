/** The ranks that a late call's error names: those that have not made the call, as the communicator numbers them. */
import type { CommError, Communicator } from "twinccl";
import { describe, expect, test, vi } from "vitest";
import { fakeGpus, ncclError } from "../../../../support/fake-gpus/index.ts";
import { within } from "../../../../support/planted.ts";
import { quickTime } from "../../../../support/quick-time.ts";
import { fragile, place } from "../../../job/stores.ts";
import { cleanGpus, inWorld, seen, turns } from "../gpus.ts";
import { closeAll, closeRest, type Joined, joinAll, onAll } from "./joined.ts";

quickTime();

const thrown = (op: PromiseLike<unknown>): Promise<CommError> =>
  Promise.resolve(op).then(
    () => Promise.reject(new Error("nothing failed")),
    (error: CommError) => error,
  );

describe("a rank with a call that NCCL refused", () => {
  test.each([
    ["the first time", 0],
    ["made again", 2],
    ["made as a list", 70],
  ])("has not made it, in the errors of the others: %s", async (_, before) => {
    const gpus = cleanGpus();
    const ranks = await joinAll(2, "off", gpus);
    const [a, b] = ranks as [Joined, Joined];
    const args = ranks.map(({ comm }) => ({ send: comm.alloc("int8", 4), op: "sum" as const }));
    const call = ({ comm }: Joined, more = {}) =>
      comm.allReduce({ ...(args[comm.rank] as (typeof args)[0]), ...more });
    for (let i = 0; i < before; i++) await onAll(ranks, (joined) => call(joined));
    const planned = ncclError("ncclAllReduce", 2, "ncclSystemError");
    const late = thrown(call(a, { timeoutMs: 100 }));
    gpus.machine.failNext("allReduce", planned);
    const facts = { rank: 1, size: 2, collective: "allReduce", call: before, device: "cuda:1" };
    expect(await thrown(call(b))).toEqual(seen(planned, facts));
    expect(await within(5000, late)).toMatchObject({
      ...{ code: "ERR_COMM_TIMEOUT", rank: 0, size: 2, call: before, ranks: [1] },
    });
    await closeAll(ranks);
  });

  test("also where the others were waited for before", async () => {
    const gpus = cleanGpus();
    const ranks = await joinAll(2, "off", gpus);
    const call = ({ comm }: Joined) => {
      const [send, recv] = [comm.alloc("int8", 2), comm.alloc("int8", 2)];
      return thrown(comm.allToAll({ send, recv, timeoutMs: 200 }));
    };
    const planned = ncclError("ncclAllToAll", 2, "ncclSystemError");
    gpus.machine.failNext("alltoAll", planned, 1);
    const errors = await within(5000, Promise.all(ranks.map(call)));
    const late = errors.find(({ code }) => code === "ERR_COMM_TIMEOUT");
    const refused = errors.find(({ code }) => code === "ERR_COMM_NCCL");
    expect(late?.ranks).toEqual([refused?.rank]);
    await closeAll(ranks);
  });
});

describe.each(["once", "always"] as const)(
  "a call that is compared (%s) and not done in time",
  (compareCalls) => {
    test("names the missing rank, not those with calls that are compared too", async () => {
      const ranks = await joinAll(3, compareCalls);
      const [a, , c] = ranks as [Joined, Joined, Joined];
      const waiting = thrown(a.comm.barrier({ timeoutMs: 1000 }));
      const late = await thrown(c.comm.barrier({ timeoutMs: 100 }));
      expect(late).toMatchObject({ code: "ERR_COMM_TIMEOUT", rank: 2, call: 0, ranks: [1] });
      expect(late.message).toContain("rank 1 had not made it");
      // One that gave up had come: what is wanting is the same as before.
      expect(await waiting).toMatchObject({ code: "ERR_COMM_TIMEOUT", rank: 0, ranks: [1] });
      await closeRest(ranks);
    });

    test("names it also for calls that wait behind that one", async () => {
      const ranks = await joinAll(3, compareCalls);
      const [a, , c] = ranks as [Joined, Joined, Joined];
      const ends = [a, c].map(async ({ comm }) => {
        const first = thrown(comm.barrier({ timeoutMs: 3000 }));
        const behind = await thrown(comm.barrier({ timeoutMs: 100 }));
        return [behind, await first];
      });
      const all = await Promise.all(ends);
      // The first rank to fail may end the communicator for the other's calls too.
      const late = all.flatMap(([behind]) => (behind?.code === "ERR_COMM_TIMEOUT" ? [behind] : []));
      expect(late).not.toEqual([]);
      for (const error of late) expect(error).toMatchObject({ call: 1, ranks: [1] });
      for (const [, first] of all) expect(first).toMatchObject({ code: "ERR_COMM_ABORTED" });
      await closeRest(ranks);
    });

    test("names the rank with an open comparison, after an earlier agreement", async () => {
      const ranks = await joinAll(3, compareCalls);
      const reduce = ({ comm }: Joined, count: number) =>
        comm.allReduce({ send: comm.alloc("int8", count), op: "sum", timeoutMs: 300 });
      await onAll(ranks, (joined) => reduce(joined, 4));
      const ends = await Promise.all(
        ranks.map((joined) => thrown(reduce(joined, joined.comm.rank === 1 ? 5 : 4))),
      );
      if (compareCalls === "once") expect(ends).toMatchObject([{ ranks: [1] }, {}, { ranks: [1] }]);
      else expect(ends).toMatchObject(ranks.map(() => ({ code: "ERR_COMM_MISMATCH", ranks: [1] })));
      await closeAll(ranks);
    });
  },
);

describe("a call on the communicator of a split that is not done in time", () => {
  const text = 'barrier: call 0 on "world/1" was not done within 50 ms: rank 1 had not made it';

  test("names ranks of that communicator, and in the hint those of the job", async () => {
    const ranks = await joinAll(4);
    const halves = await onAll(ranks, ({ comm }) => comm.split({ color: comm.rank > 1 ? 1 : 0 }));
    const error = await thrown((halves[2] as Communicator).barrier({ timeoutMs: 50 }));
    const facts = { rank: 0, size: 2, comm: "world/1", ranks: [1] };
    expect(error).toMatchObject({ code: "ERR_COMM_TIMEOUT", ...facts });
    expect(error.message).toContain(text);
    expect(error.hint).toBe(
      "the communicator was aborted; look at the logs of rank 3 of the job, then go on with the survivors by comm.rebuild()",
    );
    await turns();
    const other = await thrown((halves[3] as Communicator).barrier({ timeoutMs: 50 }));
    expect(other).toMatchObject({ rank: 1, size: 2, comm: "world/1", ranks: [] });
    await closeAll(ranks);
  });

  test("names them also where a message is late", async () => {
    const ranks = await joinAll(3);
    const halves = await onAll(ranks, ({ comm }) => comm.split({ color: comm.rank > 0 ? 1 : 0 }));
    for (const half of halves.slice(1) as Communicator[]) {
      const peer = 1 - half.rank;
      const error = await thrown(half.recv({ recv: half.alloc("int8", 1), peer, timeoutMs: 50 }));
      expect(error).toMatchObject({ rank: 1 - peer, size: 2, comm: "world/1", ranks: [peer] });
    }
    await closeAll(ranks);
  });

  test.each([
    ["a collective call", (half: Communicator) => half.barrier({ timeoutMs: 400 })],
    [
      "a message",
      (half: Communicator) => {
        const recv = half.alloc("int8", 1);
        return half.recv({ recv, peer: 2, timeoutMs: 400 });
      },
    ],
  ])("names them in %s after the loss of a rank outside of it", async (_, late) => {
    const fragiles = await fragile(await place(4), 4);
    const members = fragiles.map(({ member }) => member);
    const ranks = await joinAll(4, "off", fakeGpus(), 5_000, members);
    const halves = (await onAll(ranks, ({ comm }) =>
      comm.split({ color: comm.rank < 3 ? 0 : 1 }),
    )) as Communicator[];
    const survivors = halves.slice(0, 3);
    await Promise.all(survivors.map((half) => half.barrier()));
    const known = members
      .slice(0, 3)
      .map((member) => new Promise((resolve) => member.onLost(resolve)));
    fragiles[3]?.cut();
    await Promise.all(known);
    await Promise.all(survivors.map((half) => half.barrier()));
    const errors = await Promise.all(survivors.slice(0, 2).map((half) => thrown(late(half))));
    for (const error of errors) expect(error.ranks).toEqual([2]);
    await closeRest(ranks.slice(0, 3), survivors);
  });

  test("names them where all ranks live in one process", async () => {
    await inWorld(cleanGpus(), 4, (world) =>
      world.run(async (comm) => {
        const half = await comm.split({ color: comm.rank > 1 ? 1 : 0 });
        if (comm.rank !== 2) return;
        const error = await thrown(half.barrier({ timeoutMs: 50 }));
        expect(error).toMatchObject({ rank: 0, size: 2, comm: "world/1", ranks: [1] });
        expect(error.message).toContain(text);
        expect(error.hint).toMatch(/what rank 3 of the world did instead.*world\.rebuild\(\)$/);
      }),
    );
  });

  test("reports a slow call where the work itself took longer", async () => {
    const gpus = cleanGpus();
    await inWorld(gpus, 1, (world) =>
      world.run(async (comm) => {
        gpus.machine.hold();
        const error = await thrown(comm.barrier({ timeoutMs: 50 }));
        expect(error).toMatchObject({ ranks: [], hint: expect.stringMatching(/timeoutMs/) });
      }),
    );
  });
});

test("many ranks are queried without a warning of Node.js", async () => {
  const warn = vi.spyOn(process, "emitWarning").mockReturnValue(undefined);
  try {
    const size = 12;
    const ranks = await joinAll(size, "off", cleanGpus({ devices: size }));
    const here = ranks.slice(0, -1);
    const late = here.map(({ comm }) => {
      const send = comm.alloc("int8", 4);
      return thrown(comm.allReduce({ send, op: "sum", timeoutMs: 300 }));
    });
    for (const error of await within(5000, Promise.all(late))) {
      expect(error).toMatchObject({ code: "ERR_COMM_TIMEOUT", ranks: [size - 1] });
    }
    expect(warn.mock.calls).toEqual([]);
    await closeRest(ranks);
  } finally {
    warn.mockRestore();
  }
});
