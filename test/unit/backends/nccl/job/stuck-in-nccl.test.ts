/** Ranks past their barrier that wait in NCCL for one that is busy elsewhere, or fails in its part. */
import type { Communicator } from "twinccl";
import { describe, expect, onTestFinished, test, vi } from "vitest";
import { type FakeGpus, fakeGpus, ncclError } from "../../../../support/fake-gpus/index.ts";
import { quickTime } from "../../../../support/quick-time.ts";
import { cleanGpus, turns } from "../gpus.ts";
import { closeAll, errorOf, type Joined, joinAll, onAll } from "./joined.ts";

quickTime();

type Background = "connectInBackground" | "registerWindowInBackground" | "splitInBackground";

interface Options {
  readonly timeoutMs?: number;
  readonly signal?: AbortSignal;
}

/** A call in which NCCL waits for the other rank, and what of NCCL it waits in. */
const calls: readonly (readonly [
  string,
  Background,
  (comm: Communicator, options?: Options) => PromiseLike<unknown>,
])[] = [
  [
    "a first message",
    "connectInBackground",
    (comm, options) => {
      const buffer = comm.alloc("int32", 2);
      const peer = 1 - comm.rank;
      return comm.rank === 0
        ? comm.send({ send: buffer, peer, ...options })
        : comm.recv({ recv: buffer, peer, ...options });
    },
  ],
  [
    "an all-to-all",
    "connectInBackground",
    (comm, options) => {
      const [send, recv] = [comm.alloc("int32", 4), comm.alloc("int32", 4)];
      return comm.allToAll({ send, recv, ...options });
    },
  ],
  [
    "a symmetric all-reduce",
    "registerWindowInBackground",
    (comm, options) => {
      const send = comm.alloc("int32", 4, { symmetric: true });
      return comm.allReduce({ send, op: "sum", ...options });
    },
  ],
  ["a split", "splitInBackground", (comm, options) => comm.split({ color: 0, ...options })],
];

/** Has NCCL do something else on a rank than its part, until the function returned is called. */
function replace(
  gpus: FakeGpus,
  rank: number,
  name: Background,
  instead: () => Promise<never>,
): () => void {
  const { calls: nccl } = gpus.nccl;
  const original = nccl[name] as (...args: unknown[]) => Promise<unknown>;
  const replaced = (device: { readonly index: number }, ...args: unknown[]): unknown =>
    device.index === rank ? instead() : original(device, ...args);
  Object.assign(nccl, { [name]: replaced });
  return () => void Object.assign(nccl, { [name]: original });
}

const never = (): Promise<never> => new Promise(() => undefined);

/** Continues with the ranks in a new generation. */
async function expectLife(ranks: readonly Joined[]): Promise<void> {
  const next = await onAll(ranks, ({ comm }) => comm.rebuild());
  const sums = await onAll(
    next.map((comm, rank) => ({ ...(ranks[rank] as Joined), comm })),
    async ({ comm }) => {
      const one = comm.alloc("int32", 2).fill(comm.rank + 1);
      await comm.allReduce({ send: one, op: "sum" });
      return [...(await one.toHost())];
    },
  );
  expect(sums).toEqual([
    [3, 3],
    [3, 3],
  ]);
  await Promise.all(next.map((comm) => comm.close()));
}

