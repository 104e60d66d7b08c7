/**
 * Symmetric memory that is disposed while NCCL has it: as a window of a communicator that ends, or is in a call on another
 * thread, or while it registers it.
 */
import type { Communicator, DeviceBuffer } from "twinccl";
import { describe, expect, onTestFinished, test, vi } from "vitest";
import { type FakeGpus, fakeGpus, ncclError } from "../../../../support/fake-gpus/index.ts";
import { quickTime } from "../../../../support/quick-time.ts";
import { cleanGpus, inWorld, seen, turns } from "../gpus.ts";
import { closeAll, errorOf, type Joined, joinAll, onAll } from "../job/joined.ts";

quickTime();

const symmetric = (comm: Communicator): DeviceBuffer<"float32"> =>
  comm.alloc("float32", 8, { symmetric: true }).fill(1);

type Sent = ReturnType<typeof symmetric>;

/** A split, and symmetric memory that is a window of it. */
async function splitWithWindow(comm: Communicator) {
  const child = await comm.split({ color: 0 });
  const window = symmetric(comm);
  await child.allReduce({ send: window, op: "sum" });
  return { child, window };
}

/** The ways to end a rank's part of a split. */
const ways: [string, (child: Communicator) => unknown][] = [
  ["is closed", (child) => child.close()],
  ["is aborted", (child) => child.rank === 0 && child.abort()],
];

/** All windows and all symmetric memory were given back, before the world is closed. */
async function expectFreed({ machine, nccl }: FakeGpus, count: number): Promise<void> {
  await turns(20);
  expect([...nccl.ends.values()].map(({ windows }) => windows.size)).toEqual([0, 0]);
  expect(machine.count("memFree")).toBe(count);
}

describe("symmetric memory is freed after its window", () => {
  test.each(ways)(
    "when it is disposed behind other work, and the communicator %s",
    async (_, end) => {
      const gpus = cleanGpus();
      await inWorld(gpus, 2, async (world) => {
        await world.run(async (comm) => {
          const { child, window } = await splitWithWindow(comm);
          const data = comm.alloc("float32", 8);
          await comm.barrier();
          gpus.machine.hold();
          const op = comm.allReduce({ send: data, op: "sum" });
          await turns();
          window.dispose();
          await turns();
          await end(child);
          await turns();
          expect(gpus.machine.count("memFree")).toBe(0);
          gpus.machine.release();
          await op;
        });
        await expectFreed(gpus, 2);
      });
    },
  );

  test.each(ways)("when the communicator %s right before it is disposed", async (_, end) => {
    const gpus = cleanGpus();
    await inWorld(gpus, 2, async (world) => {
      await world.run(async (comm) => {
        const { child, window } = await splitWithWindow(comm);
        await comm.barrier();
        const ended = end(child);
        window.dispose();
        await ended;
        await comm.barrier();
      });
      await expectFreed(gpus, 2);
    });
  });

  test("when the end of a communicator waits for other processes", async () => {
    const gpus = cleanGpus();
    const ranks = await joinAll(2, undefined, gpus);
    const made = await onAll(ranks, async ({ comm }) => {
      const { child, window } = await splitWithWindow(comm);
      await comm.allReduce({ send: window, op: "sum" });
      return { child, window };
    });
    const [own, other] = made as [(typeof made)[0], (typeof made)[0]];
    const closing = ranks[0]?.session.close();
    await turns();
    own.window.dispose();
    await turns(20);
    expect(gpus.machine.count("memFree")).toBe(1);
    await Promise.all([closing, ranks[1]?.comm.close()]);
    other.window.dispose();
  });

  test("when a split is closed behind work that waits for another process", async () => {
    const gpus = cleanGpus();
    const ranks = await joinAll(2, undefined, gpus);
    const made = await onAll(ranks, async ({ comm }) => ({
      ...(await splitWithWindow(comm)),
      call: () => comm.allReduce({ send: comm.alloc("float32", 8), op: "sum" }),
    }));
    const [own, other] = made as [(typeof made)[0], (typeof made)[0]];
    const op = own.call();
    await turns();
    own.window.dispose();
    await turns();
    const closing = own.child.close();
    await turns();
    await Promise.all([op, other.call()]);
    await Promise.all([closing, other.child.close()]);
    await closeAll(ranks);
  });
});

