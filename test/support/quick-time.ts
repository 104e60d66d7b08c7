/**
 * Time that passes as fast as the event loop turns.
 *
 * Timers, intervals, `performance.now` and `Date` of a file's tests follow a clock of their own, which goes on by a step
 * behind every few turns of the event loop. A deadline of seconds passes in milliseconds of the processor, behind as many
 * turns on a busy machine as on an idle one; sockets within the process need far fewer. Tests whose work leaves the process
 * (other processes, worker threads) take as long as the machine does, and must not use it.
 */
import { afterAll, beforeAll, vi } from "vitest";

/** Turns of the event loop in which `stepMs` pass. */
const turnsAStep = 4;
const stepMs = 5;

/** A reading of the clock takes this long, so that a loop that reads it until some time ends. */
const readingMs = 0.001;

/** Turns behind the tests, and the time of each. */
const turnsBehind = 200;
const msATurnBehind = 500;

const { setImmediate: nextTurn } = globalThis;

/** Lets time pass so in all tests of the file that calls this at its top. */
export function quickTime(): void {
  let isOver = false;
  const { now } = performance;
  let pass = (_ms: number): void => undefined;
  beforeAll(() => {
    isOver = false;
    vi.useFakeTimers({
      toFake: ["setTimeout", "clearTimeout", "setInterval", "clearInterval", "Date"],
    });
    let nowMs = now.call(performance);
    performance.now = () => (nowMs += readingMs);
    pass = (ms) => {
      nowMs += ms;
      vi.advanceTimersByTime(ms);
    };
    let turns = 0;
    const turn = (): void => {
      if (isOver) return;
      if (++turns % turnsAStep === 0) pass(stepMs);
      nextTurn(turn);
    };
    nextTurn(turn);
  });
  afterAll(async () => {
    isOver = true;
    // Work behind the tests ends by its deadlines; on the real clock it would poll for as long as they are.
    for (let turn = 0; turn < turnsBehind; turn++) {
      pass(msATurnBehind);
      await new Promise(nextTurn);
    }
    // Behind a file vitest restores all its spies once more: one on this clock would put it back.
    vi.restoreAllMocks();
    performance.now = now;
    vi.useRealTimers();
    // Timers that the modules of src hold follow the clock that has stopped.
    vi.resetModules();
  });
}
