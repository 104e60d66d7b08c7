/** Opening worlds: choosing a backend, a single rank, closing, and what is answered without running anything. */

import {
  type Backend,
  BackendUnavailableError,
  type CommError,
  type Communicator,
  connect,
  createWorld,
  firstAvailable,
} from "twinccl";
import { builtCollectives } from "twinccl/algorithms";
import { sim } from "twinccl/sim";
import { afterEach, describe, expect, test, vi } from "vitest";

function missing(name: string, reason: string): Backend {
  return {
    name,
    probe: () => ({ ok: false, reason }),
    open: () => Promise.reject(new Error("must not be opened")),
  };
}

describe("firstAvailable", () => {
  test("opens the first available backend, and lists the attempts", async () => {
    const later: Backend = {
      ...missing("later", ""),
      probe: () => {
        throw new Error("not opened");
      },
    };
    const backend = firstAvailable(missing("gpu", "no driver"), sim(), later);
    expect(backend.name).toBe("firstAvailable(gpu, sim, later)");
    expect(await backend.probe({ size: 2, name: "w" })).toEqual({
      ok: true,
      reason: "gpu: no driver; sim: needs nothing",
    });
    const world = await createWorld({ backend, size: 2 });
    expect(world.backend).toBe("sim");
    expect(world.selection).toEqual([
      { backend: "gpu", ok: false, reason: "no driver" },
      { backend: "sim", ok: true, reason: "needs nothing" },
    ]);
    await world.close();
  });

  test("fails with every reason if none is available", async () => {
    const backend = firstAvailable(missing("gpu", "no driver"), missing("tpu", "no such thing"));
    const failure = await createWorld({ backend, size: 2 }).catch((error) => error);
    expect(failure).toBeInstanceOf(BackendUnavailableError);
    expect(String(failure)).toMatch(/gpu {2}no driver\n {2}tpu {2}no such thing/);
    await expect(createWorld({ backend: firstAvailable(), size: 1 })).rejects.toMatchObject({
      code: "ERR_COMM_BACKEND",
    });
  });

  test("has no fallback for a single backend", async () => {
    const world = await createWorld({ backend: sim(), size: 1 });
    expect(world.selection).toEqual([{ backend: "sim", ok: true, reason: "named by the caller" }]);
    await world.close();
  });
});

describe("connect", () => {
  test("gives a communicator of one rank that supports every call", async () => {
    const comm = await connect({ backend: sim(), name: "solo" });
    expect(comm).toMatchObject({ rank: 0, size: 1, name: "solo", backend: "sim", device: "sim:0" });
    const send = comm.alloc("int32", 3).copyFrom(Int32Array.of(1, 2, 3));
    await comm.allReduce({ send, op: "avg" });
    const recv = comm.alloc("int32", 3);
    await comm.allToAll({ send, recv });
    await comm.broadcast({ recv, root: 0 });
    await comm.barrier();
    const result = await comm.allToAllv({ send: recv, sendCounts: [2] });
    expect(Array.from(await result.recv.toHost())).toEqual([1, 2]);
    await comm[Symbol.asyncDispose]();
  });

  test("refuses more ranks, with an alternative in the hint", async () => {
    await expect(connect({ backend: sim(), size: 4 })).rejects.toMatchObject({
      code: "ERR_COMM_UNSUPPORTED",
      field: "size",
      hint: expect.stringContaining("twinccl run"),
    });
  });
});

