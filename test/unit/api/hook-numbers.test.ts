/** The link between the reports on one operation: its number, known from the first one on, and one object for all. */

import { tracingChannel } from "node:diagnostics_channel";
import type { CommOp, Communicator, OpInfo } from "twinccl";
import { describe, expect, test } from "vitest";
import { inWorld } from "../../support/in-world.ts";
import { doubling, watch } from "../backends/nccl/calls/watched-world.ts";

const i8 = (length: number): Int8Array => new Int8Array(length);
const sum = (comm: Communicator): CommOp => comm.allReduce({ send: i8(2), op: "sum" });
const swap = (comm: Communicator): CommOp => {
  const peer = comm.size - 1 - comm.rank;
  return comm.sendRecv({ send: i8(1), recv: i8(1), to: peer, from: peer });
};

/** The reports to hooks on one rank, in order: the moment, the number at that time, and the object. */
interface HookRecord {
  readonly lines: string[];
  readonly infos: OpInfo[];
}

function listen({ hooks }: Communicator): HookRecord {
  const record: HookRecord = { lines: [], infos: [] };
  const note = (when: string, info: OpInfo): void => {
    record.lines.push(`${when} ${info.collective} ${info.call}`);
    record.infos.push(info);
  };
  hooks.before((info) => note("before", info));
  hooks.after((info, error) => note(error === undefined ? "after" : "failed", info));
  return record;
}

/** The reports on rank 0 of two during a program. */
async function hooksOf(program: (comm: Communicator) => PromiseLike<unknown>): Promise<HookRecord> {
  const [record] = await inWorld(2, async (comm) => {
    const seen = listen(comm);
    await program(comm);
    return seen;
  });
  return record as HookRecord;
}

describe("the number of a call", () => {
  test("is known before the posting: collective calls and messages are counted separately", async () => {
    const { lines } = await hooksOf(async (comm) => {
      for (const call of [sum, swap, sum, swap]) await call(comm);
      await comm.split({ color: 0 });
    });
    const calls = ["allReduce 0", "sendRecv 0", "allReduce 1", "sendRecv 1", "split 2"];
    expect(lines).toEqual(calls.flatMap((call) => [`before ${call}`, `after ${call}`]));
  });

  test("is known for all calls of a group, and for recorded calls", async () => {
    const { lines } = await hooksOf(async (comm) => {
      const three = (): void => {
        void swap(comm);
        void sum(comm);
        void swap(comm);
      };
      await comm.group(three);
      const graph = await comm.capture(three);
      await graph.replay();
    });
    const begun = lines.filter((line) => line.startsWith("before"));
    expect(begun).toEqual([
      ...["before allReduce 0", "before sendRecv 0", "before sendRecv 1", "before capture 1"],
      ...["before sendRecv 2", "before allReduce 2", "before sendRecv 3"],
    ]);
    const ended = lines.filter((line) => line.startsWith("after"));
    expect(ended.sort()).toEqual(begun.map((line) => line.replace("before", "after")).sort());
  });

  test.each([1, 3])("is known after batched calls of %i ranks", async (size) => {
    await watch(size, async ({ world }) => {
      const hookLines = await world.run(async (comm) => {
        const args = doubling(comm);
        for (let call = 0; call < 4; call++) void comm.allReduce(args);
        const { lines } = listen(comm);
        const op = comm.allReduce(args);
        const { call } = op;
        await op;
        return [call, ...lines];
      });
      const needed = [4, "before allReduce 4", "after allReduce 4"];
      expect(hookLines).toEqual(new Array(size).fill(needed));
    });
  });

  test("of a call refused by a hook goes to the next call", async () => {
    const { lines } = await hooksOf(async (comm) => {
      for (const call of [sum, swap]) {
        await call(comm);
        const off = comm.hooks.before(() => {
          throw new Error("not this one");
        });
        const refused = call(comm);
        off();
        await expect(refused).rejects.toThrow("not this one");
        expect(refused.call).toBe(-1);
        await call(comm);
      }
    });
    const expectedLines = (name: string) => [
      ...[`before ${name} 0`, `after ${name} 0`, `before ${name} 1`, `failed ${name} 1`],
      ...[`before ${name} 1`, `after ${name} 1`],
    ];
    expect(lines).toEqual([...expectedLines("allReduce"), ...expectedLines("sendRecv")]);
  });

  test("is corrected at the end if a hook has made calls before it", async () => {
    const { lines, infos } = await hooksOf(async (comm) => {
      const off = comm.hooks.before(() => {
        off();
        void comm.barrier();
      });
      await sum(comm);
    });
    const both = ["before allReduce 0", "before barrier 0", "after barrier 0", "after allReduce 1"];
    expect(lines).toEqual(both);
    expect(infos.map(({ call }) => call)).toEqual([1, 0, 0, 1]);
  });

  test("of a call refused because the communicator ended is reported both times", async () => {
    const { lines } = await hooksOf(async (comm) => {
      await sum(comm);
      const sub = await comm.split({ color: 0 });
      const record = listen(sub);
      sub.abort("enough");
      await expect(sub.barrier()).rejects.toMatchObject({ code: "ERR_COMM_ABORTED" });
      expect(record.lines).toEqual(["before barrier 0", "failed barrier 0"]);
    });
    expect(lines).toHaveLength(4);
  });
});

describe("the report of a call", () => {
  test("is the same object in before and after, and differs between calls", async () => {
    const { infos } = await hooksOf(async (comm) => {
      const calls = [sum(comm), swap(comm), sum(comm)];
      await Promise.all(calls);
      await comm.allReduce({ send: i8(comm.rank + 1), op: "sum" }).catch(() => undefined);
    });
    expect(infos).toHaveLength(8);
    expect(new Set(infos).size).toBe(4);
    for (const info of infos) {
      expect(infos.filter((other) => other === info)).toHaveLength(2);
    }
  });

  test.each([
    ["allReduce", sum, 0],
    ["sendRecv", swap, 0],
    ["group", (comm: Communicator) => comm.group(() => void sum(comm)), 0],
    ["group", (comm: Communicator) => comm.group(() => void swap(comm)), 0],
    ["group", (comm: Communicator) => comm.group(() => undefined), -1],
    [
      "allGather",
      (comm: Communicator) =>
        comm.allGather({ send: i8(comm.rank + 1), recv: i8(2 * comm.rank + 2) }),
      0,
    ],
  ] as const)("is one message of the channels, of %s", async (name, call, number) => {
    const messages: object[] = [];
    const numbers: unknown[] = [];
    const note = (message: unknown): void => {
      if ((message as OpInfo).rank === 1) return;
      messages.push(message as object);
      numbers.push((message as OpInfo).call);
    };
    const [start, asyncEnd, error, nothing] = [note, note, note, () => undefined];
    const subscribers = { start, asyncEnd, error, end: nothing, asyncStart: nothing };
    const channel = tracingChannel(`twinccl:${name}`);
    channel.subscribe(subscribers);
    const infos = await inWorld(2, async (comm) => {
      const { infos } = listen(comm);
      await call(comm).then(undefined, () => undefined);
      return infos;
    }).finally(() => channel.unsubscribe(subscribers));
    expect(messages).toHaveLength(name === "allGather" ? 3 : 2);
    expect(new Set(messages).size).toBe(1);
    expect(numbers).toEqual(numbers.map(() => number));
    // Subscribers write on messages what they keep there, which is no hook's business.
    expect(infos.flat()).not.toContain(messages[0]);
  });
});
