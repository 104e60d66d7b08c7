/** A setup of all tests: a warning about the order of calls fails one of programs that are healthy, such as a trainer. */
import { afterAll, afterEach, expect } from "vitest";

const seen: string[] = [];

/** Folders of healthy programs, but for tests that take the warnings themselves. */
const healthy = /\/test\/(unit\/(parallel|examples|testing)|conformance|property|programs|seeds)\//;

function note(warning: Error): void {
  if (warning.name === "TwincclOrder") seen.push(warning.message);
}

// Tests may put timers that stand still in its place.
const { setImmediate: immediate } = globalThis;

async function expectNone(): Promise<void> {
  // Warnings are events of the next turn.
  await new Promise((resolve) => immediate(resolve));
  const [first] = seen.splice(0);
  const isHealthy = healthy.test(expect.getState().testPath ?? "");
  if (first !== undefined && isHealthy) throw new Error(`an order of calls was reported: ${first}`);
}

// Files of one worker share their process, and each runs this module again.
const holder = globalThis as { orderWarnings?: (warning: Error) => void };
if (holder.orderWarnings !== undefined) process.off("warning", holder.orderWarnings);
holder.orderWarnings = note;
process.on("warning", note);

afterEach(expectNone);
afterAll(expectNone);
