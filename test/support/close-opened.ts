/** Runs for every file of tests, also of a worker that has loaded the modules of support before. */
import { afterAll, afterEach, beforeAll } from "vitest";
import { closeOpened } from "./opened.ts";

// Each set of the library's modules in this process listens for its end.
process.setMaxListeners(0);

afterEach(closeOpened);

// Files of one worker share their process: a clock that one leaves in place lets deadlines of later ones never come.
const holder = globalThis as { realNow?: typeof performance.now };
holder.realNow ??= performance.now;

beforeAll(() => {
  if (performance.now !== holder.realNow)
    throw new Error("an earlier file has left its clock in place");
});

// In real time a live timer may wake a rank: one that a file leaves keeps the monitors of later files from their proofs.
const liveTimers = (): number =>
  process.getActiveResourcesInfo().filter((name) => name === "Timeout").length;
let timersBefore = 0;

beforeAll(() => {
  timersBefore = liveTimers();
});

afterAll(() => {
  const left = liveTimers() - timersBefore;
  if (left > 0) throw new Error(`this file leaves ${left} timers that keep the process alive`);
});