/** NCCL's functions that a communicator calls on another thread. */
const elsewhere = {
  splitInBackground: (comm: Communicator) => comm.split({ color: 0 }),
  registerWindowInBackground: (comm: Communicator) =>
    comm.allReduce({ send: symmetric(comm), op: "sum" }),
  connectInBackground: (comm: Communicator) =>
    comm.allToAll({ send: comm.alloc("int8", 2), recv: comm.alloc("int8", 2) }),
};

describe("memory is disposed while its communicator is in NCCL on another thread", () => {
  /** Two ranks with a window each, of which rank 0 is in there: the other comes when it is let, or fails. */
  async function underWay(name: keyof typeof elsewhere) {
    const gpus = cleanGpus();
    const ranks = await joinAll(2, undefined, gpus);
    const windows = ranks.map(({ comm }) => symmetric(comm));
    await onAll(ranks, ({ comm }) =>
      comm.allReduce({ send: windows[comm.rank] as Sent, op: "sum" }),
    );
    const calls: Record<string, unknown> = { ...gpus.nccl.calls };
    const original = calls[name] as (...given: unknown[]) => Promise<unknown>;
    let letCome = (_comes: boolean): void => undefined;
    const mayCome = new Promise<boolean>((resolve) => {
      letCome = resolve;
    });
    const late = async (device: { readonly index: number }, ...given: unknown[]) => {
      if (device.index === 1 && !(await mayCome)) throw new Error("it does not come");
      return original(device, ...given);
    };
    Object.assign(gpus.nccl.calls, { [name]: late });
    const end = [...gpus.nccl.ends.values()].find(({ device }) => device === 0);
    const open = ranks.map(({ comm }) => errorOf(elsewhere[name](comm)));
    await expect.poll(() => end?.elsewhere).toBe(1);
    windows[0]?.dispose();
    await turns(20);
    const given = () => ["deregisterWindow", "memFree"].map((each) => gpus.machine.count(each));
    return { ranks, open, letCome, given };
  }

  test.each(["splitInBackground", "registerWindowInBackground", "connectInBackground"] as const)(
    "by %s: it is freed when that has ended",
    async (name) => {
      const { ranks, open, letCome, given } = await underWay(name);
      expect(given()).toEqual([0, 0]);
      letCome(true);
      expect(await Promise.all(open)).toEqual([undefined, undefined]);
      await expect.poll(given).toEqual([1, 1]);
      await closeAll(ranks);
    },
  );

  test.each(["splitInBackground", "connectInBackground"] as const)(
    "by %s: it is freed with the communicator when that is aborted",
    async (name) => {
      const { ranks, open, letCome, given } = await underWay(name);
      for (const { comm } of ranks) comm.abort();
      const aborted = { code: "ERR_COMM_ABORTED" };
      expect(await Promise.all(open)).toMatchObject([aborted, aborted]);
      letCome(false);
      await expect.poll(given).toEqual([0, 1]);
      await closeAll(ranks);
    },
  );
});

test("a window that cannot be released keeps its memory, and is reported when the world closes", async () => {
  const gpus = cleanGpus();
  const planned = ncclError("ncclCommWindowDeregister", 1, "ncclUnhandledCudaError");
  const closing = inWorld(gpus, 2, async (world) => {
    await world.run(async (comm) => {
      const window = symmetric(comm);
      await comm.allReduce({ send: window, op: "sum" });
      await comm.barrier();
      if (comm.rank === 0) gpus.machine.failNext("deregisterWindow", planned);
      window.dispose();
      await turns();
      await comm.barrier();
    });
    const sizes = [...gpus.nccl.ends.values()].map(({ windows }) => windows.size);
    expect(sizes.toSorted()).toEqual([0, 1]);
    expect(gpus.machine.count("memFree")).toBe(1);
  });
  await expect(closing).rejects.toEqual(
    seen(planned, { rank: 0, size: 2, comm: "world", device: "cuda:0" }),
  );
});

