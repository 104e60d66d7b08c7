/**
 * Work behind the end of a communicator: NCCL frees its memory on another thread, where CUDA waits for all kernels of the device,
 * and then keeps the thread that submits another one.
 */
import type { CallOptions, Communicator, DeviceBuffer } from "twinccl";
import { describe, expect, test } from "vitest";
import { quickTime } from "../../../../support/quick-time.ts";
import { cleanGpus, turns } from "../gpus.ts";
import { closeAll, closeRest, errorOf, type Joined, joinAll, onAll } from "./joined.ts";

quickTime();

const endings = ["close", "abort"] as const;

/** Two ranks with a child: `begin` ends it, and NCCL frees it on the ranks `stuck` once `free` is called. */
async function withChild(
  which: (typeof endings)[number],
  before?: (ranks: readonly Joined[]) => unknown,
  { stuck = [0, 1], ...options }: { readonly stream?: "own"; readonly stuck?: number[] } = {},
) {
  const gpus = cleanGpus();
  const ranks = await joinAll(2, undefined, gpus);
  await before?.(ranks);
  const children = await onAll(ranks, ({ comm }) => comm.split({ color: 0, ...options }));
  const { calls } = gpus.nccl;
  const inner = calls.abortInBackground;
  let free = (): void => undefined;
  const freed = new Promise<void>((resolve) => {
    free = resolve;
  });
  calls.abortInBackground = async (handle) => {
    if (stuck.includes(gpus.nccl.ends.get(handle)?.rank ?? -1)) await freed;
    return inner(handle);
  };
  const begin = async (): Promise<void> => {
    for (const child of children) {
      if (which === "close") await child?.close();
      else child?.abort(new Error("enough of this"));
    }
    await turns(20);
  };
  /** The number of calls that NCCL and CUDA have got. */
  const submitted = (): number =>
    ["allReduce", "send", "alltoAll", "graphLaunch"].reduce(
      (sum, name) => sum + gpus.machine.count(name),
      0,
    );
  return { gpus, ranks, begin, free, submitted };
}

/** Two ranks, while NCCL frees a child of theirs: until `free` is called. */
async function whileFreed(...args: Parameters<typeof withChild>) {
  const made = await withChild(...args);
  await made.begin();
  return made;
}

test("a split begins once NCCL has freed the communicators that were closed before it", async () => {
  const { gpus, ranks, free } = await whileFreed("close");
  const splits = gpus.machine.count("splitInBackground");
  const next = onAll(ranks, ({ comm }) => comm.split({ color: 0 }));
  await turns(20);
  expect(gpus.machine.count("splitInBackground")).toBe(splits);
  free();
  const [first] = await next;
  expect([first?.size, gpus.machine.count("splitInBackground")]).toEqual([2, splits + 2]);
  await closeAll(ranks);
});

/** Calls of a rank, by name. */
const works: readonly [
  string,
  (
    comm: Communicator,
    a: DeviceBuffer,
    b: DeviceBuffer,
    options?: CallOptions,
  ) => PromiseLike<unknown>,
][] = [
  [
    "a collective call",
    (comm, send, _, options) => comm.allReduce({ send, op: "sum", ...options }),
  ],
  [
    "messages",
    (comm, send, recv, options) =>
      comm.sendRecv({ send, to: 1 - comm.rank, recv, from: 1 - comm.rank, ...options }),
  ],
];

test.each(
  endings.flatMap((which) =>
    works.flatMap(([name, make]) => [1, 0].map((times) => [name, times, which, make] as const)),
  ),
)("%s, made %i times before, waits for %s", async (_, times, which, make) => {
  const buffers = new Map<Joined, readonly [DeviceBuffer, DeviceBuffer]>();
  const work = (joined: Joined): PromiseLike<unknown> =>
    make(joined.comm, ...(buffers.get(joined) as readonly [DeviceBuffer, DeviceBuffer]));
  const { ranks, free, submitted } = await whileFreed(which, async (all) => {
    for (const joined of all)
      buffers.set(joined, [joined.comm.alloc("float32", 4), joined.comm.alloc("float32", 4)]);
    for (let time = 0; time < times; time++) await onAll(all, work);
  });
  const before = submitted();
  const next = onAll(ranks, work);
  await turns(20);
  expect(submitted()).toBe(before);
  free();
  await next;
  expect(submitted()).toBe(before + 2);
  await closeAll(ranks);
});

