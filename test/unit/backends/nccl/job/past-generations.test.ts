/** Leftovers of a job's past generations in a process: nothing. */
import { setTimeout as sleep } from "node:timers/promises";
import { setFlagsFromString } from "node:v8";
import { runInNewContext } from "node:vm";
import { type Backend, type ConnectedCommunicator, connect } from "twinccl";
import { expect, onTestFinished, test, vi } from "vitest";
import { openJoined } from "../../../../../src/backends/nccl/open.ts";
import { quickTime } from "../../../../support/quick-time.ts";
import { place } from "../../../job/stores.ts";
import { cleanGpus, turns } from "../gpus.ts";

quickTime();

setFlagsFromString("--expose-gc");
const collectGarbage = runInNewContext("gc") as () => void;

/** Things that are to be gone, by name. */
class Noted {
  readonly #refs = new Map<string, WeakRef<object>>();

  add(name: string, thing: object): void {
    this.#refs.set(name, new WeakRef(thing));
  }

  /** Those that are still reachable. */
  async held(): Promise<string[]> {
    for (let i = 0; i < 3; i++) {
      await turns(5);
      await sleep(20);
      collectGarbage();
    }
    return [...this.#refs].flatMap(([name, ref]) => (ref.deref() === undefined ? [] : [name]));
  }
}

/** A job of two ranks with recorded sessions and memberships of the first generation. */
async function begin(noted: Noted): Promise<ConnectedCommunicator[]> {
  const { setup } = cleanGpus();
  const members = await (await place(2)).joinAll();
  const begun = members.map((membership, device) => {
    const join: Backend["join"] = async (request) => {
      const session = await openJoined(setup, { device }, membership, request);
      noted.add(`the session of rank ${device}`, session);
      return session;
    };
    const open = () => Promise.reject(new Error("this backend only joins"));
    const probe = () => ({ ok: true, reason: "fake GPUs" });
    return connect({ backend: { name: "nccl", probe, open, join } });
  });
  return Promise.all(begun);
}

/** Opens the next generation and records the previous one. */
const goOn = (noted: Noted, comms: readonly ConnectedCommunicator[]) =>
  Promise.all(
    comms.map(async (comm) => {
      noted.add(`rank ${comm.rank} in generation ${comm.generation}`, comm);
      await comm.barrier();
      return comm.rebuild();
    }),
  );

/** The number of intervals that were begun and not ended. */
function livingIntervals(): () => number {
  const living = new Set<unknown>();
  const { setInterval: set, clearInterval: clear } = globalThis;
  const begin = (run: () => void, everyMs: number) => {
    const timer = set(run, everyMs);
    living.add(timer);
    return timer;
  };
  vi.stubGlobal("setInterval", begin);
  vi.stubGlobal("clearInterval", (timer: NodeJS.Timeout) => {
    living.delete(timer);
    clear(timer);
  });
  onTestFinished(() => void vi.unstubAllGlobals());
  return () => living.size;
}

test("a past generation leaves no timer and is not referenced", async () => {
  const noted = new Noted();
  const intervals = livingIntervals();
  let comms = await begin(noted);
  const first = intervals();
  for (let generation = 0; generation < 3; generation++) comms = await goOn(noted, comms);
  expect(intervals()).toBe(first);
  const held = await noted.held();
  await Promise.all(comms.map((comm) => comm.close()));
  expect(held).toEqual([]);
  expect(intervals()).toBe(0);
});
