/** Warnings, which have no caller: each runtime has a place for them. */
import { expect, test, vi } from "vitest";
import { emitWarning } from "../../../src/api/warnings.ts";

test("a warning of a runtime without Node's warnings, such as a browser, is on its console", () => {
  const warn = vi.spyOn(console, "warn").mockImplementation(() => undefined);
  // The test runner needs the global again before the next turn of the event loop.
  vi.stubGlobal("process", undefined);
  try {
    emitWarning("stalled: \u0007 rank 1 waits", "TwincclStall");
  } finally {
    vi.unstubAllGlobals();
  }
  expect(warn.mock.calls).toEqual([["TwincclStall: stalled: \\u0007 rank 1 waits"]]);
  warn.mockRestore();
});