describe.each(calls)("%s that waits in NCCL", (_, name, call) => {
  const isWindow = name === "registerWindowInBackground";

  /** NCCL's symmetric memory stays behind, with a warning; nothing else does. */
  async function behind(work: (gpus: FakeGpus) => Promise<void>): Promise<void> {
    const warn = vi.spyOn(process, "emitWarning").mockReturnValue(undefined);
    try {
      await work(isWindow ? fakeGpus() : cleanGpus());
      const texts = warn.mock.calls.map(([text]) => String(text));
      const expected = expect.stringMatching(/did not register symmetric memory/);
      if (isWindow) expect(texts.length).toBeGreaterThan(0);
      else expect(texts).toEqual([]);
      for (const text of texts) expect(text).toEqual(expected);
    } finally {
      warn.mockRestore();
    }
  }

  test("ends at its deadline, and the ranks continue in the next generation", async () => {
    await behind(async (gpus) => {
      const ranks = await joinAll(2, "off", gpus, 30_000);
      const mend = replace(gpus, 1, name, never);
      const began = performance.now();
      const ends = await onAll(ranks, ({ comm }) => errorOf(call(comm, { timeoutMs: 100 })));
      expect(performance.now() - began).toBeLessThan(10_000);
      for (const [rank, error] of ends.entries()) {
        expect(error).toMatchObject({ code: "ERR_COMM_TIMEOUT", rank, call: 0 });
        expect(error?.message).not.toContain("come together");
      }
      mend();
      await expectLife(ranks);
    });
  });

  test("is ended by its signal, and by abort()", async () => {
    await behind(async (gpus) => {
      const ranks = await joinAll(2, "off", gpus);
      const mend = replace(gpus, 1, name, never);
      const [giving, why] = [new AbortController(), new Error("enough")];
      const [a, b] = ranks as [Joined, Joined];
      const ends = [errorOf(call(a.comm, { signal: giving.signal })), errorOf(call(b.comm))];
      await turns(40);
      giving.abort(why);
      b.comm.abort(why);
      for (const error of await Promise.all(ends)) {
        expect(error).toMatchObject({ code: "ERR_COMM_ABORTED", cause: why });
      }
      mend();
      await expectLife(ranks);
    });
  });

  test("fails where its own start fails, and times out on the other ranks", async () => {
    await behind(async (gpus) => {
      const ranks = await joinAll(2, "off", gpus);
      const broken = ncclError("ncclSomething", 2, "ncclSystemError");
      const mend = replace(gpus, 1, name, () => Promise.reject(broken));
      const [a, b] = await onAll(ranks, ({ comm }) => errorOf(call(comm, { timeoutMs: 200 })));
      expect(a).toMatchObject({ code: "ERR_COMM_TIMEOUT", rank: 0 });
      expect(b).toMatchObject({ code: "ERR_COMM_NCCL", rank: 1, statusName: "ncclSystemError" });
      mend();
      await expectLife(ranks);
    });
  });

  test("keeps the process alive while it waits", async () => {
    const gpus = cleanGpus();
    const ranks = await joinAll(2, "off", gpus);
    // The process has timers of others, too, which come and go meanwhile.
    const [begins, stops] = [
      vi.spyOn(globalThis, "setInterval"),
      vi.spyOn(globalThis, "clearInterval"),
    ];
    onTestFinished(() => {
      for (const spy of [begins, stops]) spy.mockRestore();
    });
    const keeping = (): number => {
      const stopped = new Set<unknown>(stops.mock.calls.map(([timer]) => timer));
      const made = begins.mock.results.map(({ value }) => value as NodeJS.Timeout);
      return made.filter((timer) => timer.hasRef() && !stopped.has(timer)).length;
    };
    let [letGo, begun] = [(): void => undefined, 0];
    const held = new Promise<void>((resolve) => {
      letGo = resolve;
    });
    const { calls: nccl } = gpus.nccl;
    const original = nccl[name] as (...args: unknown[]) => Promise<unknown>;
    const holding = async (...args: unknown[]): Promise<unknown> => {
      begun += 1;
      await held;
      return original(...args);
    };
    Object.assign(nccl, { [name]: holding });
    const ends = ranks.map(({ comm }) => errorOf(call(comm)));
    while (begun < ranks.length) await turns(1);
    const kept = keeping();
    letGo();
    expect(await Promise.all(ends)).toEqual([undefined, undefined]);
    expect([kept, keeping()]).toEqual([ranks.length, 0]);
    await closeAll(ranks);
  });
});

/** Notes when calls begin and end. */
function noting(gpus: FakeGpus, names: readonly (keyof FakeGpus["nccl"]["calls"])[]): string[] {
  const noted: string[] = [];
  const { calls: nccl } = gpus.nccl;
  for (const name of names) {
    const original = nccl[name] as (...args: unknown[]) => unknown;
    const watched = (...args: unknown[]): unknown => {
      noted.push(name);
      return original(...args);
    };
    Object.assign(nccl, { [name]: watched });
  }
  return noted;
}

/** Work of a communicator, and whether any of it is on the device when it is aborted. */
const parents: readonly (readonly [string, (comm: Communicator) => unknown])[] = [
  ["an idle communicator", () => undefined],
  [
    "a communicator with a call under way",
    (comm) => {
      const buffer = comm.alloc("int32", 4);
      if (comm.rank === 0) void errorOf(comm.allReduce({ send: buffer, op: "sum" }));
    },
  ],
];

test.each(parents)("%s is freed once NCCL has split it on its other thread", async (_, begin) => {
  const gpus = cleanGpus();
  const ranks = await joinAll(2, "off", gpus);
  await onAll(ranks, ({ comm }) => comm.barrier());
  const noted: string[] = [];
  const { calls: nccl } = gpus.nccl;
  const { splitInBackground: split, abortInBackground: abort } = nccl;
  nccl.splitInBackground = async (...args) => {
    noted.push("splits");
    const child = await split(...args);
    await new Promise((resolve) => setTimeout(resolve, 1_000));
    noted.push("has split");
    return child;
  };
  nccl.abortInBackground = (handle) => {
    noted.push("frees");
    return abort(handle);
  };
  const ends = ranks.map(({ comm }) => {
    const end = errorOf(comm.split({ color: 0, timeoutMs: 100 }));
    begin(comm);
    return end;
  });
  for (const error of await Promise.all(ends)) expect(error?.code).toBe("ERR_COMM_TIMEOUT");
  await closeAll(ranks);
  // Two parents, and two children that nothing owns.
  expect(noted).toEqual([
    ...["splits", "splits", "has split", "has split"],
    ...["frees", "frees", "frees", "frees"],
  ]);
});

