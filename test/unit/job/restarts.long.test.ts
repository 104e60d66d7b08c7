/** A job with ranks that leave in order and join again: it restarts, at the same place, once all of them have left. */
import { randomBytes } from "node:crypto";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { describe, expect, test } from "vitest";
import { fileRendezvous } from "../../../src/job/file-rendezvous.ts";
import type { Membership, Rendezvous } from "../../../src/job/rendezvous.ts";
import { tcpRendezvous } from "../../../src/job/tcp-rendezvous.ts";
import { freePort } from "../../support/free-port.ts";
import { closeAfter } from "../../support/opened.ts";
import { launch, scratch, script } from "./launched.ts";
import { bytes, errorOf, fragile, place, text } from "./stores.ts";

/** Where ranks meet, as each of them makes it. */
type Meet = () => Rendezvous;

const places: Readonly<Record<string, (size: number) => Promise<Meet>>> = {
  "hosted by the launcher": async (size) => {
    const at = await place(size, { jobId: "again" });
    return () => at.rendezvous;
  },
  "at a port of rank 0": async () => {
    const [port, secret] = [await freePort(), randomBytes(16).toString("hex")];
    return () => tcpRendezvous({ port, secret });
  },
  "at a file of rank 0": async () => {
    const folder = mkdtempSync(join(tmpdir(), "twinccl-again-"));
    closeAfter(async () => rmSync(folder, { recursive: true }));
    return () => fileRendezvous({ path: folder });
  },
};

const wait = (ms: number): Promise<void> => new Promise((resolve) => setTimeout(resolve, ms));

describe.each(Object.entries(places))("%s", (_, meetAt) => {
  const joining = (meet: Meet, rank: number, size: number, deadlineMs = 10_000) =>
    meet().join({ jobId: "again", rank, size, deadlineMs });

  // Whichever rank leaves last, each of the others requests the next generation while it is still in the one before.
  test.each([0, 1, 2])(
    "ranks join again and again where rank %i is the last to leave",
    async (last) => {
      const meet = await meetAt(3);
      const restarts = await Promise.all(
        [0, 1, 2].map(async (rank) => {
          const heard: string[] = [];
          for (let restart = 0; restart < 3; restart++) {
            const member = await joining(meet, rank, 3);
            expect(member).toMatchObject({ rank, size: 3, initialRanks: [0, 1, 2], lost: [] });
            // Keys of the previous start are gone.
            if (rank === 0) await member.set("k", bytes(`restart ${restart}`));
            const values = await member.exchange("who", bytes(`${rank} of ${restart}`));
            heard.push(text(await member.get("k")), ...values.map(text));
            if (rank === last) await wait(80);
            await member.leave();
          }
          return heard;
        }),
      );
      const needed = [0, 1, 2].flatMap((restart) => [
        `restart ${restart}`,
        ...[0, 1, 2].map((rank) => `${rank} of ${restart}`),
      ]);
      expect(restarts).toEqual([needed, needed, needed]);
    },
  );

  test("a rank that joins again gets an error at its deadline with the ranks that have not left", async () => {
    const meet = await meetAt(3);
    const members = await Promise.all([0, 1, 2].map((rank) => joining(meet, rank, 3)));
    await members[1]!.leave();
    const began = performance.now();
    const error = await errorOf(joining(meet, 1, 3, 400));
    expect(performance.now() - began).toBeLessThan(6_000);
    expect(error).toMatchObject({
      ...{ name: "RendezvousError", code: "ERR_COMM_RENDEZVOUS", rank: 1 },
      ...{ missing: [0, 2], ranks: [0, 2] },
    });
    expect(error.message).toContain("this rank has left the job, and ranks 0, 2 not yet");
    // The others go on as if there were no request.
    await members[2]!.set("k", bytes("v"));
    expect(text(await members[0]!.get("k"))).toBe("v");
    await Promise.all([0, 2].map((rank) => members[rank]!.leave()));
  });

  test("a second join is cancelled by its signal", async () => {
    const meet = await meetAt(2);
    const members = await Promise.all([0, 1].map((rank) => joining(meet, rank, 2)));
    await members[1]!.leave();
    const signal = AbortSignal.timeout(100);
    const request = { jobId: "again", rank: 1, size: 2, signal };
    expect(await errorOf(meet().join(request))).toMatchObject({ code: "ERR_COMM_ABORTED" });
    await members[0]!.leave();
  });
});

