/** Resources that keep the runtime alive whatever the ranks do: only beside them are waits tracked. */
import { describe, expect, test, vi } from "vitest";
import { staysAlive } from "../../../src/api/ledger/deadlock/runtime.ts";

/**
 * The answer in a process without a parent: that of the test runner has one. The global is back before the next turn of the event
 * loop, in which Node needs it for messages of the parent.
 */
function staysAliveAlone(...args: Parameters<typeof staysAlive>): boolean {
  vi.stubGlobal("process", { connected: false });
  try {
    return staysAlive(...args);
  } finally {
    vi.unstubAllGlobals();
  }
}

const turns = (count: number) => ({ Immediate: count, Timeout: 0 });
const none = turns(0);

describe("a runtime", () => {
  test("is kept alive by a server or a parent process, and not by its standard streams", () => {
    expect(staysAlive(new Map(), none)).toBe(process.connected === true);
    expect(staysAliveAlone(new Map(), none)).toBe(false);
    expect(staysAliveAlone(new Map([["TTYWrap", 2]]), none)).toBe(false);
    expect(staysAliveAlone(new Map([["TCPServerWrap", 1]]), none)).toBe(true);
    expect(staysAliveAlone(undefined, none)).toBe(true);
  });

  test("is not kept alive by the turns of monitors", () => {
    expect(staysAliveAlone(new Map([["Immediate", 2]]), turns(2))).toBe(false);
    expect(staysAliveAlone(new Map([["Immediate", 2]]), turns(1))).toBe(true);
    expect(staysAliveAlone(new Map([["Timeout", 1]]), turns(1))).toBe(true);
  });
});
