/** Delivery to hooks and channels: each as often as it was added, all of them, both times or neither. */

import { subscribe, unsubscribe } from "node:diagnostics_channel";
import type { Communicator, Unhook } from "twinccl";
import { describe, expect, test } from "vitest";
import { inWorld } from "../../support/in-world.ts";

/** The reports on rank 0, in a world with a barrier that stays open for as long as `meanwhile` takes. */
async function eventsWhileOpen(
  before: (comm: Communicator, events: string[]) => void,
  meanwhile: (comm: Communicator, events: string[]) => void,
): Promise<string[]> {
  const events: string[] = [];
  await inWorld(2, async (comm) => {
    if (comm.rank === 1) {
      await comm.recv({ recv: new Int8Array(1), peer: 0 });
      return comm.barrier();
    }
    await comm.send({ send: new Int8Array(1), peer: 1 });
    before(comm, events);
    const op = comm.barrier();
    meanwhile(comm, events);
    await op;
  });
  return events;
}

describe("a hook", () => {
  test.each(["before", "after"] as const)(
    "%s that is added twice runs twice, and each addition is removed separately",
    async (kind) => {
      await inWorld(1, async (comm) => {
        let hookCalls = 0;
        const hook = (): void => void hookCalls++;
        const [first, second] = [comm.hooks[kind](hook), comm.hooks[kind](hook)];
        await comm.barrier();
        expect(hookCalls).toBe(2);
        first();
        await comm.barrier();
        expect(hookCalls).toBe(3);
        first();
        await comm.barrier();
        expect(hookCalls).toBe(4);
        second();
        await comm.barrier();
        expect(hookCalls).toBe(4);
      });
    },
  );

  test("of an abort that is added twice runs twice", async () => {
    const reasons: unknown[] = [];
    const run = inWorld(1, (comm) => {
      const hook = (reason: unknown): void => void reasons.push(reason);
      const off = comm.hooks.onAbort(hook);
      comm.hooks.onAbort(hook);
      comm.hooks.onAbort(hook);
      off();
      comm.abort("enough");
    });
    await run.catch(() => undefined);
    expect(reasons).toEqual(["enough", "enough"]);
  });

  test.each(["before", "after"] as const)(
    "%s that adds itself again runs at the next operation",
    async (kind) => {
      await inWorld(1, async (comm) => {
        let hookCalls = 0;
        let off: Unhook = () => undefined;
        const arm = (): void => {
          off = comm.hooks[kind](() => {
            if (++hookCalls > 9) throw new Error("without an end");
            off();
            arm();
          });
        };
        arm();
        await comm.barrier();
        await comm.barrier();
        expect(hookCalls).toBe(2);
      });
    },
  );

  test("of an abort that adds itself again runs once", async () => {
    let hookCalls = 0;
    const run = inWorld(1, (comm) => {
      const arm = (): void => {
        comm.hooks.onAbort(() => {
          if (++hookCalls < 9) arm();
        });
      };
      arm();
      comm.abort("enough");
    });
    await run.catch(() => undefined);
    expect(hookCalls).toBe(1);
  });

  test("removed by an earlier hook runs once more at this operation", async () => {
    const events: string[] = [];
    await inWorld(1, async (comm) => {
      let off: Unhook = () => undefined;
      comm.hooks.before(() => off());
      off = comm.hooks.before(({ collective }) => events.push(collective));
      await comm.barrier();
      await comm.allReduce({ send: new Int8Array(1), op: "sum" });
    });
    expect(events).toEqual(["barrier"]);
  });
});

describe("a value that is not a function", () => {
  const found: [unknown, string][] = [
    [3, "3"],
    [null, "null"],
    [undefined, "undefined"],
    ["x", '"x"'],
    [{}, "an object"],
  ];

  test.each(found)("is refused as a hook: %j", async (callback, text) => {
    await inWorld(2, async (comm) => {
      for (const kind of ["before", "after", "onAbort"] as const) {
        const add = (): unknown => comm.hooks[kind](callback as () => void);
        expect(add).toThrow(`hooks.${kind}: found ${text}, needs a function`);
        const facts = { field: "callback", rank: comm.rank, comm: "world" };
        expect(add).toThrow(expect.objectContaining({ code: "ERR_COMM_ARG", ...facts }));
      }
      await comm.barrier();
    });
  });
});

describe("the end of an operation", () => {
  const nothing = (): void => undefined;
  const others: Record<string, (comm: Communicator) => void> = {
    "no observer": nothing,
    "a hook before": (comm) => void comm.hooks.before(nothing),
    "a hook after": (comm) => void comm.hooks.after(nothing),
  };

  test.each(Object.entries(others))("skips hooks added later, beside %s", async (_, add) => {
    const events = await eventsWhileOpen(add, (comm, seen) => {
      comm.hooks.after(() => seen.push("after"));
    });
    expect(events).toEqual([]);
  });

  test("calls hooks present at the posting, even if removed since", async () => {
    let off: Unhook = nothing;
    const events = await eventsWhileOpen(
      (comm, seen) => {
        off = comm.hooks.after(() => seen.push("after"));
      },
      () => off(),
    );
    expect(events).toEqual(["after"]);
  });

  test("skips a hook added by a hook at the start", async () => {
    const events = await eventsWhileOpen((comm, seen) => {
      comm.hooks.before(() => {
        comm.hooks.after(() => seen.push("after"));
      });
    }, nothing);
    expect(events).toEqual([]);
  });

  test("skips listeners added later to a channel without listeners at the posting", async () => {
    const events: string[] = [];
    const listen = (): void => void events.push("end");
    const channel = "tracing:twinccl:barrier:asyncEnd";
    await eventsWhileOpen(
      (comm) => comm.hooks.before(nothing),
      () => subscribe(channel, listen),
    ).finally(() => unsubscribe(channel, listen));
    // The other rank posted its call with a listener present.
    expect(events).toEqual(["end"]);
  });
});
