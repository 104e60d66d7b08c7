/** Messages that ranks of different processes repeat: submitted as repeated calls are, and refused, late and ended as new ones. */
import type { CommError, CommOp, Communicator, DeviceBuffer } from "twinccl";
import { describe, expect, test } from "vitest";
import { fakeGpus, ncclError } from "../../../../support/fake-gpus/index.ts";
import { within } from "../../../../support/planted.ts";
import { quickTime } from "../../../../support/quick-time.ts";
import { watchRepeats } from "../../../../support/watched-repeats.ts";
import { closeAll, closeRest, type Joined, joinAll, onAll } from "./joined.ts";

quickTime();

type Ints = DeviceBuffer<"int32">;

/** The next rank of a ring, and the one before. */
const around = ({ rank, size }: Communicator) => ({
  to: (rank + 1) % size,
  from: (rank + size - 1) % size,
});

const hostOf = async (buffer: Ints): Promise<number[]> => Array.from(await buffer.toHost());

/** Forms of the same exchange around a ring. */
const forms: Record<string, (comm: Communicator, send: Ints, recv: Ints) => () => CommOp<unknown>> =
  {
    "a sendRecv": (comm, send, recv) => () => comm.sendRecv({ send, recv, ...around(comm) }),
    "a prepared sendRecv": (comm, send, recv) => {
      const call = comm.prepare(() => comm.sendRecv({ send, recv, ...around(comm) }));
      return () => call.start();
    },
    "a group of both": (comm, send, recv) => () => {
      const { to, from } = around(comm);
      return comm.group(() => {
        void comm.recv({ recv, peer: from });
        void comm.send({ send, peer: to });
      });
    },
  };

describe.each(Object.entries(forms))("%s that is repeated", (name, form) => {
  test.each([2, 3])("moves what its buffers hold each time, among %i", async (size) => {
    const gpus = fakeGpus();
    const ranks = await joinAll(size, undefined, gpus);
    const again = ranks.map(({ session }) => watchRepeats(session));
    const found = await onAll(ranks, async ({ comm }) => {
      const [send, recv] = [comm.alloc("int32", 2), comm.alloc("int32", 2)];
      const call = form(comm, send, recv);
      const values: number[] = [];
      // By then the list of native calls is written.
      for (let step = 0; step < 70; step++) {
        send.fill(100 * comm.rank + step);
        await call();
        values.push(...(await hostOf(recv)));
      }
      return values;
    });
    expect(found).toEqual(
      ranks.map(({ comm }) =>
        Array.from({ length: 140 }, (_, at) => 100 * around(comm).from + (at >> 1)),
      ),
    );
    // Those of a group are one submission.
    for (const each of again) expect(each.count()).toEqual([69, 0]);
    for (const { comm } of ranks) {
      expect(comm.stats().failures).toBe(0);
      expect(comm.stats().sendBytes).toBe(70 * 8);
    }
    await closeAll(ranks);
    expect(gpus.machine.complaints).toEqual([]);
  });

  test("is appended to the calls before it, in order and with the next numbers", async () => {
    const ranks = await joinAll(2);
    const again = ranks.map(({ session }) => watchRepeats(session));
    const found = await onAll(ranks, async ({ comm }) => {
      const [send, recv] = [comm.alloc("int32", 1).fill(1 + comm.rank), comm.alloc("int32", 1)];
      const call = form(comm, send, recv);
      const sum = () => comm.allReduce({ send: recv, op: "sum" });
      await call();
      await sum();
      const ops = [call(), sum(), call(), call(), sum()];
      expect(ops.map(({ status }) => status)).toEqual(new Array(5).fill("submitted"));
      await Promise.all(ops);
      expect([ops[1]?.call, ops[4]?.call]).toEqual([1, 2]);
      if (name !== "a group of both")
        expect([0, 2, 3].map((at) => ops[at]?.call)).toEqual([1, 2, 3]);
      return hostOf(recv);
    });
    expect(found).toEqual([[3], [3]]);
    for (const each of again) expect(each.count()).toEqual([1, 4]);
    await closeAll(ranks);
  });
});

