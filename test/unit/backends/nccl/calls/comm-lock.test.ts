/** Calls on a communicator on other threads, and what waits here until none of them is under way. */
import { expect, test } from "vitest";
import { CommLock } from "../../../../../src/backends/nccl/calls/comm-lock.ts";

/** A call that is under way until it is ended. */
function call(threads: CommLock): { end(error?: Error): Promise<unknown> } {
  let settle = (_error?: Error): void => undefined;
  const open = new Promise<void>((resolve, reject) => {
    settle = (error) => (error === undefined ? resolve() : reject(error));
  });
  const done = threads.run(() => open).catch((error: unknown) => error);
  return {
    end: (error) => {
      settle(error);
      return done;
    },
  };
}

test("a deferred action runs once, when the last call has ended or failed", async () => {
  const threads = new CommLock();
  const [first, second] = [call(threads), call(threads)];
  const done: string[] = [];
  threads.whenFree(() => done.push("one"));
  threads.whenFree(() => done.push("two"));
  await first.end();
  expect([threads.isHeld, done]).toEqual([true, []]);
  const error = new Error("it failed");
  expect(await second.end(error)).toBe(error);
  expect([threads.isHeld, done]).toEqual([false, ["one", "two"]]);
  await call(threads).end();
  expect(done).toEqual(["one", "two"]);
});

test("a released lock runs every deferred action, also when one of them throws", async () => {
  const threads = new CommLock();
  const under = call(threads);
  const done: string[] = [];
  threads.whenFree(() => {
    throw new Error("this one cannot be done");
  });
  threads.whenFree(() => done.push("the other"));
  expect(() => threads.release()).toThrow("this one cannot be done");
  expect([threads.isHeld, done]).toEqual([true, ["the other"]]);
  await under.end();
  expect(done).toEqual(["the other"]);
});
