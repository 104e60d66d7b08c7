/** Resources that keep the runtime alive whatever the ranks do: only beside them are waits tracked. */
import { afterEach, describe, expect, test, vi } from "vitest";
import { staysAlive } from "../../../src/api/ledger/deadlock/runtime.ts";

/** The test runner's own process is connected to a parent, which keeps it alive. */
const alone = (): void => void vi.stubGlobal("process", { connected: false });

const turns = (count: number) => ({ Immediate: count, Timeout: 0 });
const none = turns(0);

afterEach(() => void vi.unstubAllGlobals());

describe("a runtime", () => {
  test("is kept alive by a server or a parent process, and not by its standard streams", () => {
    expect(staysAlive(new Map(), none)).toBe(process.connected === true);
    alone();
    expect(staysAlive(new Map(), none)).toBe(false);
    expect(staysAlive(new Map([["TTYWrap", 2]]), none)).toBe(false);
    expect(staysAlive(new Map([["TCPServerWrap", 1]]), none)).toBe(true);
    expect(staysAlive(undefined, none)).toBe(true);
  });

  test("is not kept alive by the turns of monitors", () => {
    alone();
    expect(staysAlive(new Map([["Immediate", 2]]), turns(2))).toBe(false);
    expect(staysAlive(new Map([["Immediate", 2]]), turns(1))).toBe(true);
    expect(staysAlive(new Map([["Timeout", 1]]), turns(1))).toBe(true);
  });
});
