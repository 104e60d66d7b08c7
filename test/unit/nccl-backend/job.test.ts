/** What the processes of a job ask each other: who has made a call, and whether they mean the same one. */
import { describe, expect, test } from "vitest";
import type { Session } from "../../../src/api/index.ts";
import { type Checks, Job } from "../../../src/backends/nccl/job.ts";
import { place } from "../nccl-rendezvous/stores.ts";

const never = (): Promise<Session> => Promise.reject(new Error("no further life"));

async function jobs(size: number, checks?: Checks): Promise<Job[]> {
  const members = await (await place(size)).joinAll();
  return members.map((member) => new Job(member, never, checks));
}

function world(size: number, id = 0) {
  const ranks = Array.from({ length: size }, (_, rank) => rank);
  return { id, name: "world", ranks, local: [0] };
}

describe("a roll call", () => {
  test("names the ranks that have not made the call", async () => {
    const [asker, behind, there] = (await jobs(3)) as [Job, Job, Job];
    const comm = world(3);
    asker.made(comm, 4);
    behind.made(comm, 3);
    there.made(comm, 4);
    expect(await asker.missing(comm, 4)).toEqual([1]);
    behind.made(comm, 4);
    expect(await asker.missing(comm, 4)).toEqual([]);
    expect(await there.missing(comm, 5)).toEqual([0, 1]);
  });

  test("tells communicators apart, and counts one that was never called on as missing", async () => {
    const [asker, other] = (await jobs(2)) as [Job, Job];
    other.made({ ...world(2), name: "world/0" }, 7);
    expect(await asker.missing(world(2), 0)).toEqual([1]);
  });

  test("counts a rank that does not answer as missing", async () => {
    const [asker, quiet] = (await jobs(2)) as [Job, Job];
    quiet.made(world(2), 9);
    quiet.handOver();
    expect(await asker.missing(world(2), 0)).toEqual([1]);
  });
});

describe("a comparison of calls", () => {
  test("gives every rank the signatures of all", async () => {
    const [a, b] = (await jobs(2, "always")) as [Job, Job];
    const both = [a.signatures(world(2), 0, "sum"), b.signatures(world(2), 0, "max")];
    expect(await Promise.all(both)).toEqual([
      ["sum", "max"],
      ["sum", "max"],
    ]);
  });

  test("is left out when it was not asked for, and for a part of the ranks", async () => {
    const [off] = (await jobs(2, "off")) as [Job];
    expect(off.signatures(world(2), 0, "sum")).toBe(undefined);
    const [always] = (await jobs(3, "always")) as [Job];
    expect(always.signatures(world(2), 0, "sum")).toBe(undefined);
  });

  test("is made once for a kind of call", async () => {
    const [a, b] = (await jobs(2, "once")) as [Job, Job];
    await Promise.all([a.signatures(world(2), 0, "sum"), b.signatures(world(2), 0, "sum")]);
    expect(a.signatures(world(2), 1, "sum")).toBe(undefined);
    const other = a.signatures(world(2), 1, "max");
    expect(other).toBeInstanceOf(Promise);
    // Nobody meets it before the job is left.
    await Promise.all([other, b.signatures(world(2), 1, "max")]);
  });
});
