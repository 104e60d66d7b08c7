/** Refusals, waits and reports of a parameter server; its laws under any interleaving are properties. */
import { type Communicator, createWorld } from "twinccl";
import {
  ParameterServer,
  type ParameterServerOptions,
  ParameterSet,
  type ServerReport,
  sgd,
} from "twinccl/parallel";
import { sim } from "twinccl/sim";
import { describe, expect, test } from "vitest";

const rule = sgd({ learningRate: 1 });
const one = Float32Array.of(1);

/** Rank 0 serves one number, from 8 on; the others run the program. */
async function served(
  size: number,
  options: Omit<ParameterServerOptions, "rule">,
  program: (server: ParameterServer, comm: Communicator) => Promise<void>,
): Promise<{ report: ServerReport; value: number }> {
  const world = await createWorld({ backend: sim(), size });
  try {
    const [found] = await world.run(async (comm) => {
      const values = comm.rank === 0 ? [8] : [0];
      const model = new ParameterSet([{ name: "w", shape: [1], values }]);
      const server = await ParameterServer.create(comm, model, { rule, ...options });
      if (server.isServer) {
        return { report: await server.serve(), value: model.get("w").value[0]! };
      }
      await program(server, comm);
      await server.leave();
      return undefined;
    });
    return found!;
  } finally {
    await world.close();
  }
}

const errorOf = (promise: Promise<unknown>): Promise<unknown> =>
  promise.then(
    () => "nothing",
    (error: unknown) => error,
  );

describe.each(["block", "reject"] as const)("with %s, refused and not applied is", (mode) => {
  test.each<[string, number, Record<string, Float32Array>, object]>([
    ["a version from the future", 5, { w: one }, { code: "ERR_COMM_ARG", field: "version" }],
    ["half a version", 0.5, { w: one }, { code: "ERR_COMM_ARG", field: "version" }],
    ["a version below 0", -1, { w: one }, { code: "ERR_COMM_ARG", field: "version" }],
    [
      "NaN",
      0,
      { w: Float32Array.of(Number.NaN) },
      { code: "ERR_COMM_NONFINITE", parameters: ["w"] },
    ],
    ["an infinity", 0, { w: Float32Array.of(-Infinity) }, { code: "ERR_COMM_NONFINITE" }],
    ["too long a gradient", 0, { w: new Float32Array(2) }, { code: "ERR_COMM_ARG", field: "w" }],
    ["too short a gradient", 0, { w: new Float32Array(0) }, { code: "ERR_COMM_ARG", field: "w" }],
    [
      "a text for a gradient",
      0,
      { w: "5" as unknown as Float32Array },
      { code: "ERR_COMM_ARG", field: "w" },
    ],
    [
      "nothing for gradients",
      0,
      null as unknown as Record<string, Float32Array>,
      { code: "ERR_COMM_ARG", field: "w" },
    ],
    ["no gradient", 0, {}, { code: "ERR_COMM_ARG", field: "w" }],
    ["an unknown gradient", 0, { w: one, v: one }, { code: "ERR_COMM_ARG", field: "v" }],
  ])("%s; the next push is applied", async (_, version, gradients, expected) => {
    const { report, value } = await served(2, { staleness: 1, mode }, async (server) => {
      expect(await server.pull()).toBe(0);
      expect(server.parameters.get("w").value[0]).toBe(8);
      expect(await errorOf(server.push(version, gradients))).toMatchObject(expected);
      await server.pull();
      expect(await server.push(0, { w: Float32Array.of(3) })).toEqual({
        accepted: true,
        version: 1,
        staleness: 0,
      });
    });
    expect(value).toBe(5);
    expect(report).toMatchObject({ accepted: 1, rejected: 0 });
  });
});

