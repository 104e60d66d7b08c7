/** Queries among the processes of a job: the ranks that have made a call. */
import { CommAbortedError } from "twinccl";
import { describe, expect, test, vi } from "vitest";
import type { RankCall, Session } from "../../../src/api/backend-entry.ts";
import { Job } from "../../../src/job/job.ts";
import type { Membership } from "../../../src/job/rendezvous.ts";
import { within } from "../../support/planted.ts";
import { quickTime } from "../../support/quick-time.ts";
import { place } from "./stores.ts";

quickTime();

const never = {
  open: (): Promise<Session> => Promise.reject(new Error("no further generation")),
  timeoutMs: 1_000,
};

async function jobs(size: number): Promise<Job[]> {
  const members = await (await place(size)).joinAll();
  return members.map((member) => new Job(member, never));
}

function world(size: number, id = 0) {
  const ranks = Array.from({ length: size }, (_, rank) => rank);
  return { id, name: "world", ranks, local: [0] };
}

type Comm = ReturnType<typeof world>;

/** A rank's call: nothing else of it matters here. */
const call = (rank: number) => ({ rank }) as RankCall;

/** A process makes calls up to number `last` on a communicator. */
function countSubmitted(job: Job, comm: ReturnType<typeof world>, last: number): void {
  job.countersOf(comm).submitted = last + 1;
}

async function missing(job: Job, comm: Comm, number: number): Promise<readonly number[]> {
  return (await job.missingRanks(comm, number)).ranks;
}

