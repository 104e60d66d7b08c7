/** Calls that wait for ranks that they connect, and what ends the wait: signals, losses, closing, deadlines of several. */
import type { CallOptions, Communicator, ConnectedCommunicator } from "twinccl";
import { describe, expect, test } from "vitest";
import { within } from "../../../../support/planted.ts";
import { quickTime } from "../../../../support/quick-time.ts";
import { noteHanded } from "../calls/handed-over.ts";
import { cleanGpus, turns } from "../gpus.ts";
import { closeAll, closeRest, errorOf, type Joined, joinAll, onAll } from "./joined.ts";

quickTime();

const bytes = (comm: Communicator, length: number, value = 0) =>
  comm.alloc("int8", length).fill(value);

/** Calls that wait for all others: one is collective, one a message, one has windows. */
const calls: [string, (comm: Communicator, options?: CallOptions) => PromiseLike<unknown>][] = [
  [
    "an all-to-all",
    (comm, options) =>
      comm.allToAll({
        send: bytes(comm, comm.size),
        recv: bytes(comm, comm.size),
        ...options,
      }),
  ],
  [
    "a message",
    (comm, options) =>
      comm.rank === 0
        ? comm.send({ send: bytes(comm, 1), peer: comm.size - 1, ...options })
        : comm.recv({ recv: bytes(comm, 1), peer: 0, ...options }),
  ],
  [
    "a symmetric call",
    (comm, options) =>
      comm.allReduce({
        send: comm.alloc("float32", 4, { symmetric: true }),
        op: "sum",
        ...options,
      }),
  ],
];

/** Runs a sum and messages in the next generation. */
async function expectLife(next: readonly ConnectedCommunicator[]): Promise<void> {
  const got = await within(
    5000,
    Promise.all(
      next.map(async (comm) => {
        const data = bytes(comm, 1, comm.rank + 1);
        await comm.allReduce({ send: data, op: "sum" });
        const recv = bytes(comm, comm.size);
        await comm.allToAll({ send: bytes(comm, comm.size, comm.rank), recv });
        return [...(await data.toHost()), ...(await recv.toHost())];
      }),
    ),
  );
  const size = next.length;
  const sum = (size * (size + 1)) / 2;
  expect(got).toEqual(next.map(() => [sum, ...Array.from({ length: size }, (_, rank) => rank)]));
}

describe.each(calls)("%s that waits", (what, call) => {
  test("is cancelled by its signal, and ends only its communicator", async () => {
    const gpus = cleanGpus();
    const ranks = await joinAll(2, "off", gpus);
    const halves = await onAll(ranks, ({ comm }) => comm.split({ color: 0 }));
    const [half, other] = halves as [Communicator, Communicator];
    const handed = noteHanded(gpus);
    const [giving, why] = [new AbortController(), new Error("enough")];
    const ended = errorOf(call(half, { signal: giving.signal }));
    await turns(20);
    giving.abort(why);
    const facts = { code: "ERR_COMM_ABORTED", rank: 0, comm: half.name, cause: why };
    expect(await ended).toMatchObject(facts);
    expect(await errorOf(half.barrier())).toMatchObject({ code: "ERR_COMM_ABORTED" });
    expect(await errorOf(call(other, { timeoutMs: 100 }))).toMatchObject({
      ...{ code: "ERR_COMM_TIMEOUT", rank: 1 },
    });
    expect(handed).toEqual([]);
    await expectLife(ranks.map(({ comm }) => comm));
    await closeAll(ranks);
  });

  test("fails when its peer has left, and the ranks continue in the next generation", async () => {
    const gpus = cleanGpus();
    const ranks = await joinAll(3, "off", gpus);
    const handed = noteHanded(gpus);
    const waiting = what === "a message" ? ranks.slice(0, 1) : ranks.slice(0, 2);
    const ended = Promise.all(waiting.map(({ comm }) => errorOf(call(comm))));
    await turns(30);
    const [left] = ranks.slice(2) as [Joined];
    await left.membership.leave();
    for (const [rank, error] of (await ended).entries()) {
      expect(error).toMatchObject({ code: "ERR_COMM_REMOTE", rank, size: 3, ranks: [2] });
    }
    expect(handed).toEqual([]);
    const stay = ranks.slice(0, 2);
    const next = await onAll(stay, ({ comm }) => comm.rebuild());
    await expectLife(next);
    await Promise.all(next.map((comm) => comm.close()));
    await closeRest([left]);
  });

  test("ends with abort(), at once", async () => {
    const gpus = cleanGpus();
    const ranks = await joinAll(2, "off", gpus);
    const [a] = ranks as [Joined, Joined];
    const handed = noteHanded(gpus);
    const why = new Error("enough");
    const open = [errorOf(call(a.comm)), errorOf(a.comm.barrier())];
    await turns(20);
    a.comm.abort(why);
    for (const error of await within(10_000, Promise.all(open))) {
      expect(error).toMatchObject({ code: "ERR_COMM_ABORTED", rank: 0, cause: why });
    }
    await turns();
    expect(gpus.machine.count("abortInBackground")).toBe(1);
    expect(handed).toEqual([]);
    expect(await errorOf(call((ranks[1] as Joined).comm, { timeoutMs: 100 }))).toBeDefined();
    await closeAll(ranks);
  });

  test("delays close() at most by its bound", async () => {
    const gpus = cleanGpus();
    const ranks = await joinAll(2, "off", gpus, 200);
    const [a, b] = ranks as [Joined, Joined];
    const open = [errorOf(call(a.comm)), errorOf(a.comm.barrier())];
    await turns(20);
    const closing = await errorOf(a.comm.close());
    expect(closing).toMatchObject({ code: "ERR_COMM_ABORTED" });
    for (const error of await Promise.all(open)) expect(error?.code).toBe("ERR_COMM_ABORTED");
    expect(await errorOf(call(b.comm, { timeoutMs: 100 }))).toMatchObject({
      code: /TIMEOUT|REMOTE/,
    });
    await b.comm.close().catch(() => undefined);
  });

  test("ends at its deadline, and the ranks continue in the next generation", async () => {
    const gpus = cleanGpus();
    const ranks = await joinAll(3, "off", gpus);
    const waiting = ranks.slice(0, what === "a message" ? 1 : 2);
    await Promise.all(waiting.map(({ comm }) => errorOf(call(comm, { timeoutMs: 60 }))));
    const next = await onAll(ranks, ({ comm }) => comm.rebuild());
    await expectLife(next);
    await Promise.all(next.map((comm) => comm.close()));
  });
});

