/** Calls of one rank on several communicators, of which some wait for other processes: NCCL is given them in their order. */
import fc from "fast-check";
import type { Communicator, DeviceBuffer } from "twinccl";
import { describe, expect, test } from "vitest";
import type { FakeGpus } from "../../../../support/fake-gpus/index.ts";
import { within } from "../../../../support/planted.ts";
import { quickTime } from "../../../../support/quick-time.ts";
import { holds } from "../../../../support/seed.ts";
import { cleanGpus, turns } from "../gpus.ts";
import { closeAll, closeRest, errorOf, type Joined, joinAll, onAll } from "../job/joined.ts";
import { type Handed, noteHanded, onDevice } from "./handed-over.ts";

quickTime();

/** A rank's ends of the communicators of all ranks, and of two splits that hold all of them too. */
interface Ends {
  readonly joined: Joined;
  readonly comms: readonly Communicator[];
}

interface Opened {
  readonly ends: readonly Ends[];
  readonly handed: Handed[];
}

async function open(size: number, compareCalls: "off" | "always", gpus: FakeGpus): Promise<Opened> {
  const ranks = await joinAll(size, compareCalls, gpus);
  const ends = await onAll(ranks, async (joined): Promise<Ends> => {
    const { comm } = joined;
    const forth = await comm.split({ color: 0 });
    const back = await comm.split({ color: 0, key: -comm.rank });
    return { joined, comms: [comm, forth, back] };
  });
  return { ends, handed: noteHanded(gpus) };
}

/** Closes all ranks; of which communicators some may have given up. */
const closed = (ends: readonly Ends[], on?: number) => {
  const ranks = ends.map(({ joined }) => joined);
  return on === undefined
    ? closeAll(ranks)
    : closeRest(
        ranks,
        ends.map(({ comms }) => comms[on]),
      );
};

/** The sum of ones, of so many elements: the call is known by their number. */
const sum = (comm: Communicator, length: number, options = {}) =>
  comm.allReduce({ send: comm.alloc("int8", length).fill(1), op: "sum", ...options });

/** Makes the same call every time it is called. */
function repeating(comm: Communicator, length: number): () => PromiseLike<DeviceBuffer> {
  const args = { send: comm.alloc("int8", length), op: "max" } as const;
  return () => comm.allReduce(args);
}

/** Calls that wait for other processes before NCCL is given them, with so many elements. */
const slow = {
  "that is compared": sum,
  "whose counts are exchanged": (comm: Communicator, length: number) => {
    const sendCounts = Array.from({ length: comm.size }, () => length);
    return comm.allToAllv({ send: comm.alloc("int8", comm.size * length), sendCounts });
  },
  "that connects": (comm: Communicator, length: number) => {
    const [send, recv] = [comm.alloc("int8", length), comm.alloc("int8", length)];
    const [to, from] = [1, comm.size - 1].map((by) => (comm.rank + by) % comm.size);
    return comm.sendRecv({ send, recv, to: to as number, from: from as number });
  },
  "that has a new window": (comm: Communicator, length: number) =>
    comm.allReduce({ send: comm.alloc("int8", length, { symmetric: true }), op: "sum" }),
};

/** The numbers of elements that a device was given, one after another, without those that exchange counts and windows. */
const lengths = (handed: readonly Handed[], device: number): string[] => {
  const counts = handed.flatMap(({ device: on, call, count }) =>
    on === device && !["registerWindow", "alltoAll"].includes(call) ? [`${count}`] : [],
  );
  return counts.filter((count, i) => count !== counts[i - 1]);
};

describe.each(Object.entries(slow))("a call %s", (what, call) => {
  test.each([
    [0, "at once"],
    [5, "at once"],
    [0, "later"],
    [5, "later"],
  ] as const)(
    "is not overtaken on another communicator, after %i calls there, the last rank %s",
    async (before, when) => {
      const gpus = cleanGpus();
      const { ends, handed } = await open(3, what.includes("compared") ? "always" : "off", gpus);
      const again = ends.map(({ comms }) => repeating(comms[1] as Communicator, 20));
      for (let round = 0; round < before; round++)
        await within(5000, Promise.all(again.map((b) => b())));
      handed.length = 0;
      const program = async ({ joined, comms }: Ends): Promise<unknown> => {
        const [a, , c] = comms as [Communicator, Communicator, Communicator];
        const isLate = when === "later" && joined.comm.rank === 2;
        const b = again[joined.comm.rank] as () => PromiseLike<unknown>;
        const made: PromiseLike<unknown>[] = [];
        const steps = [
          b,
          b,
          () => call(a, 10),
          b,
          b,
          () => sum(a, 30),
          () => call(c, 40),
          b,
          () => sum(a, 50),
        ];
        for (const step of steps) {
          if (isLate) await turns(12);
          made.push(step());
        }
        return Promise.all(made);
      };
      await within(5000, Promise.all(ends.map(program)));
      const order = ["20", "10", "20", "30", "40", "20", "50"];
      expect([0, 1, 2].map((device) => lengths(handed, device))).toEqual([order, order, order]);
      await closed(ends);
    },
  );
});

