/** The next action that a mismatch names is one that cures it. */
import { type Communicator, createWorld, type WorldError } from "twinccl";
import { failAt, sim } from "twinccl/sim";
import { describe, expect, test } from "vitest";

/** The message of the first failure of a world in which it fails. */
async function failure(size: number, program: (comm: Communicator) => unknown): Promise<string> {
  const world = await createWorld({ backend: sim(), size });
  const error = await world.run(program).catch((thrown: WorldError) => thrown.cause);
  await world.close();
  return (error as Error).message;
}

const ints = (length: number) => new Int32Array(length);
const root = ({ rank }: Communicator, more: object) => (rank === 0 ? more : {});
const nothing = "hint: nothing was written; ";

const messages =
  "hint: every send needs a recv of its peer; a rank's messages are done in the order made, except in one group";

describe("a hint", () => {
  test("of messages that wait for each other asks for a group, beside what is made but waits", async () => {
    const text = await failure(2, (comm) =>
      Promise.all([
        comm.send({ send: ints(1), peer: 1 - comm.rank }),
        comm.recv({ recv: ints(1), peer: 1 - comm.rank }),
      ]),
    );
    expect(text).toContain(
      'rank 0  waits in send  call 0 on "world"  for rank 1, made by rank 1 behind an earlier call',
    );
    expect(text).toContain(messages);
  });

  test("of a receive behind another one, beside a barrier, asks for a group", async () => {
    const text = await failure(3, async (comm) => {
      if (comm.rank > 0) {
        if (comm.rank === 2) await comm.send({ send: ints(1), peer: 0 });
        return comm.barrier();
      }
      await Promise.all([1, 2].map((peer) => comm.recv({ recv: ints(1), peer })));
    });
    expect(text).toContain("for rank 0, made by rank 0 behind an earlier call");
    expect(text).toContain(messages);
  });

  test("of a group with one end missing says of no other end that it waits", async () => {
    const text = await failure(3, (comm) => {
      if (comm.rank === 1) return comm.recv({ recv: ints(1), peer: 0 });
      if (comm.rank === 2) return undefined;
      return comm.group(() => {
        comm.send({ send: ints(1), peer: 1 });
        comm.recv({ recv: ints(1), peer: 2 });
      });
    });
    expect(text).not.toContain("behind an earlier call");
  });

  test("of a barrier behind a send without a receive names the rank that has made it", async () => {
    const text = await failure(2, async (comm) => {
      if (comm.rank === 1) comm.send({ send: ints(1), peer: 0 });
      await comm.barrier();
    });
    expect(text).toContain("for rank 1, made by rank 1 behind an earlier call");
  });

  test("of a send and a receive that differ in dtype asks for one dtype", async () => {
    const text = await failure(2, (comm) =>
      comm.rank === 0
        ? comm.send({ send: ints(4), peer: 1 })
        : comm.recv({ recv: new Float32Array(4), peer: 0 }),
    );
    expect(text).toContain(`${nothing}receive into int32, as it is sent`);
  });

  test("of a send and a receive that differ in length asks for a subarray", async () => {
    const text = await failure(2, (comm) =>
      comm.rank === 0
        ? comm.send({ send: ints(4), peer: 1 })
        : comm.recv({ recv: ints(5), peer: 0 }),
    );
    expect(text).toContain(
      `${nothing}both ends need equal lengths: take a subarray of the longer side`,
    );
  });

  test("of a gather of other lengths asks for recvCounts", async () => {
    const text = await failure(2, (comm) =>
      comm.gather({ send: ints(2 + comm.rank), root: 0, ...root(comm, { recv: ints(4) }) }),
    );
    const hint = "where ranks have different lengths, the root gives them: recvCounts, one a rank";
    expect(text).toContain(`${nothing}${hint}`);
  });

  test("of a scatter of other lengths asks for sendCounts", async () => {
    const text = await failure(2, (comm) =>
      comm.scatter({ recv: ints(2 + comm.rank), root: 0, ...root(comm, { send: ints(4) }) }),
    );
    const hint = "where ranks have different lengths, the root gives them: sendCounts, one a rank";
    expect(text).toContain(`${nothing}${hint}`);
  });

  test("of counts that are not transposes asks for transposes, or for none", async () => {
    const text = await failure(2, (comm) =>
      comm.allToAllv({ send: ints(2), sendCounts: [1, 1], recvCounts: [1, 2] }),
    );
    const hint =
      "recvCounts say what the others send; leave them out on all ranks to have them exchanged";
    expect(text).toContain(`${nothing}${hint}`);
  });

  test("of equal calls asks for equal calls", async () => {
    const text = await failure(2, (comm) =>
      comm.allReduce({ send: ints(1 + comm.rank), op: "sum" }),
    );
    expect(text).toContain(`${nothing}make the same call on every rank, with equal arguments`);
  });
});

test("a block of another length than its count is reported with the count", async () => {
  const scatter = (send: number, recv: number) => () =>
    failure(2, (comm) =>
      comm.reduceScatterv({ send: ints(send), recv: ints(recv), op: "sum", sendCounts: [2, 2] }),
    );
  expect(await scatter(4, 1)()).toMatch(
    /reduceScatterv: recv: found 1 elements, needs exactly 2, as sendCounts\[\d\] says/,
  );
  expect(await scatter(5, 2)()).toContain(
    "reduceScatterv: send: found 5 elements, needs exactly 4, the sum of sendCounts",
  );
  const gather = await failure(2, (comm) =>
    comm.allGatherv({ send: ints(1), recv: ints(4), recvCounts: [2, 2] }),
  );
  expect(gather).toMatch(
    /allGatherv: send: found 1 elements, needs exactly 2, as recvCounts\[\d\] says/,
  );
});

describe("the reason of an abort is reported, with any text:", () => {
  const reasons: readonly (readonly [unknown, string])[] = [
    ["my reason", ": my reason"],
    ["two\nlines", ": two"],
    [new Error("enough"), ": enough"],
    [{ message: "said by an object" }, ": said by an object"],
    [{ toString: () => "said by itself" }, ": said by itself"],
    [42, ": 42"],
    [undefined, ""],
    [null, ""],
    ["", ""],
    [{}, ""],
    [Object.create(null), ""],
  ];

  test.each(reasons)("case %#", async (reason, why) => {
    const text = await failure(2, async (comm) => {
      if (comm.rank === 1) comm.abort(reason);
      await comm.barrier();
    });
    const [headline] = text.split("\n");
    expect(headline).toMatch(
      /^barrier(: call 0)? on "world": the communicator "world" was aborted/,
    );
    expect(headline?.endsWith(`"world" was aborted${why}`)).toBe(true);
  });
});

describe("a fault of a rank that the world does not have", () => {
  const backend = sim({ faults: [failAt(0, 9), failAt(7, 0)] });

  test("is refused when it opens", async () => {
    await expect(createWorld({ backend, size: 2 })).rejects.toMatchObject({
      code: "ERR_COMM_ARG",
      field: "rank",
      size: 2,
      message: "sim: faults[1]: rank: found 7, needs a rank in 0..1",
    });
  });

  test("but not when ranks were left out of a rebuilt one", async () => {
    const world = await createWorld({ backend, size: 8 });
    const rebuilt = await world.rebuild({ without: [6, 7] });
    await rebuilt.run((comm) => comm.barrier());
    await rebuilt.close();
  });
});
