/** Splits by colors and keys that are more than NCCL's `int`s hold: the ranks are those that the library and the simulation have. */
import { setFlagsFromString } from "node:v8";
import { runInNewContext } from "node:vm";
import fc from "fast-check";
import { type Communicator, createWorld, type World } from "twinccl";
import { sim } from "twinccl/sim";
import { expect, test } from "vitest";
import { fakeGpus } from "../../../../support/fake-gpus/index.ts";
import { within } from "../../../../support/planted.ts";
import { holds } from "../../../../support/seed.ts";
import { cleanGpus, expectClean, inWorld } from "../gpus.ts";
import { closeAll, joinAll, onAll } from "../job/joined.ts";
import { outcome } from "./watched-world.ts";

/** The arguments of a rank's split. */
interface SplitArguments {
  readonly color: number | undefined;
  readonly key: number;
}

const [most, least] = [Number.MAX_SAFE_INTEGER, Number.MIN_SAFE_INTEGER];

/** Arguments by rank, and the members of each resulting communicator, in its order. */
const cases: readonly (readonly [
  what: string,
  splitArgs: readonly SplitArguments[],
  groups: number[][],
])[] = [
  ["keys 1 and 2**31", [2 ** 31, 1, 2 ** 32].map((key) => ({ color: 0, key })), [[1, 0, 2]]],
  ["negative keys", [0, -1, -(2 ** 31) - 1].map((key) => ({ color: 3, key })), [[2, 1, 0]]],
  ["the last keys", [most, 0, least].map((key) => ({ color: most, key })), [[2, 1, 0]]],
  [
    "colors 2**32 - 1 and 2**31",
    [2 ** 32 - 1, 2 ** 31, 2 ** 32 - 1].map((color, rank) => ({ color, key: -rank })),
    [[2, 0], [1]],
  ],
  [
    "colors that are equal in 32 bits",
    [7, 2 ** 32 + 7, 2 ** 33 + 7].map((color) => ({ color, key: 0 })),
    [[0], [1], [2]],
  ],
  [
    "a rank that joins nothing",
    [
      { color: 2 ** 31, key: 2 ** 31 },
      { color: undefined, key: 0 },
      { color: 2 ** 31, key: 1 },
    ],
    [[2, 0]],
  ],
];

/** The view of each rank of a split: its place, the members, the first one; `undefined` where it joins nothing. */
async function found(comm: Communicator, child: Communicator | undefined) {
  if (child === undefined) return undefined;
  const send = comm.rank + 1;
  const [own, all] = [Int32Array.of(send), new Int32Array(child.size)];
  const [data, recv] = [child.alloc("int32", 1).copyFrom(own), child.alloc("int32", all.length)];
  await child.allGather({ send: data, recv });
  await child.broadcast({ recv: data, root: 0 });
  const gathered = Array.from(await recv.toHost(), (number) => number - 1);
  const [root = 0] = await data.toHost();
  return { rank: child.rank, gathered, root: root - 1 };
}

/** The views in a world. */
const foundIn = (world: World, splitArgs: readonly SplitArguments[]) =>
  world.run(async (comm) => found(comm, await comm.split(splitArgs[comm.rank] as SplitArguments)));

/** The required views. */
function expected(size: number, groups: readonly number[][]) {
  return Array.from({ length: size }, (_, rank) => {
    const group = groups.find((each) => each.includes(rank));
    return group && { rank: group.indexOf(rank), gathered: group, root: group[0] };
  });
}

test.each(cases)("%s, in one process", async (_, splitArgs, groups) => {
  await inWorld(cleanGpus(), splitArgs.length, async (world) => {
    expect(await foundIn(world, splitArgs)).toEqual(expected(splitArgs.length, groups));
  });
});

test.each(cases)("%s, in processes of their own", async (_, splitArgs, groups) => {
  const ranks = await joinAll(splitArgs.length);
  const children = await onAll(ranks, ({ comm }) =>
    comm.split(splitArgs[comm.rank] as SplitArguments),
  );
  const results = await onAll(ranks, ({ comm }) => found(comm, children[comm.rank]));
  expect(results).toEqual(expected(splitArgs.length, groups));
  await closeAll(ranks);
});

test("random colors and keys give the simulation's ranks", async () => {
  const near = fc.constantFrom(-(2 ** 32), -(2 ** 31), 0, 2 ** 31, 2 ** 32, 2 ** 33);
  const keys = fc.oneof(
    fc.maxSafeInteger(),
    fc.tuple(near, fc.integer({ min: -2, max: 2 })).map(([a, b]) => a + b),
  );
  // Few colors, so that ranks come together.
  const palettes = fc.array(keys.map(Math.abs), { minLength: 1, maxLength: 3 });
  const drawn = palettes.chain((colors) => {
    const color = fc.option(fc.constantFrom(...colors), { nil: undefined, freq: 8 });
    return fc.array(fc.record({ color, key: keys }), { minLength: 1, maxLength: 5 });
  });
  await holds(
    drawn,
    async (splitArgs) => {
      const size = splitArgs.length;
      const world = await createWorld({ backend: sim(), size });
      const expectedGroups = await foundIn(world, splitArgs);
      await world.close();
      const gpus = fakeGpus();
      await inWorld(gpus, size, async (onGpus) => {
        expect(await foundIn(onGpus, splitArgs)).toEqual(expectedGroups);
      });
      expectClean(gpus);
    },
    100,
  );
});

/** The outcome of a call on the communicator that rank 0 gets of a split, behind which rank 1 ends it. */
async function behindAnEnd(end: (comm: Communicator) => void): Promise<string> {
  const gpus = cleanGpus();
  let found = "";
  await inWorld(gpus, 2, async (world) => {
    const running = world.run(async (comm) => {
      const split = comm.split({ color: 0 });
      if (comm.rank === 1) end(comm);
      const child = await split;
      if (comm.rank === 0) found = await within(1000, outcome(child.barrier()));
    });
    await running.catch(() => undefined);
  });
  return found;
}

test("a split that is complete when the world is aborted gives communicators that are aborted", async () => {
  expect(await behindAnEnd((comm) => comm.abort())).toBe("ERR_COMM_ABORTED");
});

test("a split that is complete when a rank fails gives communicators that fail", async () => {
  const fail = (): void => {
    throw new Error("rank 1 fails");
  };
  expect(await behindAnEnd(fail)).toBe("ERR_COMM_REMOTE");
});

test("the reason of an abort is not kept once the communicator is released", async () => {
  setFlagsFromString("--expose-gc");
  const collectGarbage = runInNewContext("gc") as () => void;
  const gpus = cleanGpus();
  await inWorld(gpus, 1, async (world) => {
    const refs: WeakRef<object>[] = [];
    await world.run(async (comm) => {
      const child = await comm.split({ color: 0 });
      gpus.machine.hold();
      const call = child.allReduce({ send: child.alloc("int8", 1), op: "sum" });
      await call.enqueued;
      const reason = new Error("over");
      refs.push(new WeakRef(reason));
      child.abort(reason);
      expect(await outcome(call)).toBe("ERR_COMM_ABORTED");
      gpus.machine.release();
    });
    // A run begins without the failures of the one before.
    await world.run(() => undefined);
    for (let i = 0; i < 3; i++) {
      await new Promise((resolve) => setTimeout(resolve, 20));
      collectGarbage();
    }
    expect(refs.map((ref) => ref.deref())).toEqual([undefined]);
  });
});