test("messages with other peers, lengths or partners are new ones", async () => {
  const ranks = await joinAll(3);
  const found = await onAll(ranks, async ({ comm }) => {
    const { to, from } = around(comm);
    const [send, recv] = [comm.alloc("int32", 2).fill(comm.rank), comm.alloc("int32", 2).fill(9)];
    const values: number[] = [];
    const note = async () => void values.push(...(await hostOf(recv)));
    for (let i = 0; i < 2; i++) await comm.sendRecv({ send, recv, to, from });
    await note();
    await comm.sendRecv({ send, recv, to: from, from: to });
    await note();
    await comm.sendRecv({ send: send.subarray(0, 1), recv: recv.subarray(0, 1), to, from });
    await note();
    const [more, into] = [comm.alloc("int32", 1).fill(7), comm.alloc("int32", 1)];
    const pair = () => {
      void comm.send({ send, peer: to });
      void comm.recv({ recv, peer: from });
    };
    for (let i = 0; i < 2; i++) await comm.group(pair);
    // The same first message, and one more behind it.
    await comm.group(() => {
      pair();
      void comm.sendRecv({ send: more, recv: into, to: from, from: to });
    });
    await note();
    await comm.group(pair);
    return [...values, ...(await hostOf(into))];
  });
  expect(found).toEqual(
    ranks.map(({ comm }) => {
      const { to, from } = around(comm);
      return [from, from, to, to, from, to, from, from, 7];
    }),
  );
  await closeAll(ranks);
});

test("a buffer may serve a message and another call in turn", async () => {
  const ranks = await joinAll(2);
  const again = ranks.map(({ session }) => watchRepeats(session));
  const found = await onAll(ranks, async ({ comm }) => {
    const peer = 1 - comm.rank;
    const data = comm.alloc("int32", 1).fill(comm.rank + 1);
    for (let i = 0; i < 4; i++) {
      // Rank 0 passes on to rank 1, which gives back.
      for (const name of comm.rank === 0
        ? (["send", "recv"] as const)
        : (["recv", "send"] as const))
        await (name === "send" ? comm.send({ send: data, peer }) : comm.recv({ recv: data, peer }));
    }
    return hostOf(data);
  });
  expect(found).toEqual([[1], [1]]);
  for (const each of again) expect(each.count()).toEqual([6, 0]);
  await closeAll(ranks);
});

/** The error of a call without its number; `done` for none. */
async function failure(op: PromiseLike<unknown>): Promise<unknown> {
  try {
    await within(10_000, Promise.resolve(op));
    return "done";
  } catch (error) {
    const { code, ranks, rank, collective, field, message, comm } = error as CommError & {
      collective?: string;
    };
    return {
      code,
      ranks,
      rank,
      collective,
      field,
      comm,
      text: message.replaceAll(/call \d+/g, "call N"),
    };
  }
}

/** A fault of rank 0's call, with the outcomes. */
interface Fault {
  run(joined: readonly Joined[], call: Call, other: Call): Promise<unknown>;
}
type Call = (options?: { timeoutMs?: number; signal?: AbortSignal }) => CommOp<unknown>;

const faults: Record<string, Fault> = {
  "is late where its peer does not come": {
    run: async (_, call) => [await failure(call({ timeoutMs: 80 }))],
  },
  "is late behind one that its peer does not make either": {
    run: async (_, call) => {
      const ops = [call({ timeoutMs: 80 }), call({ timeoutMs: 80 })];
      return Promise.all(ops.map(failure));
    },
  },
  "is cancelled by its signal": {
    run: async (_, call) => {
      const giving = new AbortController();
      const op = failure(call({ signal: giving.signal }));
      setTimeout(() => giving.abort(new Error("enough")), 20);
      return [await op];
    },
  },
  "ends with the communicator": {
    run: async ([first], call) => {
      const op = failure(call());
      setTimeout(() => first?.comm.abort(new Error("enough")), 20);
      return [await op, await failure(call())];
    },
  },
  "ends with the communicator of its peer": {
    run: async ([, second], call) => {
      const op = failure(call());
      setTimeout(() => second?.comm.abort(new Error("enough")), 20);
      return [await op];
    },
  },
};

