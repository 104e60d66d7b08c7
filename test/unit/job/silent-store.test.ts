/** A store that does not answer, and a rank that was stopped until long after the answer had come. */
import { afterEach, expect, test, vi } from "vitest";
import type { Membership } from "../../../src/job/rendezvous.ts";
import { tcpRendezvous } from "../../../src/job/tcp-rendezvous.ts";
import { longTest } from "../../support/long-test.ts";
import { bytes, errorOf, place, relay, text } from "./stores.ts";

/** A rank that passes the store's next answer through a function. */
async function joined(): Promise<{
  member: Membership;
  next(by: (chunk: Buffer) => Buffer): void;
}> {
  const at = await place(1);
  let by: ((chunk: Buffer) => Buffer) | undefined;
  const { port } = await relay(at.server.port, (chunk, from) => {
    if (from === "rank" || by === undefined) return chunk;
    const pass = by;
    by = undefined;
    return pass(chunk);
  });
  const rendezvous = tcpRendezvous({ port, secret: at.secret, host: "other" });
  const member = await rendezvous.join({ jobId: at.jobId, rank: 0, size: 1 });
  const next = (pass: (chunk: Buffer) => Buffer): void => {
    by = pass;
  };
  return { member, next };
}

afterEach(() => vi.useRealTimers());

longTest(
  "an answer counts that arrived while the process was stopped, past its deadline and the grace",
  async () => {
    const { member, next } = await joined();
    await member.set("k", bytes("v"));
    next((chunk) => {
      // What is handed on after it lies in the socket when the timers' turn comes.
      Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, 2_300);
      return chunk;
    });
    expect(text(await member.get("k", { timeoutMs: 20 }))).toBe("v");
  },
);

test("a missing answer is waited for until the deadline and the grace", async () => {
  const { member, next } = await joined();
  next(() => Buffer.alloc(0));
  vi.useFakeTimers({ toFake: ["setTimeout", "clearTimeout"] });
  const failed = errorOf(member.get("k", { timeoutMs: 20 }));
  await vi.advanceTimersByTimeAsync(2_019);
  expect(await Promise.race([failed, undefined])).toBeUndefined();
  await vi.advanceTimersByTimeAsync(1);
  const error = await failed;
  expect(error).toMatchObject({ code: "ERR_COMM_RENDEZVOUS", rank: 0 });
  expect(error.message).toContain("get: the store did not answer within 20 ms");
});