describe("a push", () => {
  test("with block needs a pull of its own", async () => {
    const { report, value } = await served(2, { staleness: 3 }, async (server) => {
      await server.pull();
      await server.push(0, { w: one });
      expect(await errorOf(server.push(0, { w: one }))).toMatchObject({ field: "version" });
      expect(await errorOf(server.push(1, { w: one }))).toMatchObject({ field: "version" });
    });
    expect(report).toMatchObject({ accepted: 1, refused: 2 });
    expect(value).toBe(7);
  });
  test("with block is of the version pulled last", async () => {
    const { report, value } = await served(2, { staleness: 3 }, async (server) => {
      await server.push(await server.pull(), { w: one });
      expect(await server.pull()).toBe(1);
      expect(await errorOf(server.push(0, { w: one }))).toMatchObject({ field: "version" });
    });
    expect(report).toMatchObject({ accepted: 1, refused: 1 });
    expect(value).toBe(7);
  });
  test("with reject may repeat a version within the bound, and is rejected beyond", async () => {
    const { report, value } = await served(2, { staleness: 1, mode: "reject" }, async (server) => {
      const results = [];
      for (let at = 0; at < 3; at++) results.push(await server.push(0, { w: one }));
      expect(results).toEqual([
        { accepted: true, version: 1, staleness: 0 },
        { accepted: true, version: 2, staleness: 1 },
        { accepted: false, version: 2, staleness: 2 },
      ]);
    });
    expect(report).toEqual({ accepted: 2, rejected: 1, refused: 0, largestStaleness: 1, held: 0 });
    expect(value).toBe(6);
  });
  test("takes the gradients of the parameters where none are given", async () => {
    const { value } = await served(2, { staleness: 0 }, async (server) => {
      server.parameters.get("w").gradient[0] = 6;
      await server.push(await server.pull());
    });
    expect(value).toBe(2);
  });
});

test("a request before the previous answer is refused, and the previous one is answered", async () => {
  const { report, value } = await served(2, { staleness: 1 }, async (server) => {
    const pulled = server.pull();
    for (const early of [server.pull(), server.push(0, { w: one }), server.leave()]) {
      expect(await errorOf(early)).toMatchObject({ code: "ERR_COMM_ARG", field: "request" });
    }
    await server.push(await pulled, { w: one });
  });
  expect(report).toMatchObject({ accepted: 1, refused: 0 });
  expect(value).toBe(7);
});

test("the longest waiting worker is next, also when a later answer made it possible", async () => {
  const order: string[] = [];
  let turn = 0;
  const pass = () => new Promise<void>((resolve) => setImmediate(resolve));
  /** Makes a request in its turn, when the server has seen those before. */
  const inTurn = async <T>(mine: number, request: () => Promise<T>): Promise<T> => {
    while (turn < mine) await pass();
    for (let at = 0; at < 20; at++) await pass();
    const answer = request();
    turn = mine + 1;
    return answer;
  };
  const { report } = await served(6, { staleness: 1 }, async (server, { rank }) => {
    const push = (version: number) => server.push(version, { w: one });
    const noted = async (name: string) => {
      const version = await server.pull();
      order.push(name);
      return version;
    };
    if (rank === 1) {
      const version = await inTurn(0, () => server.pull());
      await inTurn(7, () => push(version));
      // Its leaving would have the server look again.
      await inTurn(10, () => Promise.resolve());
    } else if (rank === 2) {
      const version = await inTurn(1, () => server.pull());
      await inTurn(2, () => push(version));
    } else if (rank === 3) {
      const version = await inTurn(3, () => server.pull());
      // Waits for rank 1, which would push too late otherwise.
      await inTurn(6, () => push(version));
      await push(await noted("again"));
    } else {
      // Both wait: two workers compute already.
      const version = await inTurn(rank, () => noted(rank === 4 ? "first" : "second"));
      await inTurn(rank + 4, () => push(version));
    }
  });
  expect(report).toMatchObject({ accepted: 6, largestStaleness: 1 });
  expect(order).toEqual(["first", "second", "again"]);
});

describe("the server ends in a typed error", () => {
  const failures = async (
    options: Partial<ParameterServerOptions>,
    leaves: (rank: number) => boolean,
  ) => {
    const world = await createWorld({ backend: sim(), size: 3 });
    const seen: unknown[] = [];
    await world
      .run(async (comm) => {
        const model = new ParameterSet([{ name: "w", shape: [1] }]);
        const end = await ParameterServer.create(comm, model, { rule, staleness: 1, ...options });
        const work = async () => {
          if (end.isServer) return void (await end.serve());
          await end.push(await end.pull(), { w: one });
          if (leaves(comm.rank)) await end.leave();
        };
        await work().catch((error: unknown) => {
          seen[comm.rank] = error;
          throw error;
        });
      })
      .catch(() => undefined)
      .finally(() => world.close());
    return seen;
  };
  test("when a worker ends without leaving", async () => {
    const [server] = await failures({}, (rank) => rank === 1);
    expect(server).toMatchObject({ code: "ERR_COMM_DEADLOCK" });
  });
  test("with its own error when onAccepted throws; the workers learn of it", async () => {
    const mine = new Error("mine");
    const onAccepted = () => Promise.reject(mine);
    const [server, ...workers] = await failures({ onAccepted }, () => true);
    expect(server).toBe(mine);
    for (const each of workers) expect(each).toMatchObject({ code: "ERR_COMM_REMOTE", ranks: [0] });
  });
});