test("calls and messages that wait are submitted in the order in which they were made", async () => {
  const run = async ({ comm }: Joined): Promise<number[]> => {
    const [a, b] = [comm.alloc("int32", 1), comm.alloc("int32", 1)];
    const [peer, self] = [1 - comm.rank, comm.rank];
    a.fill(comm.rank + 1);
    for (let time = 0; time < 3; time++) {
      void comm.allReduce({ send: a, op: "sum" });
      void comm.sendRecv({ send: a, to: peer, recv: b, from: peer });
      void comm.allReduce({ send: b, op: "sum" });
      void comm.sendRecv({ send: b, to: self, recv: a, from: self });
    }
    await comm.barrier();
    return [...(await a.toHost())];
  };
  const { ranks, free } = await whileFreed("abort", (all) => onAll(all, run));
  const next = onAll(ranks, run);
  await turns(20);
  free();
  // 3, doubled by each allReduce behind the first one.
  expect(await next).toEqual([[96], [96]]);
  await closeAll(ranks);
});

test("rebuild ends calls that wait, and its world takes calls", async () => {
  const { ranks, free } = await whileFreed("close");
  const errors = ranks.map(({ comm }) => errorOf(comm.barrier()));
  await turns(20);
  const rebuilding = onAll(ranks, ({ comm }) => comm.rebuild());
  await turns(20);
  free();
  for (const error of errors) expect(await error).toMatchObject({ code: "ERR_COMM_ABORTED" });
  const worlds = await rebuilding;
  await Promise.all(worlds.map((world) => world.barrier()));
  await Promise.all(worlds.map((world) => world.close()));
});

test("close of the world waits for calls that wait", async () => {
  const { ranks, free } = await whileFreed("close");
  const calls = onAll(ranks, ({ comm }) => comm.barrier());
  const closing = closeAll(ranks);
  await turns(20);
  free();
  await calls;
  await closing;
});

test("the abort of another communicator ends its calls that wait", async () => {
  let others: readonly (Communicator | undefined)[] = [];
  const { ranks, free } = await whileFreed("close", async (all) => {
    others = await onAll(all, ({ comm }) => comm.split({ color: 0 }));
  });
  const errors = others.map((other) => errorOf((other as Communicator).barrier()));
  await turns(20);
  others[0]?.abort(new Error("enough of this"));
  for (const error of errors) expect(await error).toMatchObject({ code: "ERR_COMM_ABORTED" });
  const next = onAll(ranks, ({ comm }) => comm.barrier());
  free();
  await next;
  await closeAll(ranks);
});

test("a recording is made, and replayed, once NCCL has freed it", async () => {
  const { gpus, ranks, free } = await whileFreed("close");
  const next = onAll(ranks, async ({ comm }) => {
    const send = comm.alloc("float32", 4);
    const graph = await comm.capture(() => void comm.allReduce({ send, op: "sum" }));
    await graph.replay();
  });
  await turns(20);
  expect(gpus.machine.count("allReduce")).toBe(0);
  free();
  await next;
  expect(gpus.machine.count("allReduce")).toBe(2);
  await closeAll(ranks);
});

test("calls that wait end with their communicator, and with their signal", async () => {
  const { ranks, free, submitted } = await whileFreed("close");
  const stop = new AbortController();
  const before = submitted();
  const errors = ranks.map(({ comm }) =>
    errorOf(comm.barrier(comm.rank === 0 ? { signal: stop.signal } : {})),
  );
  await turns(20);
  stop.abort();
  expect(await errors[0]).toMatchObject({ code: "ERR_COMM_ABORTED" });
  expect(await errors[1]).toMatchObject({ code: "ERR_COMM_ABORTED" });
  free();
  await turns(20);
  expect(submitted()).toBe(before);
  await closeAll(ranks);
});