test("a turn that ends at its deadline lets the calls behind it continue", async () => {
  const gpus = cleanGpus();
  const { ends, handed } = await open(2, "always", gpus);
  const [[a, b], [late, other]] = ends.map(({ comms }) => comms) as [
    Communicator[],
    Communicator[],
  ];
  const ended = errorOf(sum(a as Communicator, 10, { timeoutMs: 80 }));
  const behind = [sum(b as Communicator, 20), sum(b as Communicator, 30)];
  const next = errorOf(sum(a as Communicator, 40));
  await turns(20);
  expect(handed).toEqual([]);
  const there = [sum(other as Communicator, 20), sum(other as Communicator, 30)];
  expect(await ended).toMatchObject({ code: "ERR_COMM_TIMEOUT", ranks: [1] });
  expect(await next).toMatchObject({ code: "ERR_COMM_ABORTED" });
  await within(5000, Promise.all([...behind, ...there]));
  expect(onDevice(handed, 0)).toEqual(["allReduce 20", "allReduce 30"]);
  expect(await errorOf(sum(late as Communicator, 10, { timeoutMs: 80 }))).toMatchObject({
    code: "ERR_COMM_TIMEOUT",
  });
  await closed(ends, 0);
});

test("a queued call that is cancelled is not submitted, and ends only its own communicator", async () => {
  const gpus = cleanGpus();
  const { ends, handed } = await open(2, "off", gpus);
  const [[a, b, c], [otherA, otherB, otherC]] = ends.map(({ comms }) => comms) as [
    Communicator[],
    Communicator[],
  ] as [[Communicator, Communicator, Communicator], [Communicator, Communicator, Communicator]];
  const giving = new AbortController();
  const first = slow["that connects"](a, 10);
  const cancelled = errorOf(sum(b, 20, { signal: giving.signal }));
  const lost = errorOf(sum(b, 30));
  const last = sum(c, 40);
  await turns(10);
  giving.abort(new Error("enough"));
  expect(await cancelled).toMatchObject({ code: "ERR_COMM_ABORTED" });
  expect(handed).toEqual([]);
  const there = [slow["that connects"](otherA, 10), sum(otherC, 40)];
  await within(5000, Promise.all([first, last, ...there]));
  expect(await lost).toMatchObject({ code: "ERR_COMM_ABORTED" });
  expect(lengths(handed, 0)).toEqual(["10", "40"]);
  expect(await errorOf(sum(otherB, 20, { timeoutMs: 50 }))).toMatchObject({
    code: "ERR_COMM_TIMEOUT",
  });
  await closed(ends, 1);
});

test("a queued message that is cancelled does not give the next one's data to its receiver", async () => {
  const gpus = cleanGpus();
  const { ends } = await open(2, "off", gpus);
  const [[a, b], [otherA, otherB]] = ends.map(({ comms }) => comms) as [
    [Communicator, Communicator],
    [Communicator, Communicator],
  ];
  const giving = new AbortController();
  const one = (comm: Communicator, value: number) => comm.alloc("int8", 1).fill(value);
  const first = slow["that connects"](a, 10);
  const { signal } = giving;
  const cancelled = errorOf(b.send({ send: one(b, 1), peer: 1, signal }));
  const next = errorOf(b.send({ send: one(b, 2), peer: 1, timeoutMs: 200 }));
  await turns(10);
  giving.abort(new Error("enough"));
  expect(await cancelled).toMatchObject({ code: "ERR_COMM_ABORTED" });
  const there = slow["that connects"](otherA, 10);
  const got = errorOf(otherB.recv({ recv: one(otherB, 0), peer: 0, timeoutMs: 200 }));
  await within(5000, Promise.all([first, there]));
  expect(await next).toMatchObject({ code: "ERR_COMM_ABORTED" });
  expect(await got).toMatchObject({ code: "ERR_COMM_TIMEOUT" });
  await closed(ends, 1);
});

