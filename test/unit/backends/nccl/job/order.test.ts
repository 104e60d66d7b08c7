/** The order of calls across communicators in a job of several processes. */
import { CallOrderError, CommTimeoutError } from "twinccl";
import { expect, test } from "vitest";
import { fakeGpus } from "../../../../support/fake-gpus/index.ts";
import { longTest } from "../../../../support/long-test.ts";
import { closeAll, type Joined, joinAll, onAll } from "./joined.ts";

const caught = (op: PromiseLike<unknown>): Promise<unknown> =>
  Promise.resolve(op).then(
    () => "done",
    (error: unknown) => error,
  );

/** Both communicators are connected; then rank 1 makes its calls in the other order. */
async function inverted(
  timeoutMs: number | undefined,
  compare?: "always",
  isAwaited = false,
): Promise<unknown[]> {
  const gpus = fakeGpus();
  const joined = await joinAll(2, compare, gpus);
  const errors = await onAll(joined, async ({ comm }: Joined) => {
    const [dp, tp] = [await comm.split({ color: 0 }), await comm.split({ color: 0 })];
    const [a, b] = [comm.alloc("float32", 4), comm.alloc("float32", 4)];
    const x = () => dp.allReduce({ send: a, op: "sum", timeoutMs });
    const y = () => tp.allReduce({ send: b, op: "sum", timeoutMs });
    await x();
    await y();
    if (comm.rank === 0 && isAwaited) return [await caught(y()), await caught(x())];
    const ops = (comm.rank === 1 ? [x, y] : [y, x]).map((call) => caught(call()));
    return Promise.all(ops);
  });
  await closeAll(joined);
  return errors.flat();
}

const orders = [
  {
    rank: 0,
    calls: [
      { comm: "world/0#2", collective: "allReduce", call: 1 },
      { comm: "world/0", collective: "allReduce", call: 1 },
    ],
  },
  {
    rank: 1,
    calls: [
      { comm: "world/0", collective: "allReduce", call: 1 },
      { comm: "world/0#2", collective: "allReduce", call: 1 },
    ],
  },
];

test("with comparisons an inversion is an error on all ranks before NCCL gets a call", async () => {
  const errors = await inverted(undefined, "always");
  expect(errors).toHaveLength(4);
  for (const error of errors) {
    expect(error).toBeInstanceOf(CallOrderError);
    expect(error).toMatchObject({ orders, ranks: [0, 1] });
  }
});

test("without comparisons the errors of deadlines have the table", async () => {
  const errors = await inverted(300);
  const late = errors.filter((error) => error !== "done");
  expect(late.length).toBeGreaterThan(1);
  for (const error of late) {
    expect(error).toBeInstanceOf(CommTimeoutError);
    expect(error).toMatchObject({ ranks: [0, 1] });
    expect(String(error)).toMatch(
      /in different orders\n {2}rank 0 .* before .*\n {2}rank 1 .* before /,
    );
  }
});

test("a call that a rank would only make behind another one is named as well", async () => {
  const errors = await inverted(300, undefined, true);
  // Whose deadline comes first decides which call has the table.
  const texts = errors.map(String).join("\n");
  expect(texts).toMatch(
    /rank 0 {2}allReduce: call 1 on "world\/0#2" {2}before allReduce: call 1 on "world\/0", not made yet/,
  );
});

test("a call that a rank would only make behind another one is named beside an open call on a stream of its own", async () => {
  const joined = await joinAll(2, undefined, fakeGpus());
  const errors = await onAll(joined, async ({ comm }: Joined) => {
    const own = { color: 0, stream: "own" } as const;
    const other = await comm.split(own);
    const [dp, tp] = [await comm.split({ color: 0 }), await comm.split({ color: 0 })];
    const a = comm.alloc("float32", 4);
    const sum = (on: typeof dp, timeoutMs: number) =>
      on.allReduce({ send: a, op: "sum", timeoutMs });
    for (const each of [other, dp, tp]) await sum(each, 5_000);
    if (comm.rank === 1) return Promise.all([dp, tp].map((on) => caught(sum(on, 300))));
    const open = caught(sum(other, 5_000));
    const late = await caught(sum(tp, 300));
    other.abort();
    await open;
    return [late];
  });
  const late = errors.flat().filter((error) => String(error).includes("in different orders"));
  expect(late.length).toBeGreaterThan(0);
  for (const error of late) {
    expect(error).toMatchObject({ ranks: [0] });
    expect(String(error)).toMatch(/rank 0 {2}.*, not made yet\n {2}rank 1 {2}/);
  }
  await closeAll(joined);
});

test("calls in one order on all ranks are late for another reason", async () => {
  const joined = await joinAll(2, "always", fakeGpus());
  const errors = await onAll(joined, async ({ comm }: Joined) => {
    const [dp, tp] = [await comm.split({ color: 0 }), await comm.split({ color: 0 })];
    const a = comm.alloc("float32", 4);
    await dp.allReduce({ send: a, op: "sum" });
    if (comm.rank === 1) await new Promise((resolve) => setTimeout(resolve, 400));
    const ops = [dp, tp].map((each) => each.allReduce({ send: a, op: "sum" }));
    return Promise.all(ops.map(caught));
  });
  expect(errors.flat()).toEqual(["done", "done", "done", "done"]);
  await closeAll(joined);
});

longTest("a late call of another communicator keeps its own cause", async () => {
  const joined = await joinAll(2, undefined, fakeGpus());
  const errors = await onAll(joined, async ({ comm }: Joined) => {
    const own = { color: 0, stream: "own" } as const;
    const [dp, tp, other] = [
      await comm.split({ color: 0 }),
      await comm.split({ color: 0 }),
      await comm.split(own),
    ];
    const a = comm.alloc("float32", 4);
    const sum = (on: typeof dp, timeoutMs = 5_000) =>
      on.allReduce({ send: a, op: "sum", timeoutMs });
    for (const each of [dp, tp, other]) await sum(each);
    const calls = (comm.rank === 1 ? [dp, tp] : [tp, dp]).map((on) => caught(sum(on, 2_000)));
    const alone = comm.rank === 0 ? await caught(sum(other, 200)) : undefined;
    await Promise.all(calls);
    return alone;
  });
  expect(String(errors[0])).toMatch(/rank 1 had not made it/);
  expect(String(errors[0])).not.toMatch(/different orders/);
  await closeAll(joined);
});