describe("connect in a process that a launcher started", () => {
  afterEach(() => vi.unstubAllEnvs());

  /** Rank 0 of `twinccl launch`. */
  const launchedOf = (size: number): void => {
    for (const name of ["RANK", "LOCAL_RANK"]) vi.stubEnv(`TWINCCL_${name}`, "0");
    vi.stubEnv("TWINCCL_SIZE", String(size));
    vi.stubEnv("TWINCCL_JOB_ID", "launch-1");
  };
  /** A backend for jobs of several processes. */
  const joining = (join: NonNullable<Backend["join"]>): Backend => ({
    ...missing("gpu", "not opened"),
    join,
  });
  const absent = joining(() =>
    Promise.reject(new BackendUnavailableError({ headline: "no driver", hint: "install one" })),
  );

  test("joins its job on the first available backend, without later fallbacks", async () => {
    launchedOf(4);
    const request = { name: "job", timeoutMs: 5000, signal: new AbortController().signal };
    const requests: unknown[] = [];
    const gpu = joining((given) => {
      requests.push(given);
      return sim().open({ size: 1, name: given.name });
    });
    const comm = await connect({ backend: firstAvailable(absent, gpu, sim()), ...request });
    expect(comm.name).toBe("job");
    expect(requests).toEqual([{ ...request, size: undefined }]);
    await comm.close();
    // As long as a timer can.
    const patient = await connect({ backend: gpu, timeoutMs: Number.POSITIVE_INFINITY });
    expect(requests[1]).toMatchObject({ timeoutMs: 2 ** 31 - 1 });
    await patient.close();
    const broken = joining(() => Promise.reject(new TypeError("broken")));
    const failing = connect({ backend: firstAvailable(broken, sim()) });
    await expect(failing).rejects.toThrow("broken");
  });

  test.each([
    ["a simulation", sim()],
    ["a simulation that is left over", firstAvailable(absent, sim())],
  ])("of several is refused on %s: none would hear of the others", async (_, backend) => {
    launchedOf(4);
    for (const size of [undefined, 1, 4]) {
      const failure = await connect({ backend, ...(size && { size }) }).catch((error) => error);
      expect(failure).toMatchObject({
        ...{ code: "ERR_COMM_UNSUPPORTED", field: "size", size: 4 },
        message: expect.stringMatching(/^connect: sim with 4 ranks: all its ranks live in one/),
        hint: expect.stringContaining("twinccl run"),
      });
      if (backend.name !== "sim") expect(failure.message).toMatch(/^ +gpu +no driver$/m);
    }
  });

  test("with one rank is that rank", async () => {
    launchedOf(1);
    for (const backend of [sim(), firstAvailable(absent, sim())]) {
      const comm = await connect({ backend });
      expect(comm).toMatchObject({ rank: 0, size: 1, backend: "sim" });
      await comm.close();
    }
    await expect(connect({ backend: firstAvailable(absent) })).rejects.toMatchObject({
      code: "ERR_COMM_BACKEND",
    });
  });
});

describe("sim", () => {
  test("refuses invalid options, with their field", () => {
    const wrong: readonly (readonly [object, string])[] = [
      [{ seed: 0.5 }, "seed"],
      [{ seed: Number.NaN }, "seed"],
      [{ seed: "7" }, "seed"],
      [{ algorithms: { allReduce: "star" } }, "algorithms.allReduce"],
      [{ algorithms: { allReduce: "toString" } }, "algorithms.allReduce"],
      [{ algorithms: { allRedude: "ring" } }, "algorithms.allRedude"],
      [{ link: { latencyNs: -1 } }, "link.latencyNs"],
      [{ link: { latencyNs: Number.NaN } }, "link.latencyNs"],
      [{ link: { latencyNs: 1e300 } }, "link.latencyNs"],
      [{ link: { gigabytesPerSecond: 0 } }, "link.gigabytesPerSecond"],
      [{ link: { gigabytesPerSecond: 1e-200 } }, "link.gigabytesPerSecond"],
      [{ link: { gigabytesPerSecond: Infinity } }, "link.gigabytesPerSecond"],
    ];
    for (const [options, field] of wrong) {
      expect(() => sim(options), field).toThrowError(
        expect.objectContaining({ code: "ERR_COMM_ARG", field }),
      );
    }
  });

  test("reports its capabilities", async () => {
    const comm = await connect({ backend: sim() });
    expect(comm.capabilities).toEqual({
      hostArrays: true,
      virtualTime: true,
      deterministic: true,
      symmetricMemory: true,
      ownStreams: true,
    });
    expect(comm.stream).toBeUndefined();
    await comm.close();
  });
});

