/** Communicators that another process has ended: an open call gets that end once its own error has had time to come. */
import { expect, onTestFinished, test, vi } from "vitest";
import type { CommInfo, PeerProcesses, RemoteEnd } from "../../../src/api/backend.ts";
import type { Communicators } from "../../../src/api/world/communicators.ts";
import { watchRemoteEnds } from "../../../src/api/world/shutdown.ts";

/** A world with an open call on each communicator, and the ends that other processes announce. */
function watched(names: readonly string[]) {
  vi.useFakeTimers();
  const aborted: string[] = [];
  const ends = new Map<string, RemoteEnd>();
  const listeners = new Set<() => void>();
  const ledgers = names.map((name) => ({ comm: { name, ranks: [0, 1] }, oldest: {} }));
  const communicators = { ledgers, abort: ({ name }: CommInfo) => aborted.push(name) };
  const others = {
    remoteEnd: ({ name }: CommInfo) => ends.get(name),
    onRemoteEnd: (listener: () => void) => {
      listeners.add(listener);
      return () => listeners.delete(listener);
    },
  };
  const stop = watchRemoteEnds(
    others as never as PeerProcesses,
    communicators as never as Communicators,
  );
  onTestFinished(() => {
    stop();
    vi.useRealTimers();
  });
  const announce = (name: string): void => {
    ends.set(name, { rank: 1, aborted: "as planned" });
    for (const listener of listeners) listener();
  };
  return { aborted, announce };
}

test("an end reaches an open call after a whole interval, also where an earlier end set the pace", () => {
  const { aborted, announce } = watched(["a", "b"]);
  announce("a");
  vi.advanceTimersByTime(900);
  expect(aborted).toEqual([]);
  // The call may be about to get an error of its own, such as that of an order that this process is comparing.
  announce("b");
  vi.advanceTimersByTime(100);
  expect(aborted).toEqual(["a"]);
  vi.advanceTimersByTime(900);
  expect(aborted).not.toContain("b");
  vi.advanceTimersByTime(100);
  expect(aborted).toContain("b");
});
