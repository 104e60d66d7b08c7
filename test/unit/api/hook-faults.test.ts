/** Hooks that throw: the operation fails, an unobserved failure is reported, and all other hooks still run. */
import { tracingChannel } from "node:diagnostics_channel";
import { getEventListeners } from "node:events";
import type { CommError, CommOp, Communicator, DeviceBuffer } from "twinccl";
import { describe, expect, test } from "vitest";
import { whenSettled } from "../../../src/api/op.ts";
import { inWorld } from "../../support/in-world.ts";

const messageOf = (op: PromiseLike<unknown>): PromiseLike<string> =>
  op.then(
    () => "done",
    (error) => (error as Error).message,
  );

const tooLate = (): never => {
  throw new Error("too late");
};

const swap = (comm: Communicator, signal?: AbortSignal): CommOp => {
  const peer = comm.size - 1 - comm.rank;
  const [send, recv] = [new Int8Array(1), new Int8Array(1)];
  return comm.sendRecv({ send, recv, to: peer, from: peer, ...(signal && { signal }) });
};

describe.each([1, 2])("an error of an after hook of %i ranks", (size) => {
  const calls = {
    "a call": (comm: Communicator) => comm.barrier(),
    "a call in halves": (comm: Communicator) => swap(comm),
    "a group": (comm: Communicator) =>
      comm.group(() => {
        void comm.barrier();
      }),
    "a group of messages": (comm: Communicator) =>
      comm.group(() => {
        void swap(comm);
      }),
    "a group in a group": (comm: Communicator) =>
      comm.group(() => {
        void comm.group(() => void comm.barrier());
      }),
  };

  test.each(Object.entries(calls))("fails %s, once", async (_, call) => {
    const outcomes = await inWorld(size, async (comm) => {
      const off = comm.hooks.after(tooLate);
      const message = await messageOf(call(comm));
      off();
      await comm.barrier();
      return [message, comm.stats().failures];
    });
    expect(outcomes).toEqual(outcomes.map(() => ["too late", 1]));
  });

  test.each(Object.entries(calls))("fails %s that is not awaited, and the run", async (_, call) => {
    const counts: number[] = [];
    const run = inWorld(size, async (comm) => {
      const off = comm.hooks.after(tooLate);
      const op = call(comm);
      while (op.pending) await new Promise((resolve) => setTimeout(resolve, 1));
      off();
      counts.push(comm.stats().failures);
      expect(await messageOf(comm.barrier())).toMatch(/failed and was never awaited/);
    });
    await expect(run).rejects.toMatchObject({ name: "WorldError" });
    expect(counts).toEqual(new Array(size).fill(1));
  });

  test("fails a replay of messages", async () => {
    const outcomes = await inWorld(size, async (comm) => {
      const graph = await comm.capture(() => void swap(comm));
      const off = comm.hooks.after(tooLate);
      const message = await messageOf(graph.replay());
      off();
      return [message, comm.stats().failures];
    });
    expect(outcomes).toEqual(outcomes.map(() => ["too late", 1]));
  });
});

test("an operation that failed before its hooks ran keeps its error", async () => {
  const outcomes = await inWorld(2, async (comm) => {
    comm.hooks.after(tooLate);
    const send = new Int8Array(comm.rank + 1);
    const code = await comm
      .allReduce({ send, op: "sum" })
      .catch((error) => (error as CommError).code);
    return [code, comm.stats().failures];
  });
  expect(outcomes).toEqual(outcomes.map(() => ["ERR_COMM_MISMATCH", 1]));
});

test("an error of a callback of whenSettled counts as an error of a hook", async () => {
  const outcomes = await inWorld(2, async (comm) => {
    const op = comm.barrier();
    if (comm.rank === 0) whenSettled(op, tooLate);
    return [await messageOf(op), comm.stats().failures];
  });
  expect(outcomes).toEqual([
    ["too late", 1],
    ["done", 0],
  ]);
});

test.each([
  ["one", (comm: Communicator, signal: AbortSignal) => swap(comm, signal)],
  [
    "a group of two",
    (comm: Communicator, signal: AbortSignal) =>
      comm.group(() => {
        void swap(comm, signal);
        void swap(comm, signal);
      }),
  ],
] as const)("a call in halves that a hook refused leaves none behind: %s", async (how, call) => {
  await inWorld(1, async (comm) => {
    const controller = new AbortController();
    let hookCalls = 0;
    const off = comm.hooks.before(() => {
      if (++hookCalls === (how === "one" ? 1 : 2)) tooLate();
    });
    expect(await messageOf(call(comm, controller.signal))).toBe("too late");
    off();
    expect(getEventListeners(controller.signal, "abort")).toEqual([]);
    controller.abort("enough");
    expect(comm.stats().failures).toBe(1);
    await comm.barrier();
  });
});

describe("a hook that refuses a later call of a group leaves none behind", () => {
  const groups: Record<string, (comm: Communicator, send: DeviceBuffer) => void> = {
    "two collective calls": (comm, send) => {
      void comm.allReduce({ send, op: "sum" });
      void comm.allReduce({ send, op: "sum" });
    },
    "a collective call and messages": (comm) => {
      void swap(comm);
      void comm.barrier();
    },
  };

  test.each(Object.entries(groups))("%s", async (_, calls) => {
    const outcomes = await inWorld(2, async (comm) => {
      const send = comm.alloc("int32", 1).fill(1);
      // Calls that were made before are repeated in a way of their own.
      await comm.group(() => calls(comm, send));
      send.fill(comm.rank + 1);
      if (comm.rank === 0) {
        let begun = 0;
        const off = comm.hooks.before(() => {
          if (++begun === 2) tooLate();
        });
        expect(await messageOf(comm.group(() => calls(comm, send)))).toBe("too late");
        off();
      }
      await comm.allReduce({ send, op: "max" });
      return [...(await send.toHost()), comm.stats().failures];
    });
    expect(outcomes).toEqual([
      [2, 1],
      [2, 0],
    ]);
  });
});

