/** The clock of worlds that follow NCCL on a measured machine. */
import { type Communicator, createWorld, type DeviceBuffer } from "twinccl";
import { type SimOptions, sim, Trace } from "twinccl/sim";
import { describe, expect, test } from "vitest";
import {
  type CallMode,
  type MachineProfile,
  machineProfiles,
  timeOf,
} from "../../../../src/algorithms/index.ts";
import {
  callUs,
  type MessageCalls,
  type MessageUse,
  timedMessage,
} from "../../../../src/algorithms/nccl/index.ts";

const profile = machineProfiles["h200x8"] as MachineProfile;
const machine = "8 x NVIDIA H200, NVSwitch, NCCL 2.28.9";
const question = { collective: "allReduce", dtype: "float32", op: "sum", count: 2 ** 16 } as const;

/** Nanoseconds of the question's call by the profile. */
function expectedNs(ranks: number): number {
  const { collective, dtype, op, count } = question;
  return Math.round(1e6 * timeOf(profile, { collective, dtype, op, count, ranks }).us) / 1000;
}

async function endsOf(
  options: Parameters<typeof sim>[0],
  program: (comm: Communicator) => unknown,
  size = 4,
): Promise<(number | undefined)[]> {
  const world = await createWorld({ backend: sim({ phantom: true, ...options }), size });
  const ends = await world.run(async (comm) => {
    await program(comm);
    return comm.stats().virtualNs;
  });
  await world.close();
  return ends;
}

const allReduce = (comm: Communicator) =>
  comm.allReduce({ send: comm.alloc("float32", question.count), op: "sum" });

describe("sim({ machine })", () => {
  const mine: MachineProfile = {
    ...profile,
    numbers: { ...profile.numbers, ring: { ...profile.numbers.ring } },
  };
  const { LL, LL128, Simple } = profile.numbers.ring;
  const ring = {
    LL: { ...LL, startUs: 9 },
    LL128: { ...LL128, startUs: 9 },
    Simple: { ...Simple, startUs: 9 },
  };
  const slow: MachineProfile = { ...mine, numbers: { ...mine.numbers, ring } };

  test("takes the times of the profile", async () => {
    const [found] = await endsOf({ machine: slow }, allReduce);
    const { us } = timeOf(slow, { ...question, ranks: 4 });
    expect(found).toBeCloseTo(1000 * us, 2);
    expect(found).not.toBe(expectedNs(4));
    expect(await endsOf({ machine: profile }, allReduce)).toEqual(await endsOf({}, allReduce));
  });

  test.each([
    [{ machine: { ...slow, topology: "h200-hosts" } }, "topology"],
    [{ machine: { ...slow, nccl: "2.27.7" } }, "nccl"],
    [{ machine: { ...slow, nccl: "3.1" } }, "nccl"],
    [
      { machine: { ...slow, numbers: { ...slow.numbers, chain: { passShare: -1 } } } },
      "numbers.chain",
    ],
    [{ machine: slow, link: {} }, "link"],
  ])("refuses %#", (options, field) => {
    const refused = expect.objectContaining({ field: expect.stringContaining(field) });
    expect(() => sim(options as SimOptions)).toThrow(refused);
  });
});