/** Every method that the contract promises for later, with arguments that would be right. */
const later: readonly (readonly [string, (comm: Communicator) => PromiseLike<unknown>])[] = [
  ["reduce", (comm) => comm.reduce({ send: new Int8Array(2), op: "sum", root: 0 })],
  ["allGather", (comm) => comm.allGather({ send: new Int8Array(1), recv: new Int8Array(2) })],
  [
    "allGatherv",
    (comm) =>
      comm.allGatherv({ send: new Int8Array(1), recv: new Int8Array(2), recvCounts: [1, 1] }),
  ],
  [
    "reduceScatter",
    (comm) => comm.reduceScatter({ send: new Int8Array(2), recv: new Int8Array(1), op: "sum" }),
  ],
  [
    "reduceScatterv",
    (comm) =>
      comm.reduceScatterv({
        send: new Int8Array(2),
        recv: new Int8Array(1),
        op: "sum",
        sendCounts: [1, 1],
      }),
  ],
  ["gather", (comm) => comm.gather({ send: new Int8Array(1), recv: new Int8Array(2), root: 0 })],
  ["scatter", (comm) => comm.scatter({ send: new Int8Array(2), recv: new Int8Array(1), root: 0 })],
  ["send", (comm) => comm.send({ send: new Int8Array(1), peer: 1 - comm.rank })],
  ["recv", (comm) => comm.recv({ recv: new Int8Array(1), peer: 1 - comm.rank })],
  [
    "sendRecv",
    (comm) =>
      comm.sendRecv({
        send: new Int8Array(1),
        recv: new Int8Array(1),
        to: 1 - comm.rank,
        from: 1 - comm.rank,
      }),
  ],
  ["group", (comm) => comm.group(() => undefined)],
  ["split", (comm) => comm.split({ color: 0 })],
  ["capture", (comm) => comm.capture(() => undefined)],
];

describe("unsupported calls", () => {
  test.each(later)(
    "%s fails with UnsupportedError on every rank or on none",
    async (name, call) => {
      const world = await createWorld({ backend: sim(), size: 2 });
      const outcomes = world.run((comm) =>
        call(comm).then(
          () => "built",
          (error) => error as CommError,
        ),
      );
      const failures = (await outcomes).filter(
        (outcome): outcome is CommError => (outcome as CommError).code === "ERR_COMM_UNSUPPORTED",
      );
      expect([0, 2]).toContain(failures.length);
      for (const { message } of failures) expect(message).toContain(name);
      await world.close();
    },
  );

  test("estimate and rebuild fail with UnsupportedError, or answer", async () => {
    const world = await createWorld({ backend: sim(), size: 2 });
    for (const ask of [() => world.estimate({ collective: "barrier" }), () => world.rebuild()]) {
      const answer: unknown = await ask().catch((error) => (error as CommError).code);
      if (typeof answer === "string") expect(answer).toBe("ERR_COMM_UNSUPPORTED");
    }
    await world.close();
  });
});