test("with a bound of 0 one worker computes at a time; one that leaves lets the next continue", async () => {
  let computing = 0;
  const { report, value } = await served(4, { staleness: 0 }, async (server, { rank }) => {
    for (let step = 0; step < 3; step++) {
      const version = await server.pull();
      computing += 1;
      expect(computing).toBe(1);
      for (let at = 0; at < 5; at++) await Promise.resolve();
      computing -= 1;
      if (rank === 2 && step === 2) return;
      await server.push(version, { w: one });
    }
  });
  expect(report).toMatchObject({ accepted: 8, largestStaleness: 0 });
  expect(report.held).toBeGreaterThan(0);
  expect(value).toBe(0);
});

describe("create and roles", () => {
  const outcomes = async (
    size: number,
    program: (comm: Communicator, model: ParameterSet) => Promise<unknown>,
  ) => {
    const world = await createWorld({ backend: sim(), size });
    try {
      return await world.run((comm) =>
        errorOf(program(comm, new ParameterSet([{ name: "w", shape: [1 + (comm.rank % 2)] }]))),
      );
    } finally {
      await world.close();
    }
  };
  test("refuse parameters and options that differ, on all ranks", async () => {
    const create = (comm: Communicator, model: ParameterSet) =>
      ParameterServer.create(comm, model, { rule, staleness: 1 });
    for (const error of await outcomes(3, create)) {
      expect(error).toMatchObject({ code: "ERR_COMM_MISMATCH", field: "w", ranks: [1] });
    }
    const errors = await outcomes(3, (comm) => {
      const model = new ParameterSet([{ name: "staleness", shape: [] }]);
      return ParameterServer.create(comm, model, { rule, staleness: comm.rank === 2 ? 1 : 2 });
    });
    for (const error of errors) {
      expect(error).toMatchObject({ code: "ERR_COMM_MISMATCH", field: "staleness" });
    }
  });
  test.each([
    ["server", { server: 1, staleness: 0 }],
    ["staleness", { staleness: -1 }],
    ["mode", { staleness: 0, mode: "wait" as "block" }],
  ])("refuse a wrong %s", async (field, options) => {
    const [error] = await outcomes(1, (comm, model) =>
      ParameterServer.create(comm, model, { rule, ...options }),
    );
    expect(error).toMatchObject({ code: "ERR_COMM_ARG", field });
  });
  test("refuse an invalid rule on the server, before any call", async () => {
    const world = await createWorld({ backend: sim(), size: 1 });
    await world.run(async (comm) => {
      const model = new ParameterSet([{ name: "w", shape: [1] }]);
      for (const found of [0.1, undefined, () => rule]) {
        const options = { rule: found as never, staleness: 0 };
        const refused = ParameterServer.create(comm, model, options);
        await expect(refused).rejects.toMatchObject({
          code: "ERR_COMM_ARG",
          field: "rule",
          message: expect.stringContaining("ParameterServer.create: rule: found"),
        });
      }
      expect(comm.stats().calls).toEqual({});
    });
    await world.close();
  });
  test("refuse the other side's methods, and calls after the end", async () => {
    await served(2, { staleness: 0 }, async (server) => {
      expect(await errorOf(server.serve())).toMatchObject({ code: "ERR_COMM_ARG", field: "rank" });
    });
    const [errors] = await outcomes(1, async (comm, model) => {
      const server = await ParameterServer.create(comm, model, { rule, staleness: 0 });
      expect(await errorOf(server.pull())).toMatchObject({ code: "ERR_COMM_ARG", field: "rank" });
      await server.serve();
      await server.serve();
    });
    expect(errors).toMatchObject({ code: "ERR_COMM_CLOSED" });
  });
});