describe("a status query", () => {
  test("names the ranks that have not made the call", async () => {
    const [asker, behind, there] = (await jobs(3)) as [Job, Job, Job];
    const comm = world(3);
    countSubmitted(asker, comm, 4);
    countSubmitted(behind, comm, 3);
    countSubmitted(there, comm, 4);
    expect(await missing(asker, comm, 4)).toEqual([1]);
    countSubmitted(behind, comm, 4);
    expect(await missing(asker, comm, 4)).toEqual([]);
    expect(await missing(there, comm, 5)).toEqual([0, 1]);
  });

  test("reports a rank that waits in a barrier after all have made the call", async () => {
    const [asker, meets, there] = (await jobs(3)) as [Job, Job, Job];
    const comm = world(3);
    for (const job of [asker, meets]) countSubmitted(job, comm, 4);
    meets.countersOf(comm).atBarrier = 4;
    expect(await asker.missingRanks(comm, 4)).toEqual({
      ranks: [2],
      silent: [],
      haveDiverged: false,
    });
    countSubmitted(there, comm, 4);
    for (const job of [asker, meets, there]) {
      expect(await job.missingRanks(comm, 4)).toEqual({
        ranks: [],
        silent: [],
        haveDiverged: true,
      });
    }
    expect(await asker.missingRanks(comm, 3)).toEqual({
      ranks: [],
      silent: [],
      haveDiverged: false,
    });
    meets.countersOf(comm).atBarrier = undefined;
    expect(await asker.missingRanks(comm, 4)).toEqual({
      ranks: [],
      silent: [],
      haveDiverged: false,
    });
  });

  test("distinguishes communicators, and counts one that was never called on as missing", async () => {
    const [asker, other] = (await jobs(2)) as [Job, Job];
    // Alike in name and ranks, and another one.
    const [first, second] = [0, 1].map((call) => {
      const child = { ...world(2, 1), name: "world/0" };
      for (const job of [asker, other]) job.addChildren(world(2), call, [child]);
      return child;
    }) as [ReturnType<typeof world>, ReturnType<typeof world>];
    countSubmitted(other, second, 7);
    expect(await missing(asker, world(2), 0)).toEqual([1]);
    expect(await missing(asker, first, 0)).toEqual([1]);
    expect(await missing(asker, second, 7)).toEqual([]);
  });

  test("counts a rank that does not answer as missing", async () => {
    const [member] = await (await place(2)).joinAll();
    const asker = new Job(member as Membership, never);
    expect(await missing(asker, world(2), 0)).toEqual([1]);
  });

  test("is answered by a rank that joins the next generation, until that generation starts", async () => {
    const [asker, ahead] = (await jobs(2)) as [Job, Job];
    countSubmitted(ahead, world(2), 9);
    ahead.rejoin(undefined, () => Promise.resolve()).catch(() => undefined);
    expect(await missing(asker, world(2), 9)).toEqual([]);
    expect(await missing(asker, world(2), 10)).toEqual([1]);
  });

  test("counts calls on the last communicators that have ended", async () => {
    const [asker, other] = (await jobs(2)) as [Job, Job];
    const children = Array.from({ length: 70 }, (_, call) => {
      const child = { ...world(2, 1 + call), name: "world/0" };
      for (const job of [asker, other]) job.addChildren(world(2), call, [child]);
      return child;
    });
    for (const child of children) {
      countSubmitted(other, child, 0);
      other.retire(child);
    }
    const [first, last] = [children[0], children.at(-1)] as [Comm, Comm];
    expect(await missing(asker, last, 0)).toEqual([]);
    expect(await missing(asker, first, 0)).toEqual([1]);
  });

  test("reports messages: the rank that has not made its end, until it is there", async () => {
    const [asker, other] = (await jobs(2)) as [Job, Job];
    const comm = world(2);
    const half = { direction: "send", peer: 1, number: 4, call: call(0) } as const;
    expect(await asker.missingEnds(comm, [half])).toEqual({ ranks: [1], silent: [] });
    const end = { direction: "recv", peer: 0, call: call(1) } as const;
    other.countersOf(comm).messagesSubmitted([{ ...end, number: 3 }]);
    expect(await asker.missingEnds(comm, [half])).toEqual({ ranks: [1], silent: [] });
    other.countersOf(comm).messagesSubmitted([{ ...end, number: 4 }]);
    expect(await asker.missingEnds(comm, [half])).toEqual({ ranks: [], silent: [] });
    other.countersOf(comm).messagesFailed([{ ...end, number: 4 }]);
    expect(await asker.missingEnds(comm, [half])).toEqual({ ranks: [1], silent: [] });
  });

  test("is answered separately for simultaneous queries about different calls", async () => {
    const [first, second, other] = (await jobs(3)) as [Job, Job, Job];
    const comm = world(3);
    countSubmitted(other, comm, 7);
    const half = { direction: "send", peer: 2, number: 0, call: call(1) } as const;
    const answers = await Promise.all([
      missing(first, comm, 7),
      second.missingEnds(comm, [half]),
      missing(first, comm, 8),
    ]);
    expect(answers).toEqual([[1], { ranks: [2], silent: [] }, [1, 2]]);
  });

  test("succeeds after an answer that was too large for the store", async () => {
    const [asker, other] = (await jobs(2)) as [Job, Job];
    const many = { ...world(2, 1), name: "world/0" };
    for (const job of [asker, other]) job.addChildren(world(2), 0, [many]);
    countSubmitted(other, many, 0);
    const ends = vi.spyOn(other.countersOf(many), "messageCounts");
    ends.mockReturnValue({ posted: Array.from({ length: 2 ** 18 }, () => [1, 1]), waiting: [] });
    const half = { direction: "send", peer: 1, number: 0, call: call(0) } as const;
    expect(await asker.missingEnds(many, [half])).toEqual({ ranks: [1], silent: [1] });
    expect(await missing(asker, many, 0)).toEqual([]);
  });

  test("ends soon where the store is silent", async () => {
    const members = await (await place(2)).joinAll();
    const [silent] = members as [Membership, Membership];
    const [asker] = members.map((member) => new Job(member, never)) as [Job, Job];
    vi.spyOn(silent, "ask").mockImplementation((_, __, { signal } = {}) => {
      return new Promise((_, reject) => {
        const error = new CommAbortedError({ headline: "cancelled" });
        signal?.addEventListener("abort", () => reject(error));
      });
    });
    const half = { direction: "send", peer: 1, number: 0, call: call(0) } as const;
    const comm = world(2);
    const answers = Promise.all([missing(asker, comm, 0), asker.missingEnds(comm, [half])]);
    expect(await within(5000, answers)).toEqual([[1], undefined]);
  });

  test("counts the calls of a rank that has left since", async () => {
    const [asker, gone] = (await jobs(2)) as [Job, Job];
    countSubmitted(gone, world(2), 3);
    await gone.leave();
    expect(await missing(asker, world(2), 3)).toEqual([]);
    expect(await missing(asker, world(2), 4)).toEqual([1]);
  });
});
