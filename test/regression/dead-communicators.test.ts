/** Calls on communicators that are dead: their errors once named no collective. */
import { type CommError, type Communicator, createWorld } from "twinccl";
import { sim } from "twinccl/sim";
import { describe, expect, test } from "vitest";
import { fakeGpus, ncclError } from "../support/fake-gpus/index.ts";
import { turns } from "../unit/api/order/orders.ts";

const backends = [sim, () => fakeGpus().backend()];

const errorOf = (call: PromiseLike<unknown>): Promise<CommError> =>
  Promise.resolve(call).then(
    () => {
      throw new Error("the call was done");
    },
    (error: CommError) => error,
  );

/** An error by its headline and its facts. */
const headlineAndFacts = ({ message, code, comm, rank, collective, call }: CommError) => ({
  headline: message.split("\n")[0],
  facts: { code, comm, rank, collective, call },
});

/** Ends of a communicator by rank 1, while rank 0 has calls open: its code, and what each error says of it. */
const ends: readonly (readonly [string, string, (comm: Communicator) => unknown])[] = [
  [
    "ERR_COMM_ABORTED",
    'the communicator "world" was aborted: enough',
    (comm) => comm.abort(new Error("enough")),
  ],
  [
    "ERR_COMM_REMOTE",
    "rank 1 threw: enough",
    () => {
      throw new Error("enough");
    },
  ],
];

describe.each(backends)("on backend %#", (backend) => {
  test.each(ends)("%s: %s", async (code, why, end) => {
    const world = await createWorld({ backend: backend(), size: 2 });
    const errors: CommError[] = [];
    const running = world.run(async (comm) => {
      const split = await comm.split({ color: 0 });
      const send = comm.alloc("int8", 1);
      if (comm.rank === 1) {
        await turns();
        await end(comm);
        return;
      }
      const open = [errorOf(comm.allReduce({ send, op: "sum" })), errorOf(split.barrier())];
      errors.push(...(await Promise.all(open)));
      errors.push(await errorOf(comm.broadcast({ recv: send, root: 0 })));
      errors.push(await errorOf(comm.send({ send, peer: 1 })));
      errors.push(await errorOf(comm.group(() => void comm.recv({ recv: send, peer: 1 }))));
      errors.push(await errorOf(split.barrier()));
    });
    await running.catch(() => undefined);
    const facts = { code, comm: "world", rank: 0 };
    const late = (collective: string) => ({
      headline: `${collective} on "world": ${why}`,
      facts: { ...facts, collective, call: -1 },
    });
    expect(errors.map(headlineAndFacts)).toEqual([
      {
        headline: `allReduce: call 1 on "world": ${why}`,
        facts: { ...facts, collective: "allReduce", call: 1 },
      },
      {
        headline: `barrier: call 0 on "world/0": ${why}`,
        facts: { ...facts, collective: "barrier" },
      },
      late("broadcast"),
      late("send"),
      late("recv"),
      {
        headline: `barrier on "world/0": ${why}`,
        facts: { ...facts, collective: "barrier" },
      },
    ]);
    await world.close();
  });

  test("a call that timed out, and a deadlock", async () => {
    const world = await createWorld({ backend: backend(), size: 2 });
    const errors: CommError[] = [];
    await world.run(async (comm) => {
      const split = await comm.split({ color: 0 });
      if (comm.rank === 1) return;
      errors.push(await errorOf(split.barrier({ timeoutMs: 1 })));
      errors.push(await errorOf(split.broadcast({ recv: split.alloc("int8", 1), root: 0 })));
      errors.push(await errorOf(comm.barrier()));
      errors.push(await errorOf(comm.reduce({ send: comm.alloc("int8", 1), op: "sum", root: 0 })));
    });
    const deadlock = "deadlock: rank 1 finished without making a call that others wait for";
    const headlines = errors.map(({ message }) => message.split("\n")[0]);
    expect(headlines.slice(1)).toEqual([
      'broadcast on "world/0": "world/0" was aborted: rank 0 timed out in call 0',
      deadlock,
      `reduce on "world": ${deadlock}`,
    ]);
    expect(errors.map(({ collective, call }) => [collective, call])).toEqual([
      ["barrier", 0],
      ["broadcast", -1],
      ["barrier", 1],
      ["reduce", -1],
    ]);
    expect(errors[1]?.cause).toBe(errors[0]);
    await world.close();
  });
});

test("a background fault of NCCL is reported by the call that finds it", async () => {
  const gpus = fakeGpus();
  const world = await createWorld({ backend: gpus.backend(), size: 1 });
  await world.run(async (comm) => {
    await comm.barrier();
    const failure = ncclError("ncclCommGetAsyncError", 6, "ncclRemoteError");
    for (const end of gpus.nccl.ends.values()) end.failure = failure;
    gpus.sessions[0]?.checkAll();
    const error = await errorOf(comm.barrier());
    expect(headlineAndFacts(error)).toEqual({
      headline:
        'barrier: call 1 on "world": "world" was aborted, and its NCCL communicators with it: ncclCommGetAsyncError: ncclRemoteError (6): as planned',
      facts: { code: "ERR_COMM_ABORTED", comm: "world", rank: 0, collective: "barrier", call: 1 },
    });
  });
  await world.close();
});