describe("at a rendezvous of a launcher", () => {
  test("a rank that was lost does not come back while others are there, and does once they have left", async () => {
    const at = await place(3);
    const ranks = await fragile(at, 3);
    ranks[2]!.cut();
    await new Promise<void>((resolve) => void ranks[0]!.member.onLost(() => resolve()));
    await ranks[0]!.member.leave();
    const refused = await errorOf(at.join(2));
    expect(refused.message).toContain("a rank that was lost cannot come back");
    const again = at.join(0);
    await wait(30);
    await ranks[1]!.member.leave();
    const members = await Promise.all([again, at.join(1), at.join(2)]);
    expect(members.map(({ rank, size }) => [rank, size])).toEqual(
      [0, 1, 2].map((rank) => [rank, 3]),
    );
  });

  test("a rank that has left waits for survivors that continued without it", async () => {
    const at = await place(3);
    const members = await at.joinAll();
    await members[0]!.leave();
    const again = at.join(0);
    const next: Membership[] = await Promise.all(
      [1, 2].map((rank) => members[rank]!.rejoin({ without: [0] })),
    );
    expect(next.map(({ rank, initialRanks }) => [rank, initialRanks])).toEqual([
      [0, [1, 2]],
      [1, [1, 2]],
    ]);
    await wait(50);
    await Promise.all(next.map((member) => member.leave()));
    const fresh = await Promise.all([again, at.join(1), at.join(2)]);
    expect(fresh.map(({ rank, size }) => [rank, size])).toEqual([0, 1, 2].map((rank) => [rank, 3]));
  });
});

describe("real processes", () => {
  // Each rank joins the restarted job while rank 0 closes the previous store, at slightly different times.
  test.each(["file", "port"])(
    "with rank 0 hosting the %s join and leave many times",
    async (how) => {
      const path = script(
        `restarts-by-${how}.mjs`,
        `const own = { ...process.env, TWINCCL_STORE: "", TWINCCL_PORT: process.argv[2] };
       if (process.argv[3]) own.TWINCCL_RENDEZVOUS_FILE = process.argv[3];
       const there = rendezvousFor(launcherEnvironment(own));
       for (let restart = 0; restart < 40; restart++) {
         const member = await there.join({ jobId, rank, size, deadlineMs: 20000 });
         const all = await member.exchange("who", bytes(rank + " of " + restart));
         if (all.map(text).join() !== [0, 1, 2].map((each) => each + " of " + restart).join()) throw all;
         const until = performance.now() + ((restart * 7 + rank * 11) % 13) / 4;
         while (performance.now() < until) await new Promise(setImmediate);
         await member.leave();
       }
       console.log("done");`,
      );
      const file = how === "file" ? [scratch("restarts.rendezvous")] : [];
      const { status, lines, err } = await launch([
        "-n",
        "3",
        path,
        String(await freePort()),
        ...file,
      ]).ended;
      expect({ status, lines }, err).toEqual({
        status: 0,
        lines: ["[0] done", "[1] done", "[2] done"],
      });
    },
  );
});

test("real processes join and leave three times", async () => {
  const path = script(
    "again.mjs",
    `for (let restart = 0; restart < 3; restart++) {
       const member = await join();
       const all = await member.exchange("who", bytes(rank + " of " + restart));
       console.log(all.map(text).join(", "));
       if (rank === restart) await new Promise((resolve) => setTimeout(resolve, 100));
       await member.leave();
     }`,
  );
  const { status, lines } = await launch(["-n", "3", path]).ended;
  const needed = [0, 1, 2].flatMap((rank) =>
    [0, 1, 2].map((restart) => `[${rank}] 0 of ${restart}, 1 of ${restart}, 2 of ${restart}`),
  );
  expect({ status, lines: [...lines].sort() }).toEqual({ status: 0, lines: needed.sort() });
});