test("complete pairs continue while others wait", async () => {
  const gpus = cleanGpus();
  const ranks = await joinAll(4, "off", gpus);
  const call = ({ comm }: Joined) => {
    // 0 and 1 exchange, and 2 and 3.
    const counts = [0, 1, 2, 3].map((rank) => (rank === (comm.rank ^ 1) ? 2 : 0));
    const [send, recv] = [bytes(comm, 2, comm.rank), bytes(comm, 2)];
    const args = { send, recv, sendCounts: counts, recvCounts: counts, timeoutMs: 150 };
    return errorOf(comm.allToAllv(args)).then(async (error) => error ?? [...(await recv.toHost())]);
  };
  const came = await Promise.all([0, 2, 3].map((rank) => call(ranks[rank] as Joined)));
  expect(came).toEqual([
    expect.objectContaining({ code: "ERR_COMM_TIMEOUT", ranks: [1] }),
    [3, 3],
    [2, 2],
  ]);
  await closeRest(ranks);
});

test("a recording that learns of a departed rank ends its communicator", async () => {
  const gpus = cleanGpus();
  const ranks = await joinAll(2, "off", gpus);
  const [a, left] = ranks as [Joined, Joined];
  const [send, recv] = [bytes(a.comm, 2), bytes(a.comm, 2)];
  const ended = errorOf(a.comm.capture(() => void a.comm.allToAll({ send, recv })));
  await turns(20);
  await left.membership.leave();
  expect(await ended).toMatchObject({ code: "ERR_COMM_REMOTE", rank: 0, ranks: [1] });
  expect(await errorOf(a.comm.barrier({ timeoutMs: 50 }))).toMatchObject({
    code: "ERR_COMM_ABORTED",
  });
  await closeRest(ranks);
});

test("a departed rank is reported by its number on the communicator", async () => {
  const ranks = await joinAll(3);
  const parts = await onAll(ranks, ({ comm }) =>
    comm.split({ color: comm.rank > 0 ? 0 : undefined, key: -comm.rank }),
  );
  const [, part] = parts as [undefined, Communicator];
  const ended = errorOf(part.recv({ recv: bytes(part, 1), peer: 0 }));
  await turns(20);
  await (ranks[2] as Joined).membership.leave();
  const error = await ended;
  expect(error).toMatchObject({ code: "ERR_COMM_REMOTE", rank: 1, size: 2, ranks: [0] });
  expect(error?.message).toContain(`rank 0 of "${part.name}" will not make this call`);
  await closeRest(ranks, parts.slice(2));
});
