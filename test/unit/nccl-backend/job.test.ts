/** What the processes of a job ask each other: who has made a call. */
import { describe, expect, test } from "vitest";
import type { Session } from "../../../src/api/index.ts";
import { Job } from "../../../src/backends/nccl/job.ts";
import type { Membership } from "../../../src/backends/nccl/rendezvous/index.ts";
import { place } from "../nccl-rendezvous/stores.ts";

const never = {
  open: (): Promise<Session> => Promise.reject(new Error("no further life")),
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

/** A process makes calls up to number `last` on a communicator. */
function made(job: Job, comm: ReturnType<typeof world>, last: number): void {
  job.madeOn(comm).calls = last + 1;
}

describe("a roll call", () => {
  test("names the ranks that have not made the call", async () => {
    const [asker, behind, there] = (await jobs(3)) as [Job, Job, Job];
    const comm = world(3);
    made(asker, comm, 4);
    made(behind, comm, 3);
    made(there, comm, 4);
    expect(await asker.missing(comm, 4)).toEqual([1]);
    made(behind, comm, 4);
    expect(await asker.missing(comm, 4)).toEqual([]);
    expect(await there.missing(comm, 5)).toEqual([0, 1]);
  });

  test("tells communicators apart, and counts one that was never called on as missing", async () => {
    const [asker, other] = (await jobs(2)) as [Job, Job];
    // Alike in name and ranks, and another one.
    const [first, second] = [0, 1].map((call) => {
      const child = { ...world(2, 1), name: "world/0" };
      for (const job of [asker, other]) job.born(world(2), call, [child]);
      return child;
    }) as [ReturnType<typeof world>, ReturnType<typeof world>];
    made(other, second, 7);
    expect(await asker.missing(world(2), 0)).toEqual([1]);
    expect(await asker.missing(first, 0)).toEqual([1]);
    expect(await asker.missing(second, 7)).toEqual([]);
  });

  test("counts a rank that does not answer as missing", async () => {
    const [member] = await (await place(2)).joinAll();
    const asker = new Job(member as Membership, never);
    expect(await asker.missing(world(2), 0)).toEqual([1]);
  });

  test("is answered by a rank that goes on to the next life, until that one begins", async () => {
    const [asker, ahead] = (await jobs(2)) as [Job, Job];
    made(ahead, world(2), 9);
    ahead.handOver();
    expect(await asker.missing(world(2), 9)).toEqual([]);
    expect(await asker.missing(world(2), 10)).toEqual([1]);
  });

  test("knows what a rank had made that has left since", async () => {
    const [asker, gone] = (await jobs(2)) as [Job, Job];
    made(gone, world(2), 3);
    await gone.leave();
    expect(await asker.missing(world(2), 3)).toEqual([]);
    expect(await asker.missing(world(2), 4)).toEqual([1]);
  });
});