describe("all other observers run after a hook that throws", () => {
  /** The reports of the hooks and the channel of `name` on one rank, where the second of three hooks of a kind throws. */
  async function heard(
    kind: "before" | "after",
    name: string,
    call: (comm: Communicator) => PromiseLike<unknown>,
  ): Promise<string[]> {
    const events: string[] = [];
    const note = (what: string) => (message: unknown) => {
      const { error } = message as { readonly error?: Error };
      events.push(error === undefined ? what : `${what} ${error.message}`);
    };
    const subscribers = {
      ...{ start: note("start"), end: note("end"), asyncStart: note("asyncStart") },
      ...{ asyncEnd: note("asyncEnd"), error: note("error") },
    };
    const channel = tracingChannel(`twinccl:${name}`);
    channel.subscribe(subscribers);
    await inWorld(1, async (comm) => {
      comm.hooks.before(() => events.push("before"));
      comm.hooks.after((_, error) => {
        events.push(error === undefined ? "after" : `after ${(error as Error).message}`);
      });
      comm.hooks[kind](tooLate);
      comm.hooks[kind](() => {
        throw new Error("too late by far");
      });
      comm.hooks.before(() => events.push("before"));
      comm.hooks.after(() => events.push("after"));
      events.push(await messageOf(call(comm)));
    }).finally(() => channel.unsubscribe(subscribers));
    return events;
  }

  const barrier = (comm: Communicator) => comm.barrier();

  test.each([
    ["barrier", barrier],
    ["sendRecv", (comm: Communicator) => swap(comm)],
  ] as const)("before a %s", async (name, call) => {
    expect(await heard("before", name, call)).toEqual([
      ...["before", "before", "start"],
      ...["after too late", "after", "error too late", "asyncEnd too late", "too late"],
    ]);
  });

  test.each([
    ["barrier", barrier],
    ["sendRecv", (comm: Communicator) => swap(comm)],
  ] as const)("after a %s", async (name, call) => {
    expect(await heard("after", name, call)).toEqual([
      ...["before", "before", "start"],
      ...["after", "after", "error too late", "asyncEnd too late", "too late"],
    ]);
  });

  const three = (comm: Communicator) => (): void => {
    void swap(comm);
    void comm.barrier();
    void swap(comm);
  };
  const some: Record<string, (comm: Communicator) => Promise<() => PromiseLike<unknown>>> = {
    "a group": async (comm) => () => comm.group(three(comm)),
    "a replay": async (comm) => {
      const graph = await comm.capture(three(comm));
      return () => graph.replay();
    },
  };

  test.each(Object.entries(some))("before the last call of %s", async (_, make) => {
    const [before, after]: [string[], string[]] = [[], []];
    const outcomes = await inWorld(1, async (comm) => {
      const call = await make(comm);
      comm.hooks.before(({ collective }) => before.push(collective));
      comm.hooks.before(() => {
        if (before.length === 3) tooLate();
      });
      comm.hooks.after(({ collective }) => after.push(collective));
      return messageOf(call());
    });
    expect(outcomes).toEqual(["too late"]);
    expect(before.sort()).toEqual(["barrier", "sendRecv", "sendRecv"]);
    expect(after.sort()).toEqual(before);
  });

  test("at an abort", async () => {
    const reasons: string[] = [];
    await inWorld(1, (comm) => {
      comm.hooks.onAbort(tooLate);
      comm.hooks.onAbort((reason) => reasons.push(String(reason)));
      expect(() => comm.abort("enough")).toThrow("too late");
    });
    expect(reasons).toEqual(["enough"]);
  });
});

test("an error without a text that is not observed refuses the next call as any other", async () => {
  const outcomes = await inWorld(1, async (comm) => {
    const unhook = comm.hooks.after(() => {
      throw Object.create(null);
    });
    const op = comm.barrier();
    await new Promise((resolve) => setTimeout(resolve, 1));
    unhook();
    const next = await messageOf(comm.barrier());
    await messageOf(op);
    return next;
  });
  expect(outcomes[0]).toMatch('call 0 on "world" failed and was never awaited: object');
});

describe("a rejected promise returned by a hook", () => {
  const kinds = ["before", "after", "onAbort"] as const;
  const late: Record<string, unknown> = {
    "an error": new Error("as late as can be"),
    "what has no text": Object.create(null),
  };

  test.each(kinds.flatMap((kind) => Object.keys(late).map((what) => [kind, what] as const)))(
    "is a warning, and fails nothing: %s, %s",
    async (kind, what) => {
      const warnings: Error[] = [];
      const listen = (warning: Error): void => void warnings.push(warning);
      process.on("warning", listen);
      await inWorld(1, async (comm) => {
        comm.hooks[kind](() => Promise.reject(late[what]));
        await comm.barrier();
        expect(comm.stats().failures).toBe(0);
        comm.abort("enough");
      });
      await new Promise((resolve) => setTimeout(resolve, 5));
      process.off("warning", listen);
      const text = what === "an error" ? "Error: as late as can be" : "object";
      expect(warnings.map(({ name, message }) => [name, message])).toEqual([
        [
          "TwincclUnseenFailure",
          `rank 0: a hook of hooks.${kind} on "world" returned a promise, which was rejected: ${text}`,
        ],
      ]);
    },
  );
});