describe("explain and supports", () => {
  test("accept every built collective and refuse others", async () => {
    const comm = await connect({ backend: sim() });
    for (const collective of builtCollectives) {
      expect(comm.supports({ collective, dtype: "int8", op: "sum", count: 1 })).toBe(true);
      const plan = comm.explain({ collective, dtype: "int8", op: "sum", count: 4, root: 0 });
      expect(plan).toMatchObject({ collective, ranks: 1 });
      expect(String(plan)).toContain(collective);
      expect(plan.claim).toMatch(/^the same bits as NCCL 2\.28\.9|^copies bytes/);
    }
    for (const collective of ["send", "recv", "group", "split", "capture", "replay"] as const) {
      expect(comm.supports({ collective }), collective).toBe(true);
    }
    expect(comm.supports({ collective: "allRedude" as never })).toBe(false);
    expect(() => comm.explain({ collective: "allRedude" as never })).toThrowError(
      expect.objectContaining({ code: "ERR_COMM_ARG" }),
    );
    await comm.close();
  });

  test("show the chunks, their order, steps, bytes and time of a ring, without running anything", async () => {
    const world = await createWorld({
      backend: sim({
        link: { latencyNs: 500, gigabytesPerSecond: 8 },
        algorithms: { allReduce: "ring" },
      }),
      size: 4,
    });
    const plan = world.explain({ collective: "allReduce", dtype: "float32", op: "sum", count: 10 });
    expect(plan).toMatchObject({ algorithm: "ring", steps: 6, channels: 1, ranks: 4 });
    expect(plan.chunks.map(({ offset, length }) => [offset, length])).toEqual([
      [0, 3],
      [3, 3],
      [6, 2],
      [8, 2],
    ]);
    expect(plan.chunks.map(({ order }) => order)).toEqual([
      [1, 2, 3, 0],
      [2, 3, 0, 1],
      [3, 0, 1, 2],
      [0, 1, 2, 3],
    ]);
    expect(plan.chunkOf(5)).toBe(plan.chunks[1]);
    expect(plan.chunks[3]?.fold).toBe("((r0 + r1) + r2) + r3");
    for (const element of [-1, 10, Number.NaN, 0.5, 9.5, Infinity, "1" as never]) {
      expect(() => plan.chunkOf(element), `${element}`).toThrowError(
        expect.objectContaining({ code: "ERR_COMM_ARG", field: "element" }),
      );
    }
    await world.close();
  });

  test("refuse questions about invalid calls", async () => {
    const world = await createWorld({ backend: sim(), size: 4 });
    const wrong: readonly (readonly [object, string])[] = [
      [{ collective: "allReduce", dtype: "int8", op: "sum", count: -1 }, "count"],
      [{ collective: "allReduce", dtype: "int8", op: "sum", count: 1.5 }, "count"],
      [{ collective: "broadcast", dtype: "int8", count: 4, root: 4 }, "root"],
      [{ collective: "broadcast", dtype: "int8", count: 4, root: -1 }, "root"],
      [{ collective: "allReduce", dtype: "float128", op: "sum", count: 4 }, "dtype"],
      [{ collective: "allReduce", dtype: "int8", op: "plus", count: 4 }, "op"],
      [{ collective: "allToAllv", dtype: "int8", counts: [[1]] }, "counts"],
    ];
    for (const [question, field] of wrong) {
      expect(() => world.explain(question as never), JSON.stringify(question)).toThrowError(
        expect.objectContaining({ code: "ERR_COMM_ARG", field }),
      );
    }
    await world.close();
  });
});

test("refuses sizes beyond the memory of a process, before any allocation", async () => {
  for (const size of [131_073, 2 ** 31, Number.MAX_SAFE_INTEGER]) {
    await expect(createWorld({ backend: sim(), size })).rejects.toMatchObject({
      code: "ERR_COMM_ARG",
      field: "size",
    });
  }
});

function throwingGetter(name: string): Error {
  const get = (): never => {
    throw new RangeError("getter");
  };
  return Object.defineProperty(new Error("x"), name, { get });
}

test.each([
  ["an object without a prototype", () => Object.create(null), "object that has no text"],
  ["an error whose message is a number", () => Object.assign(new Error(), { message: 5 }), "5"],
  [
    "an error with a symbol for its name",
    () => Object.assign(new Error("x"), { name: Symbol() }),
    "x",
  ],
  ["an error with a throwing stack", () => throwingGetter("stack"), "x"],
  ["an error with a throwing message", () => throwingGetter("message"), "object that has no text"],
])("a rank that throws %s fails the run, and the world stays usable", async (_, make, message) => {
  const world = await createWorld({ backend: sim(), size: 2 });
  const thrown = make();
  const run = world.run(async (comm) => {
    if (comm.rank === 1) throw thrown;
    await comm.barrier();
  });
  await expect(run).rejects.toMatchObject({
    code: "ERR_COMM_WORLD",
    cause: thrown,
    message: expect.stringContaining(message),
  });
  expect(await world.run((comm) => comm.size)).toEqual([2, 2]);
  await world.close();
});