describe("virtual time on a measured machine", () => {
  test("is what the profile says, for every rank", async () => {
    expect(await endsOf({}, allReduce)).toEqual(new Array(4).fill(expectedNs(4)));
  });

  test("begins with the last rank's arrival, and calls wait for earlier ones", async () => {
    const ends = await endsOf({}, async (comm) => {
      comm.work(1000 * comm.rank);
      await Promise.all([allReduce(comm), allReduce(comm)]);
    });
    expect(ends).toEqual(new Array(4).fill(3000 + 2 * expectedNs(4)));
  });

  test("overlaps with work on calls that are awaited later", async () => {
    const ends = await endsOf({}, async (comm) => {
      const call = allReduce(comm);
      comm.work(5_000_000);
      await call;
    });
    expect(ends).toEqual(new Array(4).fill(5_000_000));
  });

  test("is that of generic links where links are given, also by their defaults", async () => {
    const [generic] = await endsOf({ link: {} }, allReduce);
    expect(generic).not.toBe(expectedNs(4));
    expect(await endsOf({ link: { latencyNs: 1000 } }, allReduce)).toEqual(
      new Array(4).fill(generic),
    );
  });

  test("scales the messages of a trace to the call", async () => {
    const trace = new Trace();
    const [end = 0] = await endsOf({ trace }, allReduce);
    const times = trace
      .toChrome()
      .traceEvents.flatMap(({ ph, ts = 0, dur = 0 }) => (ph === "X" ? [ts + dur] : []));
    expect(times.length).toBeGreaterThan(24);
    expect(Math.max(...times) * 1000).toBeCloseTo(end, 3);
  });

  test.each(["reduceScatter", "allGather"] as const)(
    "in symmetric memory %s of blocks at any address takes longer, but not in place",
    async (collective) => {
      const timeOfBlocks = async (blocks: number, inPlace: boolean): Promise<number> => {
        const call = (comm: Communicator) => {
          const { rank } = comm;
          const [whole, apart] = [comm.size * blocks, blocks].map((length) => {
            return comm.alloc("float32", length, { symmetric: true });
          }) as [DeviceBuffer<"float32">, DeviceBuffer<"float32">];
          const own = inPlace ? whole.subarray(rank * blocks, (rank + 1) * blocks) : apart;
          if (collective === "allGather") return comm.allGather({ send: own, recv: whole });
          return comm.reduceScatter({ send: whole, recv: own, op: "sum" });
        };
        const [ns] = await endsOf({}, call, 2);
        return ns as number;
      };
      const count = 2 ** 23;
      const packs = await timeOfBlocks(count, false);
      const inPlace = await timeOfBlocks(count, true);
      if (collective === "reduceScatter") expect(inPlace).toBe(packs);
      expect((await timeOfBlocks(count + 1, true)) / inPlace).toBeCloseTo(1, 3);
      expect((await timeOfBlocks(count + 1, false)) / packs).toBeGreaterThan(1.5);
    },
  );

  test.each([
    [2 ** 17, 8.431],
    [885735, 15.844],
    [2 ** 21, 33.518],
    [2 ** 25, 467.266],
  ])("in symmetric memory an all-gather of %i in place is that of two H200", async (count, us) => {
    const call = (comm: Communicator) => {
      const recv = comm.alloc("float32", 2 * count, { symmetric: true });
      const send = recv.subarray(comm.rank * count, (comm.rank + 1) * count);
      return comm.allGather({ send, recv });
    };
    const [ns] = await endsOf({}, call, 2);
    expect(Math.abs((ns as number) / 1000 / us - 1)).toBeLessThan(0.15);
  });

  test("in symmetric memory an all-gather in place is extrapolated beyond two ranks", async () => {
    const count = 2 ** 20;
    const reasonOn = async (size: number, inPlace: boolean): Promise<string | undefined> => {
      const trace = new Trace();
      const world = await createWorld({ backend: sim({ phantom: true, trace }), size });
      await world.run((comm) => {
        const recv = comm.alloc("float32", size * count, { symmetric: true });
        const apart = comm.alloc("float32", count, { symmetric: true });
        const own = recv.subarray(comm.rank * count, (comm.rank + 1) * count);
        return comm.allGather({ send: inPlace ? own : apart, recv });
      });
      await world.close();
      const [reason] = trace.spans().flatMap(({ call }) => call?.extrapolated ?? []);
      return reason;
    };
    expect(await reasonOn(2, true)).toBeUndefined();
    expect(await reasonOn(4, false)).toBeUndefined();
    expect(await reasonOn(4, true)).toBe("in place: measured with 2 ranks");
  });

  test.each(["max", "avg", { preMul: 2 }] as const)(
    "of another operator than a sum is extrapolated in explanations and traces: %j",
    async (op) => {
      const trace = new Trace();
      const world = await createWorld({ backend: sim({ phantom: true, trace }), size: 4 });
      const { predictedFor } = world.explain({ ...question, op });
      await world.run(async (comm) => {
        await comm.allReduce({ send: comm.alloc("float32", question.count), op });
        await comm.barrier();
      });
      await world.close();
      expect(predictedFor).toBe(`${machine}; extrapolated: measured with sum`);
      const reasons = trace.spans().map(({ call }) => call?.extrapolated);
      expect(reasons[0]).toBe("measured with sum");
      expect(reasons.at(-1)).not.toBe("measured with sum");
    },
  );

  test.each(["allReduce", "reduceScatter", "allGather"] as const)(
    "in symmetric memory %s between buffers at unlike addresses is extrapolated",
    async (collective) => {
      const world = await createWorld({ backend: sim({ phantom: true }), size: 2 });
      const op = collective === "allGather" ? undefined : "sum";
      const on = (sendOffset: number) => {
        const symmetric = { sendOffset, recvOffset: 0 };
        const call = { collective, dtype: "float32", op, count: 2 ** 20, symmetric } as const;
        return world.explain(call).predictedFor;
      };
      expect(on(4)).toBe(machine);
      expect(on(1)).toBe(`${machine}; extrapolated: measured with buffers whole 16 bytes apart`);
      await world.close();
    },
  );

  test("is that of ordinary memory, and of symmetric memory for windows", async () => {
    const count = 2 ** 21;
    const broadcast = { collective: "broadcast", dtype: "float32", root: 0, count } as const;
    const reduced = { collective: "allReduce", dtype: "float32", op: "sum", count } as const;
    const nsIn = (call: typeof broadcast | typeof reduced, memory: CallMode["memory"]): number =>
      1000 * timeOf(profile, { ...call, ranks: 8, mode: { memory } }).us;
    const world = await createWorld({ backend: sim({ phantom: true }), size: 8 });
    const found = world.explain(broadcast).predictedNs;
    expect(found).toBeCloseTo(nsIn(broadcast, "ordinary"), 2);
    expect(found).toBeLessThan(0.6 * nsIn(broadcast, "registered"));
    expect(world.explain({ ...reduced, symmetric: true }).predictedNs).toBeCloseTo(
      nsIn(reduced, "symmetric"),
      2,
    );
    await world.close();
  });

  /** Microseconds of a message alone, for its sender and for its receiver. */
  const messageUs = (bytes: number, ranks: number, kind: MessageUse["kind"]) => {
    const calls = timedMessage(bytes, ranks, { kind, isCrossing: false }) as MessageCalls;
    const mode: CallMode = { ...profile.mode, memory: "ordinary" };
    const [sent, received] = [calls.sent, calls.received].map((call) =>
      callUs(profile.numbers, call, mode),
    );
    return { sent: sent as number, received: received as number };
  };
  const sizes = [4, 1024, 2 ** 14, 2 ** 14 + 4, 100_000, 2 ** 20, 2 ** 24 + 4, 2 ** 29];

  test.each([2, 4, 8])(
    "of one message on %i ranks ends a lag later for its receiver, and for a ring of them is that of a sendRecv",
    async (ranks) => {
      for (const bytes of sizes) {
        const call = { collective: "sendRecv", dtype: "float32", count: bytes / 4 } as const;
        const { us } = timeOf(profile, { ...call, ranks, mode: { memory: "ordinary" } });
        const one = await endsOf(
          {},
          async (comm) => {
            const buffer = comm.alloc("float32", call.count);
            if (comm.rank === 0) await comm.send({ send: buffer, peer: 1 });
            if (comm.rank === 1) await comm.recv({ recv: buffer, peer: 0 });
          },
          ranks,
        );
        const { sent, received } = messageUs(bytes, ranks, "one way");
        expect(sent).toBeLessThan(received);
        expect(received).toBeLessThanOrEqual(us);
        const idle = new Array(ranks - 2).fill(0);
        expect(one.map((ns) => Math.round((ns ?? 0) / 10))).toEqual([
          Math.round(100 * sent),
          Math.round(100 * received),
          ...idle,
        ]);
        const round = async (comm: Communicator): Promise<void> => {
          const [send, recv] = [
            comm.alloc("float32", call.count),
            comm.alloc("float32", call.count),
          ];
          const [to, from] = [(comm.rank + 1) % ranks, (comm.rank + ranks - 1) % ranks];
          await comm.sendRecv({ send, to, recv, from });
          await comm.group(() => {
            comm.send({ send, peer: to });
            comm.recv({ recv, peer: from });
          });
        };
        const ends = await endsOf({}, round, ranks);
        expect(ends.map((ns) => Math.round((ns ?? 0) / 10))).toEqual(
          new Array(ranks).fill(Math.round(200 * us)),
        );
      }
    },
  );

  test.each([2, 4, 8])(
    "of messages among %i ranks is about that of an all-to-all",
    async (ranks) => {
      // Larger messages share their channels with each other; the addresses of a message are taken as multiples of 16.
      for (const bytes of sizes.filter((each) => each < 2 ** 25 && each % 16 === 0)) {
        const call = { collective: "allToAll", dtype: "float32", count: bytes / 4 } as const;
        const { us } = timeOf(profile, { ...call, ranks, mode: { memory: "ordinary" } });
        const ends = await endsOf(
          {},
          async (comm) => {
            const [send, recv] = [
              comm.alloc("float32", ranks * call.count),
              comm.alloc("float32", ranks * call.count),
            ];
            await comm.group(() => {
              for (let peer = 0; peer < ranks; peer++) {
                const [at, to] = [peer * call.count, (peer + 1) * call.count];
                const blocks = { send: send.subarray(at, to), recv: recv.subarray(at, to) };
                comm.sendRecv({ ...blocks, to: peer, from: peer });
              }
            });
          },
          ranks,
        );
        const found = Math.max(...ends.map((ns) => ns ?? 0)) / 1000;
        expect(Math.abs(found / us - 1)).toBeLessThan(0.04);
      }
    },
  );

  test.each([4, 8])(
    "along a chain of %i ranks is that of the bytes of its messages",
    async (ranks) => {
      const calls = 50;
      for (const bytes of sizes) {
        const { sent, received } = messageUs(bytes, ranks, "both ways");
        const ends = await endsOf(
          {},
          async (comm) => {
            const send = comm.alloc("float32", bytes / 4);
            const recv = comm.alloc("float32", bytes / 4);
            for (let call = 0; call < calls; call++) {
              await comm.group(() => {
                if (comm.rank + 1 < ranks) comm.send({ send, peer: comm.rank + 1 });
                if (comm.rank > 0) comm.recv({ recv, peer: comm.rank - 1 });
              });
            }
          },
          ranks,
        );
        // Each rank is a lag behind the one before; the last message shares no channel.
        const most = calls * sent + (ranks - 1) * (received - sent);
        const lastUs = (ends.at(-1) ?? 0) / 1000;
        expect(lastUs).toBeLessThan(most * 1.001);
        expect(lastUs).toBeGreaterThan(most * 0.99 - (received - sent));
      }
    },
  );

  test("of messages of a group to one rank is that of their bytes, and the lag of the last", async () => {
    const counts = [2 ** 10, 2 ** 18, 2 ** 22];
    const alone = counts.map((count) => messageUs(4 * count, 4, "both ways"));
    const ends = await endsOf({}, async (comm) => {
      await comm.group(() => {
        for (const count of counts) {
          comm.send({ send: comm.alloc("float32", count), peer: (comm.rank + 1) % 4 });
          comm.recv({ recv: comm.alloc("float32", count), peer: (comm.rank + 3) % 4 });
        }
      });
    });
    const { sent: lastSent = 0, received: lastReceived = 0 } = alone.at(-1) ?? {};
    const whole = alone.reduce((sum, { sent }) => sum + sent, lastReceived - lastSent);
    for (const ns of ends) expect((ns ?? 0) / 1000).toBeCloseTo(whole, 2);
  });

  test.each([{ awaited: true }, { launch: "eager", processes: "one" }] as const)(
    "of messages of a group to one rank has the part of the processes once: %o",
    async (mode) => {
      const machine = { ...profile, mode: { ...profile.mode, ...mode } };
      const ns = async (options: SimOptions, messages: number): Promise<number> => {
        const ends = await endsOf(options, async (comm) => {
          await comm.group(() => {
            for (let at = 0; at < messages; at++) {
              const part = comm.alloc("float32", 256);
              if (comm.rank === 0) comm.send({ send: part, peer: 1 });
              if (comm.rank === 1) comm.recv({ recv: part, peer: 0 });
            }
          });
        });
        return Math.max(...ends.map((end) => end ?? 0));
      };
      const further = (await ns({ machine: profile }, 10)) - (await ns({ machine: profile }, 1));
      expect((await ns({ machine }, 10)) - (await ns({ machine }, 1))).toBeCloseTo(further, 0);
    },
  );

  test("of an all-gatherv is that of its sends and receives", async () => {
    const counts = [2 ** 20 + 4, 4, 0, 2 ** 18];
    const call = { collective: "allToAllv", dtype: "float32", ranks: 4, count: 0 } as const;
    const { us } = timeOf(profile, {
      ...call,
      counts: counts.map((each) => counts.map(() => each)),
      mode: { memory: "ordinary" },
    });
    const ends = await endsOf({}, async (comm) => {
      const send = comm.alloc("float32", counts[comm.rank] as number);
      const recv = comm.alloc("float32", 2 ** 20 + 8 + 2 ** 18);
      await comm.allGatherv({ send, recv, recvCounts: counts });
    });
    expect(ends.map((ns) => Math.round(ns ?? 0))).toEqual(new Array(4).fill(Math.round(1000 * us)));
  });

  test("of a reduce-scatterv is that of a reduce to each root, one after another", async () => {
    const counts = [2 ** 20 + 1, 3, 0, 2 ** 18];
    const reduces = counts.map((count, root) => {
      const call = { collective: "reduce", dtype: "float32", ranks: 4, count, root } as const;
      return count === 0 ? 0 : timeOf(profile, { ...call, mode: { memory: "ordinary" } }).us;
    });
    const whole = reduces.reduce((sum, each) => sum + each, 0);
    const world = await createWorld({ backend: sim({ phantom: true }), size: 4 });
    const found = world.explain({
      collective: "reduceScatterv",
      ...{ dtype: "float32", op: "sum", count: 0, counts: [counts] },
    });
    await world.close();
    expect(found.predictedNs).toBeCloseTo(1000 * whole, 0);
    const ends = await endsOf({}, async (comm) => {
      const send = comm.alloc("float32", 2 ** 20 + 4 + 2 ** 18);
      const recv = comm.alloc("float32", counts[comm.rank] as number);
      await comm.reduceScatterv({ send, recv, op: "sum", sendCounts: counts });
    });
    expect(Math.max(...ends.map((ns) => ns ?? 0))).toBeCloseTo(1000 * whole, 0);
  });

  test("of a group is that of its collectives one after another, then of its messages", async () => {
    const ends = await endsOf({}, async (comm) => {
      const [send, recv] = [comm.alloc("float32", 256), comm.alloc("float32", 256)];
      await comm.group(() => {
        comm.send({ send, peer: (comm.rank + 1) % 4 });
        allReduce(comm);
        comm.recv({ recv, peer: (comm.rank + 3) % 4 });
        allReduce(comm);
      });
    });
    const message = { collective: "sendRecv", dtype: "float32", count: 256, ranks: 4 } as const;
    const { us } = timeOf(profile, { ...message, mode: { memory: "ordinary" } });
    const whole = Math.round(2 * expectedNs(4) + 1000 * us);
    expect(ends.map((ns) => Math.round(ns ?? 0))).toEqual(new Array(4).fill(whole));
  });

  const others = ["allToAll", "barrier", "gather", "scatter", "broadcast", "reduce"] as const;
  test.each(others)("holds for %s too", async (collective) => {
    const world = await createWorld({ backend: sim({ phantom: true }), size: 4 });
    const { dtype, count } = question;
    const call = {
      ...{ collective, root: 0 },
      ...(collective !== "barrier" && { dtype, count }),
      ...(collective === "reduce" && { op: "sum" as const }),
    };
    const { root, ...rootless } = call;
    const rooted = !["allToAll", "barrier"].includes(collective);
    const { predictedFor, predictedNs } = world.explain(rooted ? { ...rootless, root } : rootless);
    expect(predictedFor).toMatch(machine);
    expect(predictedNs).toBeGreaterThan(4000);
    await world.close();
  });
});

describe("an explanation", () => {
  const explained = async (options: Parameters<typeof sim>[0], size: number, count = 2 ** 16) => {
    const world = await createWorld({ backend: sim({ phantom: true, ...options }), size });
    const { predictedNs, predictedFor } = world.explain({ ...question, count });
    await world.close();
    return { predictedNs, predictedFor };
  };

  test("names the machine of its time, and the links of another", async () => {
    expect(await explained({}, 8)).toEqual({
      predictedNs: expectedNs(8),
      predictedFor: machine,
    });
    const links = "links of 1000 ns and 400 GB/s";
    expect((await explained({ link: {} }, 8)).predictedFor).toBe(links);
    expect((await explained({}, 16)).predictedFor).toBe(links);
    expect((await explained({ algorithms: { allReduce: "ring" } }, 8)).predictedFor).toBe(links);
  });

  test("marks a time beyond the measured range", async () => {
    expect((await explained({}, 8, 2 ** 28)).predictedFor).toBe(
      `${machine}; extrapolated: recorded, ordinary memory: measured with 8 to 536870912 bytes`,
    );
  });
});