test("no call is lost when a communicator with queued calls is aborted", async () => {
  const gpus = cleanGpus();
  const { ends, handed } = await open(2, "off", gpus);
  const [[a, b, c], [otherA, , otherC]] = ends.map(({ comms }) => comms) as [
    [Communicator, Communicator, Communicator],
    [Communicator, Communicator, Communicator],
  ];
  const connecting = slow["that connects"](a, 10);
  const over = [errorOf(sum(b, 20)), errorOf(slow["that connects"](b, 30))];
  const rest = [sum(c, 40), sum(a, 50)];
  await turns(10);
  const why = new Error("enough");
  b.abort(why);
  for (const error of await Promise.all(over)) {
    expect(error).toMatchObject({ code: "ERR_COMM_ABORTED", cause: why });
  }
  const there = [slow["that connects"](otherA, 10), sum(otherC, 40), sum(otherA, 50)];
  await within(5000, Promise.all([connecting, ...rest, ...there]));
  expect(lengths(handed, 0)).toEqual(["10", "40", "50"]);
  await closed(ends, 1);
});

test("the communicator at the head may be aborted, and those behind it continue", async () => {
  const gpus = cleanGpus();
  const { ends, handed } = await open(2, "off", gpus);
  const [[, b, c], [, , otherC]] = ends.map(({ comms }) => comms) as [
    [Communicator, Communicator, Communicator],
    [Communicator, Communicator, Communicator],
  ];
  const over = errorOf(slow["that has a new window"](b, 10));
  const behind = sum(c, 20);
  await turns(10);
  b.abort(new Error("enough"));
  expect(await over).toMatchObject({ code: "ERR_COMM_ABORTED" });
  await within(5000, Promise.all([behind, sum(otherC, 20)]));
  expect(onDevice(handed, 0)).toEqual(["allReduce 20"]);
  await closed(ends, 1);
});

test("a split behind a call that waits makes its communicator in order", async () => {
  const gpus = cleanGpus();
  const { ends, handed } = await open(2, "off", gpus);
  const sums = await within(
    5000,
    Promise.all(
      ends.map(async ({ joined, comms }) => {
        if (joined.comm.rank === 1) await turns(20);
        const [a, b] = comms as [Communicator, Communicator];
        const first = slow["that connects"](a, 10);
        const child = b.split({ color: 0 });
        const last = sum(a, 20);
        await Promise.all([first, last]);
        return [...(await (await sum(await child, 3)).toHost())];
      }),
    ),
  );
  expect(sums).toEqual([
    [2, 2, 2],
    [2, 2, 2],
  ]);
  for (const device of [0, 1]) {
    const given = onDevice(handed, device).filter((each) => !/^(send|recv)/.test(each));
    expect(given).toEqual(["allGather 3", "allReduce 20", "allReduce 3"]);
  }
  await closed(ends);
});

/** The act of a step, its communicator, and every rank's pause before it. */
interface Step {
  readonly kind: "sum" | "again" | keyof typeof slow;
  readonly on: number;
  readonly pauses: readonly number[];
}

const size = 3;
const programs = fc.array(
  fc.record<Step>({
    kind: fc.constantFrom("sum", "again", "again", ...(Object.keys(slow) as (keyof typeof slow)[])),
    on: fc.nat({ max: 2 }),
    pauses: fc.array(fc.oneof(fc.constant(0), fc.constant(0), fc.nat({ max: 6 })), {
      minLength: size,
      maxLength: size,
    }),
  }),
  { minLength: 1, maxLength: 14 },
);

test.each(["off", "always"] as const)(
  "random programs without await, compareCalls %s",
  (compareCalls) =>
    holds(
      programs,
      async (steps) => {
        const gpus = cleanGpus();
        const { ends, handed } = await open(size, compareCalls, gpus);
        const program = async ({ joined, comms }: Ends): Promise<number[]> => {
          const repeated = comms.map((comm, on) => repeating(comm, 100 + on));
          const made: PromiseLike<unknown>[] = [];
          for (const [index, { kind, on, pauses }] of steps.entries()) {
            const pause = pauses[joined.comm.rank] as number;
            if (pause > 0) await turns(pause);
            const comm = comms[on] as Communicator;
            if (kind === "again") made.push((repeated[on] as () => PromiseLike<unknown>)());
            else made.push((kind === "sum" ? sum : slow[kind])(comm, index + 1));
          }
          const results = await Promise.all(made);
          const sums = steps.map(async ({ kind }, i) => {
            if (kind !== "sum") return 3;
            return (await (results[i] as DeviceBuffer<"int8">).toHost())[0] as number;
          });
          return Promise.all(sums);
        };
        const sums = await within(8000, Promise.all(ends.map(program)));
        expect(sums).toEqual(ends.map(() => steps.map(() => 3)));
        const order = steps
          .map(({ kind, on }, index) => `${kind === "again" ? 100 + on : index + 1}`)
          .filter((each, i, all) => each !== all[i - 1]);
        for (const device of ends.keys()) expect(lengths(handed, device)).toEqual(order);
        await closed(ends);
      },
      25,
    ),
);