test("a call behind the exchange of its counts waits as well", async () => {
  const { gpus, ranks, begin, free, submitted } = await withChild(
    "close",
    undefined,
    // Its end does not wait for the exchange.
    { stream: "own" },
  );
  const exchange = ({ comm }: Joined): PromiseLike<unknown> =>
    comm.allToAllv({ send: comm.alloc("float32", 2), sendCounts: [1, 1] });
  await onAll(ranks, exchange);
  const before = submitted();
  gpus.machine.hold();
  const next = onAll(ranks, exchange);
  await begin();
  gpus.machine.release();
  await turns(20);
  const exchanges = 2;
  expect(submitted()).toBe(before + exchanges);
  free();
  await next;
  expect(submitted()).toBeGreaterThan(before + exchanges);
  await closeAll(ranks);
});

test("a first connection waits as well, and so does the call behind it", async () => {
  const { gpus, ranks, begin, free, submitted } = await withChild("close", undefined, {
    stuck: [0],
  });
  const call = ({ comm }: Joined): PromiseLike<unknown> =>
    comm.allToAll({ send: comm.alloc("float32", 2), recv: comm.alloc("float32", 2) });
  const [first, second] = ranks as [Joined, Joined];
  const early = call(first);
  await begin();
  const late = call(second);
  await turns(20);
  expect([gpus.machine.count("connectInBackground"), submitted()]).toEqual([1, 0]);
  free();
  await Promise.all([early, late]);
  expect([gpus.machine.count("connectInBackground"), submitted()]).toEqual([2, 2]);
  await closeAll(ranks);
});

test("a message of a rank to itself that waits ends with its signal, its deadline and its communicator", async () => {
  for (const how of ["signal", "deadline", "abort"]) {
    const { ranks, free } = await whileFreed("close");
    const stop = new AbortController();
    const options = how === "deadline" ? { timeoutMs: 100 } : { signal: stop.signal };
    const errors = ranks.map(({ comm }) => {
      const [send, recv] = [comm.alloc("float32", 4), comm.alloc("float32", 4)];
      const { rank } = comm;
      return errorOf(comm.sendRecv({ send, to: rank, recv, from: rank, ...options }));
    });
    await turns(20);
    if (how === "signal") stop.abort();
    if (how === "abort") for (const { comm } of ranks) comm.abort(new Error("enough of this"));
    const code = how === "deadline" ? "ERR_COMM_TIMEOUT" : "ERR_COMM_ABORTED";
    for (const error of errors) expect(await error, how).toMatchObject({ code });
    if (how === "deadline") {
      for (const error of errors) expect(await error).toMatchObject({ ranks: [] });
      expect((await errors[0])?.message).toContain("all ranks had made it");
    }
    free();
    await closeAll(ranks);
  }
});

test("a message of a rank to itself that waits with others at a deadline names their rank, not its own", async () => {
  const { ranks, free } = await whileFreed("close");
  const [{ comm }] = ranks as [Joined];
  const [send, recv] = [comm.alloc("float32", 4), comm.alloc("float32", 4)];
  let own: PromiseLike<unknown> | undefined;
  const group = comm.group(() => {
    own = comm.sendRecv({ send, to: 0, recv, from: 0, timeoutMs: 100 });
    comm.send({ send, peer: 1 });
  });
  group.then(null, () => undefined);
  const error = await errorOf(own ?? group);
  expect(error).toMatchObject({ code: "ERR_COMM_TIMEOUT", ranks: [1] });
  expect(error?.message).toMatch(/: rank 1 had not made it$/m);
  free();
  await closeRest(ranks);
});

const worksAlone: typeof works = [
  ...works.slice(0, 1),
  [
    "a message",
    (comm, send, recv, options) => comm.sendRecv({ send, to: 0, recv, from: 0, ...options }),
  ],
  ["a split", (comm, _a, _b, options) => comm.split({ color: 0, ...options })],
];