test("memory is not registered on a communicator that was aborted while its ranks were connected", async () => {
  const gpus = cleanGpus();
  const ranks = await joinAll(2, "off", gpus);
  const { calls: nccl } = gpus.nccl;
  const original = nccl.connectInBackground;
  let [connected, goOn] = [0, (): void => undefined];
  const aborted = new Promise<void>((resolve) => {
    goOn = resolve;
  });
  nccl.connectInBackground = async (...args) => {
    await original(...args);
    connected += 1;
    await aborted;
  };
  const noted = noting(gpus, ["abortInBackground", "registerWindowInBackground"]);
  const ends = ranks.map(({ comm }) => {
    const data = comm.alloc("float32", 8, { symmetric: true });
    const [send, recv] = [comm.alloc("int32", 4), comm.alloc("int32", 4)];
    const recording = comm.capture(() => {
      void comm.allToAll({ send, recv });
      void comm.allReduce({ send: data, op: "sum" });
    });
    return errorOf(recording);
  });
  while (connected < ranks.length) await turns(1);
  for (const { comm } of ranks) comm.abort(new Error("enough"));
  for (const error of await Promise.all(ends)) expect(error?.code).toBe("ERR_COMM_ABORTED");
  const aborts = ["abortInBackground", "abortInBackground"];
  await expect.poll(() => noted, { timeout: 15_000 }).toEqual(aborts);
  goOn();
  await turns(40);
  expect(noted).toEqual(aborts);
  await closeAll(ranks);
});

test("memory stays allocated during its registration", async () => {
  const warn = vi.spyOn(process, "emitWarning").mockReturnValue(undefined);
  try {
    const gpus = fakeGpus();
    const ranks = await joinAll(2, "off", gpus);
    const mend = replace(gpus, 1, "registerWindowInBackground", never);
    const noted = noting(gpus, ["memFree"]);
    const buffers = ranks.map(({ comm }) => comm.alloc("int32", 4, { symmetric: true }));
    const fine = ranks.map(({ comm }) => comm.alloc("int32", 4, { symmetric: true }));
    await onAll(ranks, ({ comm }) =>
      errorOf(
        comm.allReduce({
          send: buffers[comm.rank] as (typeof buffers)[0],
          op: "sum",
          timeoutMs: 100,
        }),
      ),
    );
    mend();
    buffers[0]?.dispose();
    const next = await onAll(ranks, ({ comm }) => comm.rebuild());
    // Those that were never registered are.
    expect(noted).toEqual(fine.map(() => "memFree"));
    await Promise.all(next.map((comm) => comm.close()));
  } finally {
    warn.mockRestore();
  }
});

test.each([0, 1])(
  "a split that ended %i steps before the abort of its communicator leaves no resource",
  async (steps) => {
    const gpus = fakeGpus();
    const ranks = await joinAll(2, "off", gpus, 3000);
    const [a, b] = ranks as [Joined, Joined];
    const { calls: nccl } = gpus.nccl;
    const original = nccl.splitInBackground;
    nccl.splitInBackground = (device, ...args) => {
      const made = original(device, ...args);
      const abort = async (): Promise<void> => {
        for (let step = 0; step < steps; step++) await undefined;
        a.comm.abort(new Error("enough"));
      };
      if (device.index === 0) void made.then(abort);
      return made;
    };
    const [error, child] = await Promise.all([
      errorOf(a.comm.split({ color: 0 })),
      b.comm.split({ color: 0 }),
    ]);
    expect(error?.code).toBe("ERR_COMM_ABORTED");
    await turns(20);
    const mine = [...gpus.nccl.ends.values()].filter(({ device }) => device === 0);
    expect(mine).toEqual([]);
    expect(child.size).toBe(2);
    // The close would wait for rank 1, which has lost its other end.
    await a.comm.close();
  },
);

test("a registration that ends while the ranks rebuild leaves no resource", async () => {
  const gpus = fakeGpus();
  const warn = vi.spyOn(process, "emitWarning").mockReturnValue(undefined);
  onTestFinished(() => warn.mockRestore());
  const ranks = await joinAll(2, "off", gpus);
  const { calls: nccl } = gpus.nccl;
  const register = nccl.registerWindowInBackground;
  vi.spyOn(nccl, "registerWindowInBackground").mockImplementation(async (...given) => {
    await new Promise((resolve) => setTimeout(resolve, 300));
    return register(...given);
  });
  const ends = ranks.map(({ comm }) => {
    const send = comm.alloc("int32", 4, { symmetric: true });
    return errorOf(comm.allReduce({ send, op: "sum" }));
  });
  await new Promise((resolve) => setTimeout(resolve, 100));
  const next = await onAll(ranks, ({ comm }) => comm.rebuild());
  await Promise.all([...ends, ...next.map((comm) => comm.close())]);
  expect(warn.mock.calls).toEqual([]);
  expect(gpus.machine.leaks()).toEqual([]);
});
