/** Runs for every file of tests, also of a worker that has loaded the modules of support before. */
import { afterAll, afterEach, beforeAll } from "vitest";
import { closeOpened } from "./opened.ts";

const { setImmediate: nextTurn } = globalThis;

// Each set of the library's modules in this process listens for its end.
process.setMaxListeners(0);

afterEach(closeOpened);

// Files of one worker share their process: a clock that one leaves in place lets deadlines of later ones never come.
const holder = globalThis as { realNow?: typeof performance.now };
holder.realNow ??= performance.now;
const { realNow } = holder;

beforeAll(() => {
  if (performance.now !== realNow) throw new Error("an earlier file has left its clock in place");
});

// In real time a live timer may wake a rank: one that a file leaves keeps the monitors of later files from their proofs.
const liveTimers = (): number =>
  process.getActiveResourcesInfo().filter((name) => name === "Timeout").length;
let timersBefore = 0;

/** Longest time for the timers of a file to end behind it. */
const timersEndMs = 10_000;

beforeAll(() => {
  timersBefore = liveTimers();
});

afterAll(async () => {
  const began = realNow.call(performance);
  for (;;) {
    const left = liveTimers() - timersBefore;
    if (left <= 0) return;
    const isOver = realNow.call(performance) - began > timersEndMs;
    if (isOver) throw new Error(`this file leaves ${left} timers that keep the process alive`);
    await new Promise((resolve) => nextTurn(resolve));
  }
});