test.each(worksAlone)(
  "%s that is cancelled while it waits is not made, and leaves a communicator of one rank open",
  async (_, make) => {
    let alone: readonly (Communicator | undefined)[] = [];
    const { ranks, free, submitted } = await whileFreed("close", async (all) => {
      alone = await onAll(all, ({ comm }) => comm.split({ color: comm.rank }));
    });
    const before = submitted();
    const stop = new AbortController();
    const errors = alone.map((each) => {
      const comm = each as Communicator;
      const buffers = [comm.alloc("float32", 4), comm.alloc("float32", 4)] as const;
      return errorOf(make(comm, ...buffers, { signal: stop.signal }));
    });
    await turns(20);
    stop.abort();
    for (const error of errors) expect(await error).toMatchObject({ code: "ERR_COMM_ABORTED" });
    free();
    await turns(20);
    expect(submitted()).toBe(before);
    for (const comm of alone) await comm?.barrier();
    await closeAll(ranks);
  },
);

describe.each(works)("%s at a deadline", (_, make) => {
  const withBuffers = async () => {
    const buffers = new Map<Communicator, readonly [DeviceBuffer, DeviceBuffer]>();
    const work = ({ comm }: Joined, options?: CallOptions): PromiseLike<unknown> =>
      make(comm, ...(buffers.get(comm) as readonly [DeviceBuffer, DeviceBuffer]), options);
    const held = await whileFreed("close", async (all) => {
      for (const { comm } of all)
        buffers.set(comm, [comm.alloc("float32", 4), comm.alloc("float32", 4)]);
      await onAll(all, (joined) => work(joined));
    });
    return { ...held, work };
  };

  test("is not missing on a rank where it waits", async () => {
    const { ranks, free, work } = await withBuffers();
    const errors = ranks.map((joined) => errorOf(work(joined, { timeoutMs: 100 })));
    for (const error of errors) {
      expect(await error).toMatchObject({ code: "ERR_COMM_TIMEOUT" });
      expect((await error)?.message).not.toContain("had not made it");
    }
    free();
    await closeRest(ranks);
  });

  test("is missing on a rank that has made the one before it, which waited", async () => {
    const { ranks, free, work } = await withBuffers();
    const next = onAll(ranks, (joined) => work(joined));
    await turns(20);
    free();
    await next;
    const error = await errorOf(work(ranks[0] as Joined, { timeoutMs: 100 }));
    expect(error).toMatchObject({ code: "ERR_COMM_TIMEOUT", ranks: [1] });
    expect(error?.message).toContain("rank 1 had not made it");
    await closeRest(ranks);
  });
});

test.each([
  ["both ranks", () => 0],
  ["one rank", ({ rank }: Communicator) => rank],
])(
  "work waits for the free of a communicator of %s that was made behind the abort of its parent",
  async (_, colorOf) => {
    const gpus = cleanGpus();
    const ranks = await joinAll(2, undefined, gpus);
    const parents = await onAll(ranks, ({ comm }) => comm.split({ color: 0 }));
    const { calls } = gpus.nccl;
    const { splitInBackground, abortInBackground } = calls;
    let go = (): void => undefined;
    const late = new Promise<void>((resolve) => {
      go = resolve;
    });
    calls.splitInBackground = async (...args) => {
      const made = await splitInBackground(...args);
      await late;
      return made;
    };
    const splits = parents.map((each) => {
      const parent = each as Communicator;
      return errorOf(parent.split({ color: colorOf(parent) }));
    });
    await turns(20);
    for (const parent of parents) parent?.abort(new Error("enough of this"));
    for (const error of splits) expect(await error).toMatchObject({ code: "ERR_COMM_ABORTED" });
    await turns(20);
    const world = { id: 0, name: "world", ranks: [0, 1], local: [0] };
    const isHeld = (): boolean[] => ranks.map(({ session }) => session.holdsWork(world));
    expect(isHeld()).toEqual([false, false]);
    let free = (): void => undefined;
    const freed = new Promise<void>((resolve) => {
      free = resolve;
    });
    calls.abortInBackground = (handle) => freed.then(() => abortInBackground(handle));
    go();
    await turns(20);
    expect(isHeld()).toEqual([true, true]);
    free();
    await closeAll(ranks);
  },
);