describe("symmetric memory that is disposed by a rank that called with it", () => {
  const gone = {
    ...{ code: "ERR_COMM_CLOSED", rank: 0, ranks: [0], collective: "allReduce", call: 0 },
    message: expect.stringMatching(/rank 0 disposed a buffer while it was lent/),
  };

  test("is freed after the window that NCCL makes of it meanwhile", async () => {
    const gpus = cleanGpus();
    const ranks = await joinAll(2, undefined, gpus);
    const { calls } = gpus.nccl;
    const register = calls.registerWindowInBackground;
    let [begun, go] = [0, (): void => undefined];
    const held = new Promise<void>((resolve) => {
      go = resolve;
    });
    calls.registerWindowInBackground = async (...args) => {
      begun += 1;
      await held;
      return register(...args);
    };
    const windows = ranks.map(({ comm }) => symmetric(comm));
    const ops = ranks.map(({ comm }, rank) =>
      errorOf(comm.allReduce({ send: windows[rank] as Sent, op: "sum", timeoutMs: 300 })),
    );
    while (begun < ranks.length) await turns(1);
    windows[0]?.dispose();
    await turns(20);
    expect(gpus.machine.count("memFree")).toBe(0);
    go();
    expect(await Promise.all(ops)).toMatchObject([gone, { code: "ERR_COMM_TIMEOUT", rank: 1 }]);
    await turns(20);
    const freed = ["deregisterWindow", "memFree"].map((name) => gpus.machine.count(name));
    expect(freed).toEqual([1, 1]);
    await closeAll(ranks);
  });

  test("before the ranks meet for its window is not registered, and the call is refused", async () => {
    const gpus = cleanGpus();
    // The call waits until it is compared with the other rank's.
    const ranks = await joinAll(2, "always", gpus);
    const ops = ranks.map(({ comm }) => {
      const window = symmetric(comm);
      const op = errorOf(comm.allReduce({ send: window, op: "sum", timeoutMs: 300 }));
      if (comm.rank === 0) window.dispose();
      return op;
    });
    expect(await Promise.all(ops)).toMatchObject([gone, { code: "ERR_COMM_TIMEOUT", rank: 1 }]);
    expect(gpus.machine.count("registerWindowInBackground")).toBe(0);
    await closeAll(ranks);
  });

  test.each(["a call", "a recording"])(
    "is not registered for %s that waits for others",
    async (what) => {
      const warn = vi.spyOn(process, "emitWarning").mockReturnValue(undefined);
      onTestFinished(() => warn.mockRestore());
      // The other rank waits in NCCL, and leaves behind what that has of its memory.
      const gpus = fakeGpus();
      const ranks = await joinAll(2, undefined, gpus);
      const windows = ranks.map(({ comm }) => symmetric(comm));
      const call = ({ comm }: Joined) => {
        const reduce = () => comm.allReduce({ send: windows[comm.rank] as Sent, op: "sum" });
        if (what === "a call") return errorOf(reduce());
        return errorOf(comm.capture(() => void reduce()));
      };
      const [a, b] = ranks as [Joined, Joined];
      const first = call(a);
      await turns(30);
      windows[0]?.dispose();
      await turns(30);
      const second = call(b);
      const { collective: _, ...refused } = gone;
      expect(await first).toMatchObject(refused);
      b.comm.abort();
      expect(await second).toMatchObject({ code: "ERR_COMM_ABORTED" });
      expect(gpus.machine.complaints).toEqual([]);
      a.comm.abort();
      await closeAll(ranks);
    },
  );
});

describe("symmetric memory of no bytes gets no window, and calls with it are done", () => {
  const empty = (comm: Communicator) => {
    const nothing = comm.alloc("float32", 0, { symmetric: true });
    return comm.allReduce({ send: nothing, op: "sum" });
  };

  test("in one process", async () => {
    const gpus = cleanGpus();
    await inWorld(gpus, 2, (world) => world.run(empty));
    expect(gpus.machine.count("registerWindow")).toBe(0);
  });

  test("in a job", async () => {
    const gpus = cleanGpus();
    const ranks = await joinAll(2, undefined, gpus);
    await onAll(ranks, ({ comm }) => empty(comm));
    expect(gpus.machine.count("registerWindowInBackground")).toBe(0);
    await closeAll(ranks);
  });
});
