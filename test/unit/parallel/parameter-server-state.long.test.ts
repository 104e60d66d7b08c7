/** A parameter server goes on from a checkpoint as if it had never stopped, bit by bit. */
import { type Communicator, createWorld } from "twinccl";
import {
  adamW,
  Checkpoints,
  memoryFiles,
  Optimizer,
  ParameterServer,
  type ParameterServerOptions,
  ParameterSet,
  type State,
  sgd,
  type UpdateRule,
} from "twinccl/parallel";
import { failAt, sim } from "twinccl/sim";
import { describe, expect, test } from "vitest";

const rule = adamW({ learningRate: 0.1, weightDecay: 0.1 });

const modelOf = () =>
  new ParameterSet([
    { name: "a", shape: [3], values: [1, 2, 3] },
    { name: "b", shape: [2, 1], dtype: "float64", values: [4, 5] },
  ]);
const valuesOf = (set: ParameterSet) => [...set].map(({ value }) => [...value]);

/** The gradients that worker `rank` pushes for the `at`-th time. */
function gradientsOf(rank: number, at: number) {
  return {
    a: Float32Array.from({ length: 3 }, (_, i) => Math.sin(rank + 7 * at + i)),
    b: Float64Array.from({ length: 2 }, (_, i) => Math.cos(rank + 7 * at + i)),
  };
}

async function onRanks<T>(size: number, program: (comm: Communicator) => Promise<T>, seed = 1) {
  const world = await createWorld({ backend: sim({ seed }), size });
  try {
    return await world.run(program);
  } finally {
    await world.close();
  }
}

/** A worker pushes number `from` up to `until`. */
async function work(server: ParameterServer, rank: number, from: number, until: number) {
  for (let at = from; at < until; at++) {
    await server.push(await server.pull(), gradientsOf(rank, at));
  }
}

interface Span {
  readonly from: number;
  readonly until: number;
  readonly server?: number;
  readonly mode?: "block" | "reject";
}

const files = memoryFiles;

/** Loads what is there, pushes, and saves; gives the server's report and values. */
async function session(
  comm: Communicator,
  kept: ReturnType<typeof files>,
  { from, until, server: serves = 0, mode = "block" }: Span,
) {
  const model = modelOf();
  const options = { rule, staleness: 4, server: serves, mode };
  const server = await ParameterServer.create(comm, model, options);
  const checkpoints = new Checkpoints(comm, kept);
  const parts = { shared: {}, perRank: { server } };
  await checkpoints.load(parts);
  let report: unknown;
  if (server.isServer) report = await server.serve();
  else {
    await work(server, comm.rank, from, until);
    await server.leave();
  }
  await checkpoints.save(until, parts);
  return { report, values: valuesOf(model), state: server.state() };
}

test.each(["block", "reject"] as const)(
  "one worker: a run stopped and resumed equals one that is not stopped, with %s",
  async (mode) => {
    const [whole] = await onRanks(2, (comm) =>
      session(comm, files(), { from: 0, until: 12, mode }),
    );
    const kept = files();
    await onRanks(2, (comm) => session(comm, kept, { from: 0, until: 5, mode }));
    const [rest] = await onRanks(2, (comm) => session(comm, kept, { from: 5, until: 12, mode }));
    expect(rest).toEqual(whole);
    expect(rest!.report).toMatchObject({ accepted: 12 });
    // AdamW's slots matter: without them the rest would be another.
    const fresh = await onRanks(2, async (comm) => {
      const model = modelOf();
      const server = await ParameterServer.create(comm, model, { rule, staleness: 4 });
      if (server.isServer) {
        const first = await onRanks(2, (each) => session(each, files(), { from: 0, until: 5 }));
        for (const [at, { value }] of [...model].entries()) value.set(first[0]!.values[at]!);
        await server.serve();
      } else {
        await work(server, comm.rank, 5, 12);
        await server.leave();
      }
      return valuesOf(model);
    });
    expect(fresh[0]).not.toEqual(whole!.values);
  },
);

test("another number of ranks, and another server rank, may continue", async () => {
  const [whole] = await onRanks(2, (comm) => session(comm, files(), { from: 0, until: 9 }));
  const kept = files();
  await onRanks(2, (comm) => session(comm, kept, { from: 0, until: 4 }));
  const [, , moved] = await onRanks(3, async (comm) => {
    const model = modelOf();
    const server = await ParameterServer.create(comm, model, { rule, staleness: 4, server: 2 });
    await new Checkpoints(comm, kept).load({ shared: {}, perRank: { server } });
    if (server.isServer) {
      const report = await server.serve();
      return { report, values: valuesOf(model) };
    }
    // The first worker makes the pushes that rank 1 would have made.
    if (comm.rank === 0) await work(server, 1, 4, 9);
    await server.leave();
    return undefined;
  });
  expect(moved!.values).toEqual(whole!.values);
  expect(moved!.report).toMatchObject({ accepted: 9, refused: 0 });
});

test("versions continue: a pull from before may be pushed, one of the future not", async () => {
  const kept = files();
  await onRanks(2, (comm) => session(comm, kept, { from: 0, until: 5 }));
  const [report] = await onRanks(2, async (comm) => {
    const server = await ParameterServer.create(comm, modelOf(), {
      rule,
      staleness: 2,
      mode: "reject",
    });
    await new Checkpoints(comm, kept).load({ shared: {}, perRank: { server } });
    if (server.isServer) return server.serve();
    const gradients = gradientsOf(1, 0);
    await expect(server.push(6, gradients)).rejects.toMatchObject({ field: "version" });
    expect(await server.push(2, gradients)).toEqual({ accepted: false, version: 5, staleness: 3 });
    expect(await server.push(3, gradients)).toEqual({ accepted: true, version: 6, staleness: 2 });
    expect(await server.pull()).toBe(6);
    await server.leave();
    return undefined;
  });
  expect(report).toMatchObject({ accepted: 6, rejected: 1, refused: 1, largestStaleness: 2 });
});