test.each(endings)(
  "NCCL frees a communicator after %s while no kernel of the rank runs, and takes calls until then",
  async (which) => {
    const { gpus, ranks, begin, free } = await withChild(which);
    free();
    const apart = await onAll(ranks, ({ comm }) => comm.split({ color: 0, stream: "own" }));
    const call = (rank: number): PromiseLike<unknown> => {
      const comm = apart[rank] as Communicator;
      return comm.allReduce({ send: comm.alloc("int32", 4), op: "sum" });
    };
    const early = call(0);
    await begin();
    expect(gpus.machine.count("abortInBackground")).toBe(1);
    for (let time = 0; time < 3; time++) await onAll(ranks, ({ comm }) => comm.barrier());
    expect(gpus.machine.count("abortInBackground")).toBe(1);
    await Promise.all([early, call(1)]);
    await turns(20);
    expect(gpus.machine.count("abortInBackground")).toBe(2);
    await closeAll(ranks);
  },
);

test("an aborted communicator is freed while another one is", async () => {
  const gpus = cleanGpus();
  const ranks = await joinAll(2, undefined, gpus);
  const first = await onAll(ranks, ({ comm }) => comm.split({ color: 0 }));
  const second = await onAll(ranks, ({ comm }) => comm.split({ color: 0 }));
  const { calls } = gpus.nccl;
  const { abortInBackground } = calls;
  let free = (): void => undefined;
  const freed = new Promise<void>((resolve) => {
    free = resolve;
  });
  let begun = 0;
  calls.abortInBackground = async (handle) => {
    begun += 1;
    await freed;
    return abortInBackground(handle);
  };
  for (const [at, children] of [first, second].entries()) {
    for (const child of children) child.abort(new Error("enough of this"));
    await turns(20);
    expect(begun).toBe(2 * (at + 1));
  }
  free();
  await closeAll(ranks);
});

test("NCCL frees a communicator while no ranks are being connected", async () => {
  const { gpus, ranks, begin, free } = await withChild("close");
  free();
  const { calls } = gpus.nccl;
  const { connectInBackground } = calls;
  let connect = (): void => undefined;
  const allowed = new Promise<void>((resolve) => {
    connect = resolve;
  });
  calls.connectInBackground = (...args) => allowed.then(() => connectInBackground(...args));
  const exchange = onAll(ranks, ({ comm }) =>
    comm.allToAll({ send: comm.alloc("float32", 2), recv: comm.alloc("float32", 2) }),
  );
  await turns(20);
  await begin();
  expect(gpus.machine.count("abortInBackground")).toBe(0);
  connect();
  await exchange;
  await turns(20);
  expect(gpus.machine.count("abortInBackground")).toBe(2);
  await closeAll(ranks);
});

test("NCCL ends a communicator once all ranks have closed it", async () => {
  const gpus = cleanGpus();
  const ranks = await joinAll(2, undefined, gpus);
  const [first, second] = await onAll(ranks, ({ comm }) => comm.split({ color: 0 }));
  await first?.close();
  await turns(20);
  expect(gpus.machine.count("abortInBackground")).toBe(0);
  // Calls go on meanwhile.
  await onAll(ranks, ({ comm }) => comm.barrier());
  await second?.close();
  await turns(20);
  expect(gpus.machine.count("abortInBackground")).toBe(2);
  await closeAll(ranks);
});

test("the communicator of one rank is freed on another thread too", async () => {
  const gpus = cleanGpus();
  const ranks = await joinAll(2, undefined, gpus);
  await onAll(ranks, async ({ comm }) => (await comm.split({ color: comm.rank })).close());
  await turns(20);
  expect([gpus.machine.count("abortInBackground"), gpus.machine.count("destroy")]).toEqual([2, 0]);
  await closeAll(ranks);
});
