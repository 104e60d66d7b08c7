/** A store that is killed at every message of a job's life and starts again: each wait ends by name, and the job forms anew. */
import { CommError } from "twinccl";
import { expect, test } from "vitest";
import type { Membership } from "../../../src/job/rendezvous.ts";
import { StoreServer } from "../../../src/job/server.ts";
import { tcpRendezvous } from "../../../src/job/tcp-rendezvous.ts";
import { closeAfter } from "../../support/opened.ts";
import { within } from "../../support/planted.ts";
import { quickTime } from "../../support/quick-time.ts";
import { isAll } from "../../support/seed.ts";
import { bytes, relay, text } from "./stores.ts";

quickTime();

const [jobId, secret, size] = ["restarted", "a secret of this test", 2] as const;

const listen = () => StoreServer.listen({ jobId, size, hosted: false, secret, port: 0 });

/** The life of a rank in a job; gives its last step, and the error that ended it. */
async function live(port: number, rank: number): Promise<[string, unknown]> {
  const rendezvous = tcpRendezvous({ port, secret, host: "other" });
  let step = "join";
  let member: Membership | undefined;
  try {
    member = await rendezvous.join({ jobId, rank, size, deadlineMs: 5_000 });
    step = "exchange";
    const values = await member.exchange("k", bytes(`of ${rank}`), { timeoutMs: 2_000 });
    expect(values.map(text)).toEqual(["of 0", "of 1"]);
    step = "set";
    await member.set(`key ${rank}`, bytes("v"));
    step = "barrier";
    await member.awaitBarriers([{ key: "all", ranks: [0, 1] }], { timeoutMs: 2_000 });
    step = "rejoin";
    member = await member.rejoin({ without: [], deadlineMs: 2_000 });
    expect([member.rank, member.size, member.generation]).toEqual([rank, size, 1]);
    step = "leave";
    await member.leave();
    return ["over", undefined];
  } catch (error) {
    return [step, error];
  } finally {
    await member?.leave();
  }
}

test("a store killed and restarted at every message", async () => {
  const ends = new Set<string>();
  let isWhole = false;
  for (let cutAt = 1; !isWhole; cutAt += isAll ? 1 : 2) {
    let server = await listen();
    let chunks = 0;
    let restarting: Promise<void> | undefined;
    // The new store has a port of its own: the old one may belong to another process by then.
    const { port, cut } = await relay(
      () => server.port,
      (chunk) => {
        if (++chunks === cutAt)
          restarting = (async () => {
            cut();
            await server.close();
            server = await listen();
          })();
        return chunk;
      },
    );
    closeAfter(() => server.close());
    const lives = await within(60_000, Promise.all([0, 1].map((rank) => live(port, rank))));
    for (const [step, error] of lives) {
      ends.add(step);
      if (error === undefined) continue;
      expect(error).toBeInstanceOf(CommError);
      const codes = ["ERR_COMM_RENDEZVOUS", "ERR_COMM_REMOTE", "ERR_COMM_TIMEOUT"];
      expect(codes).toContain((error as CommError).code);
    }
    isWhole = restarting === undefined;
    await restarting;
    // The store that started again has no ranks, and the job forms there.
    const again = await within(60_000, Promise.all([0, 1].map((rank) => live(port, rank))));
    expect(again).toEqual([
      ["over", undefined],
      ["over", undefined],
    ]);
    await server.close();
  }
  expect([...ends]).toEqual(expect.arrayContaining(["over", "exchange", "rejoin"]));
});