describe("saved while it serves, every third version", () => {
  async function serving(
    comm: Communicator,
    kept: ReturnType<typeof files>,
    pushes: [worker: number, at: number][],
  ) {
    const model = modelOf();
    const alone = await comm.split({ color: comm.rank === 0 ? 0 : undefined });
    const checkpoints = alone && new Checkpoints(alone, kept, { keep: 100 });
    const next = new Array<number>(comm.size).fill(0);
    const server: ParameterServer = await ParameterServer.create(comm, model, {
      rule,
      staleness: 3,
      onAccepted: async ({ worker, version }) => {
        pushes[version - 1] = [worker, next[worker]!++];
        if (version % 3 === 0) await checkpoints?.save(version, { shared: { server } });
      },
    });
    if (server.isServer) {
      await server.serve();
      return valuesOf(model);
    }
    await work(server, comm.rank, 0, 6);
    await server.leave();
    return undefined;
  }

  /** One optimizer, no server. */
  function replay(pushes: readonly (readonly [number, number])[]) {
    const model = modelOf();
    const optimizer = new Optimizer(model, rule);
    for (const [worker, at] of pushes) {
      const gradients: Record<string, ArrayLike<number>> = gradientsOf(worker, at);
      for (const { name, gradient } of model) gradient.set(gradients[name]!);
      optimizer.step();
    }
    return valuesOf(model);
  }

  test.each([50, 60, 75])(
    "with a failure at call %i, has the replay of the pushes it saved",
    async (call) => {
      const kept = files();
      const pushes: [number, number][] = [];
      const world = await createWorld({ backend: sim({ faults: [failAt(0, call)] }), size: 4 });
      await expect(world.run((comm) => serving(comm, kept, pushes))).rejects.toThrow();
      await world.close();
      const found = await onRanks(1, async (comm) => {
        const model = modelOf();
        const server = await ParameterServer.create(comm, model, { rule, staleness: 3 });
        const saved = await new Checkpoints(comm, kept).load({ shared: { server } });
        const { accepted } = await server.serve();
        expect(accepted).toBe(saved?.step);
        return { step: saved!.step, values: valuesOf(model) };
      });
      const { step, values } = found[0]!;
      expect(step % 3).toBe(0);
      expect(step).toBeGreaterThan(0);
      expect(values).toEqual(replay(pushes.slice(0, step)));
      expect(pushes.length).toBeLessThan(18);
    },
  );
  test("without a failure, has the replay of all", async () => {
    const pushes: [number, number][] = [];
    const [values] = await onRanks(4, (comm) => serving(comm, files(), pushes));
    expect(pushes.length).toBe(18);
    expect(values).toEqual(replay(pushes));
  });
});

describe("restore refuses, without a change:", () => {
  const stateOf = async (options: Partial<ParameterServerOptions> = {}): Promise<State> => {
    const found = await onRanks(2, async (comm) => {
      const model = modelOf();
      const server = await ParameterServer.create(comm, model, { rule, staleness: 0, ...options });
      if (server.isServer) await server.serve();
      else {
        await work(server, comm.rank, 0, 2);
        await server.leave();
      }
      return server.state();
    });
    return found[options.server ?? 0]!;
  };
  const restored = (state: State, own: UpdateRule = rule) =>
    onRanks(1, async (comm) => {
      const model = modelOf();
      const server = await ParameterServer.create(comm, model, { rule: own, staleness: 0 });
      const before = JSON.stringify(server.state());
      let message = "restored";
      try {
        server.restore(state);
      } catch (error) {
        message = (error as Error).message;
        expect(error).toMatchObject({ code: "ERR_COMM_ARG" });
      }
      expect(JSON.stringify(server.state()) === before).toBe(message !== "restored");
      await server.serve();
      return message;
    }).then(([message]) => message);

  test("an empty state", async () => {
    expect(await restored(await stateOf())).toBe("restored");
  });
  test("another rule's state", async () => {
    expect(await restored(await stateOf(), sgd({ learningRate: 1 }))).toMatch(
      /found .*needs nothing/,
    );
    const lion = { ...rule, name: "other" };
    expect(await restored(await stateOf(), lion)).toContain('state of the rule "adamW"');
  });
  test("another server rank's state, a worker's, an incomplete one", async () => {
    expect(await restored(await stateOf({ server: 1 }))).toContain("server: found 1, needs rank 0");
    const { values, tensors } = await stateOf();
    expect(await restored({ values: {}, tensors })).toContain("server: found undefined");
    expect(await restored({ values: { server: 0 }, tensors: {} })).toContain(
      "accepted: found undefined, needs a count",
    );
    expect(await restored({ values: { ...values, held: -1 }, tensors })).toContain("held: found");
    const { "value/a": _, ...rest } = tensors;
    expect(await restored({ values, tensors: rest })).toContain(
      "value/a: found nothing, needs float32 [3] with 3 elements",
    );
    const more = { ...tensors, "value/c": tensors["value/a"]! };
    expect(await restored({ values, tensors: more })).toContain("value/c: found");
  });
  test("states without a server's, and any once it has served", async () => {
    await onRanks(1, async (comm) => {
      const server = await ParameterServer.create(comm, modelOf(), { rule, staleness: 0 });
      const worker = { values: { server: 1 }, tensors: {} };
      expect(() => server.reshard([worker, { ...worker, values: { server: 0 } }], 0, 1)).toThrow(
        "states: found no server's",
      );
      await server.serve();
      const state = server.state();
      expect(() => server.restore(state)).toThrow("this rank has served");
    });
  });
});