describe.each(["sendRecv", "send", "group"] as const)("a repeated %s", (form) => {
  async function outcome(fault: Fault, earlier: number): Promise<unknown> {
    const ranks = await joinAll(2);
    const [zero, one] = ranks.map(({ comm }): Call => {
      const peer = 1 - comm.rank;
      const [send, recv] = [comm.alloc("int32", 1), comm.alloc("int32", 1)];
      const both = { to: peer, from: peer };
      return (options = {}) => {
        if (form === "sendRecv") return comm.sendRecv({ send, recv, ...both, ...options });
        if (form === "send")
          return comm.rank === 0
            ? comm.send({ send, peer, ...options })
            : comm.recv({ recv, peer, ...options });
        return comm.group(() => {
          void comm.send({ send, peer, ...options });
          void comm.recv({ recv, peer, ...options });
        });
      };
    }) as [Call, Call];
    // Connected in any case, by another exchange.
    await onAll(ranks, ({ comm }) => {
      const [send, recv] = [comm.alloc("int32", 1), comm.alloc("int32", 1)];
      const peer = 1 - comm.rank;
      return comm.sendRecv({ send, recv, to: peer, from: peer });
    });
    for (let i = 0; i < earlier; i++) await Promise.all([zero(), one()]);
    const found = await fault.run(ranks, zero, one);
    const { failures } = (ranks[0] as Joined).comm.stats();
    await closeRest(ranks);
    return { found, failures };
  }

  test.each(Object.entries(faults))("%s, as the first one", async (_, fault) => {
    const first = await outcome(fault, 0);
    expect(JSON.stringify(first)).not.toContain('"done"');
    expect(await outcome(fault, 1)).toEqual(first);
    expect(await outcome(fault, 3)).toEqual(first);
  });
});

test.each([
  ["send", 0],
  ["recv", 0],
  ["groupEnd", 0],
] as const)(
  "a repeated sendRecv that fails in %s fails as the first one",
  async (failing, after) => {
    const outcome = async (earlier: number, isAppended: boolean): Promise<unknown> => {
      const gpus = fakeGpus();
      const ranks = await joinAll(2, undefined, gpus);
      const swaps = ranks.map(({ comm }) => {
        const peer = 1 - comm.rank;
        const [send, recv] = [comm.alloc("int32", 1), comm.alloc("int32", 1)];
        const [more, into] = [comm.alloc("int32", 1), comm.alloc("int32", 1)];
        return [
          () => comm.sendRecv({ send, recv, to: peer, from: peer }),
          () => comm.sendRecv({ send: more, recv: into, to: peer, from: peer }),
        ] as const;
      });
      for (let i = 0; i < 3; i++) await Promise.all(swaps.map(([, other]) => other()));
      for (let i = 0; i < earlier; i++) await Promise.all(swaps.map(([swap]) => swap()));
      const [[swap, other]] = swaps as [(typeof swaps)[0]];
      const before = isAppended ? failure(other()) : undefined;
      gpus.machine.failNext(failing, ncclError(failing, 5, "ncclInvalidUsage"), after);
      const found = [await failure(swap()), await before];
      const { failures } = (ranks[0] as Joined).comm.stats();
      await closeRest(ranks);
      return { found, failures };
    };
    const first = await outcome(0, false);
    expect(await outcome(3, false)).toEqual(first);
    expect(await outcome(3, true)).toEqual(await outcome(0, true));
  },
);

test("a repeated message with a disposed buffer is refused, and the next one works", async () => {
  const ranks = await joinAll(2);
  await onAll(ranks, async ({ comm }) => {
    const peer = 1 - comm.rank;
    const { to, from } = { to: peer, from: peer };
    const [send, recv] = [comm.alloc("int32", 1), comm.alloc("int32", 1)];
    for (let i = 0; i < 3; i++) await comm.sendRecv({ send, recv, to, from });
    const prepared = comm.prepare(() => comm.sendRecv({ send, recv, to, from }));
    recv.dispose();
    for (const call of [() => comm.sendRecv({ send, recv, to, from }), () => prepared.start()]) {
      await expect(call()).rejects.toMatchObject({ code: "ERR_COMM_CLOSED" });
    }
    const into = comm.alloc("int32", 1);
    const op = comm.sendRecv({ send, recv: into, to, from });
    await op;
    expect(op.call).toBe(3);
  });
  await closeAll(ranks);
});
