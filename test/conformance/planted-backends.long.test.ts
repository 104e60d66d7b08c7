/**
 * Backends with one planted fault each: the suite fails them, and its failing cases name the fault. Exact lists of them show that
 * the host backend fails no other case.
 */
import {
  bytesOf,
  type Capabilities,
  type DeviceBuffer,
  type DType,
  type Explanation,
  type Question,
} from "twinccl";
import {
  type Backend,
  type CallSet,
  type Completion,
  type Exchange,
  memoryOf,
  type QueueingSession,
  type RankCall,
  type Session,
  type Work,
} from "twinccl/backend";
import { HostMemory } from "twinccl/sim";
import { conformance } from "twinccl/testing";
import { afterEach, describe, expect, test, vi } from "vitest";
import { host } from "./host-backend.ts";

const capabilities = {
  hostArrays: true,
  virtualTime: false,
  deterministic: true,
  symmetricMemory: false,
};

/** The host backend with work that is changed before it is executed, and memory that is changed afterwards. */
function planted(change: {
  readonly before?: (set: CallSet) => CallSet;
  readonly after?: (set: CallSet) => void;
  readonly afterMessages?: (exchange: Exchange) => void;
}): Backend {
  const backend = host();
  return {
    ...backend,
    open: async (request) => {
      const session = await backend.open(request);
      const execute = (work: Work): void | Promise<void> => {
        if ("transfers" in work) {
          const done = session.execute(work);
          change.afterMessages?.(work);
          return done;
        }
        const done = session.execute(change.before?.(work) ?? work);
        change.after?.(work);
        return done;
      };
      return { ...session, execute };
    },
  };
}

function bytesIn(buffer: DeviceBuffer): Uint8Array {
  const memory = memoryOf(buffer) as HostMemory;
  return new Uint8Array(memory.buffer, buffer.byteOffset, buffer.byteLength);
}

/** Offsets of blocks one after another. */
function packed(counts: readonly number[] | undefined): number[] | undefined {
  return counts?.map((_, block) => counts.slice(0, block).reduce((sum, count) => sum + count, 0));
}

const withCalls = (set: CallSet, change: (call: RankCall) => RankCall): CallSet => {
  return { ...set, calls: set.calls.map(change) };
};

/** Names of the cases that fail. */
async function failures(
  backend: () => Backend,
  has: Capabilities = capabilities,
): Promise<string[]> {
  const names: string[] = [];
  for (const { name, run } of conformance({ backend, capabilities: has, sizes: [1, 3] })) {
    await run().catch(() => names.push(name));
  }
  return names;
}

afterEach(() => {
  vi.restoreAllMocks();
});

const memory = HostMemory.prototype;
const { read, fill, write, free } = memory;

test.each([
  {
    fault: "a read that ignores the offset of a view",
    plant: () =>
      vi.spyOn(memory, "read").mockImplementation(function (this: HostMemory, _, into) {
        return read.call(this, 0, into);
      }),
    fails: "fills, writes and reads parts of a buffer",
  },
  {
    fault: "a fill that ignores the offset of a view",
    plant: () =>
      vi.spyOn(memory, "fill").mockImplementation(function (this: HostMemory, _, ...of) {
        return fill.call(this, 0, ...of);
      }),
    fails: "fills, writes and reads parts of a buffer",
  },
  {
    fault: "a loss of bytes beyond 65,535",
    plant: () =>
      vi.spyOn(memory, "write").mockImplementation(function (this: HostMemory, at, bytes) {
        return write.call(this, at, bytes.subarray(0, 0xffff));
      }),
    fails: "moves and folds blocks of more bytes than 16 bits count",
  },
])("$fault fails the case that names it", async ({ plant, fails }) => {
  plant();
  expect(await failures(host)).toContain(fails);
});

test("one wrong bit on the last rank fails the cases of exact contents and of copies", async () => {
  const after = ({ calls }: CallSet): void => {
    const { recv } = calls.at(-1)!;
    if (recv === undefined || recv.length === 0) return;
    bytesIn(recv)[recv.byteLength - 1]! ^= 1;
  };
  const names = await failures(() => planted({ after }));
  expect(names).toEqual(
    expect.arrayContaining([
      "reduces exact payloads for every dtype and operator",
      "copies bytes, NaN payloads included, for every dtype",
    ]),
  );
});

test("wrong sums on streams of their own fail the case that names them", async () => {
  const has = { ...capabilities, ownStreams: true };
  const withStreams = (change: Parameters<typeof planted>[0]): Backend => {
    const backend = planted(change);
    return {
      ...backend,
      open: async (request) => {
        const session = await backend.open(request);
        return { ...session, info: { ...session.info, capabilities: has } };
      },
    };
  };
  const after = ({ comm, calls }: CallSet): void => {
    const recv = comm.ownStream ? calls[0]?.recv : undefined;
    if (recv !== undefined) bytesIn(recv)[0]! ^= 1;
  };
  expect(await failures(() => withStreams({}), has)).toEqual([]);
  expect(await failures(() => withStreams({ after }), has)).toEqual([
    "runs calls on streams of their own as on those of the ranks",
  ]);
});

test("offsets of receive buffers that are ignored fail the cases that name offsets", async () => {
  const before = (set: CallSet): CallSet =>
    withCalls(set, (call) => ({ ...call, recvOffsets: packed(call.recvCounts) }));
  expect(await failures(() => planted({ before }))).toEqual([
    "copies bytes, NaN payloads included, for every dtype",
    "gathers blocks at every root, where offsets say",
    "gathers blocks at all ranks, where offsets say",
    "exchanges blocks of all ranks, where offsets say",
    "takes TypedArrays in place of buffers",
    "runs the calls of a group at once",
    "replays recorded calls with new contents",
    "runs calls of the communicators of a split, in the order of its keys",
    "runs whole programs, with every collective, form and placement",
  ]);
});

test("offsets of send buffers that are ignored fail the cases that name offsets", async () => {
  const before = (set: CallSet): CallSet =>
    withCalls(set, (call) => ({ ...call, sendOffsets: packed(call.sendCounts) }));
  expect(await failures(() => planted({ before }))).toEqual([
    "copies bytes, NaN payloads included, for every dtype",
    "scatters blocks from every root, where offsets say",
    "exchanges blocks of all ranks, where offsets say",
    "takes TypedArrays in place of buffers",
    "runs whole programs, with every collective, form and placement",
  ]);
});

test("a broadcast from another rank than the root fails the case that names roots", async () => {
  const before = (set: CallSet): CallSet => {
    if (set.collective !== "broadcast") return set;
    const ranks = set.calls.length;
    return withCalls(set, (call) => {
      const root = (call.root + 1) % ranks;
      return { ...call, root, send: call.rank === root ? (call.send ?? call.recv) : call.send };
    });
  };
  expect(await failures(() => planted({ before }))).toEqual(
    expect.arrayContaining(["broadcasts from every root"]),
  );
});

test("blocks of a scatter in the wrong order fail the case that names it", async () => {
  const after = ({ collective, calls }: CallSet): void => {
    if (collective !== "scatter" || calls.length === 1) return;
    const [first, last] = [calls[0]!, calls.at(-1)!].map((call) => bytesIn(call.recv!));
    const width = Math.min(first!.length, last!.length, bytesOf(calls[0]!.dtype!));
    const kept = first!.slice(0, width);
    first!.set(last!.subarray(0, width));
    last!.set(kept);
  };
  expect(await failures(() => planted({ after }))).toEqual([
    "copies bytes, NaN payloads included, for every dtype",
    "scatters blocks from every root, where offsets say",
    "takes TypedArrays in place of buffers",
    "runs whole programs, with every collective, form and placement",
  ]);
});

test("another order than the explained one fails the case that names it", async () => {
  const backend = (): Backend => {
    const own = host();
    const open: Backend["open"] = async (request) => {
      const session = await own.open(request);
      return {
        ...session,
        explain: (question, comm, rank) => {
          const plan = session.explain(question, comm, rank);
          const chunks = plan.chunks.map((chunk) => {
            const fold = chunk.fold.replace(/r0(.*)r2/, "r2$1r0");
            const order = fold === chunk.fold ? chunk.order : [...chunk.order].reverse();
            return { ...chunk, fold, order };
          });
          return { ...plan, chunks };
        },
      };
    };
    return { ...own, open };
  };
  expect(await failures(backend)).toEqual([
    "folds in the order that it explains, rounded at every hop",
  ]);
});

const floats: readonly (DType | undefined)[] = ["float16", "bfloat16", "float32", "float64"];

test.each([
  {
    fault: "float16 in the reverse order of ranks",
    before: (set: CallSet): CallSet => {
      const folds = set.calls[0]?.op !== undefined && set.calls[0].dtype === "float16";
      const sends = set.calls.map(({ send }) => send).reverse();
      return folds ? withCalls(set, (call) => ({ ...call, send: sends[call.rank] })) : set;
    },
  },
  {
    fault: "products of float64 in the reverse order of ranks, in a reduce alone",
    before: (set: CallSet): CallSet => {
      const [first] = set.calls;
      const folds =
        set.collective === "reduce" && first?.dtype === "float64" && first.op === "prod";
      const sends = set.calls.map(({ send }) => send).reverse();
      return folds ? withCalls(set, (call) => ({ ...call, send: sends[call.rank] })) : set;
    },
  },
  {
    fault: "averages of floats on three ranks that are sums",
    before: (set: CallSet): CallSet => {
      const [first] = set.calls;
      const isOne = set.calls.length === 3 && first?.op === "avg" && floats.includes(first.dtype);
      return isOne ? withCalls(set, (call) => ({ ...call, op: "sum" })) : set;
    },
  },
])("$fault fail the case that names the order", async ({ before }) => {
  expect(await failures(() => planted({ before }))).toEqual([
    "folds in the order that it explains, rounded at every hop",
  ]);
});

test("messages of one dtype that are lost fail the case that names every dtype", async () => {
  const afterMessages = ({ transfers }: Exchange): void => {
    for (const { recv } of transfers) {
      if (recv.dtype === "float16") bytesIn(recv.recv!).fill(0);
    }
  };
  expect(await failures(() => planted({ afterMessages }))).toContain(
    "copies bytes, NaN payloads included, for every dtype",
  );
});

test("a wrong operator for one dtype of a reduce-scatter fails the case that names every dtype", async () => {
  const before = (set: CallSet): CallSet => {
    const [first] = set.calls;
    const isOne = set.collective === "reduceScatter" && first?.dtype === "uint8";
    return isOne && first.op === "sum" ? withCalls(set, (call) => ({ ...call, op: "max" })) : set;
  };
  expect(await failures(() => planted({ before }))).toContain(
    "reduces exact payloads for every dtype and operator",
  );
});

test.each<{ fault: string; isOne: (collective: string, dtype: DType) => boolean }>([
  { fault: "of float64", isOne: (_, dtype) => dtype === "float64" },
  { fault: "of float16", isOne: (_, dtype) => dtype === "float16" },
  { fault: "of uint32", isOne: (_, dtype) => dtype === "uint32" },
  { fault: "of a reduce-scatter", isOne: (collective) => collective === "reduceScatter" },
  { fault: "of a reduceScatterv", isOne: (collective) => collective === "reduceScatterv" },
])(
  "a scalar of rank 0 that all ranks of a sum $fault take fails the case that names it",
  async ({ isOne }) => {
    const before = (set: CallSet): CallSet => {
      const { op, dtype } = set.calls[0] as RankCall;
      if (typeof op !== "object" || !isOne(set.collective, dtype!)) return set;
      return withCalls(set, (call) => ({ ...call, op }));
    };
    expect(await failures(() => planted({ before }))).toContain(
      "multiplies the contribution of each rank by its own scalar",
    );
  },
);

test.each<{ collective: string; dtype: DType; fails: readonly string[] }>([
  {
    collective: "reduceScatterv",
    dtype: "float8e4m3",
    fails: [
      "reduces exact payloads for every dtype and operator",
      "folds in the order that it explains, rounded at every hop",
    ],
  },
  {
    collective: "reduceScatterv",
    dtype: "uint8",
    fails: ["reduces exact payloads for every dtype and operator"],
  },
  {
    collective: "allGatherv",
    dtype: "float16",
    fails: ["copies bytes, NaN payloads included, for every dtype"],
  },
])(
  "one wrong bit of an $collective of $dtype fails the cases of every dtype",
  async ({ collective, dtype, fails }) => {
    const after = (set: CallSet): void => {
      const { recv } = set.calls.at(-1)!;
      if (set.collective !== collective || recv?.dtype !== dtype || recv.length === 0) return;
      bytesIn(recv)[0]! ^= 1;
    };
    expect(await failures(() => planted({ after }))).toEqual(expect.arrayContaining([...fails]));
  },
);

/** The host backend with other answers of its sessions. */
function answering(answers: (session: Session) => Partial<Session>): Backend {
  const own = host();
  return {
    ...own,
    open: async (request) => {
      const session = await own.open(request);
      return { ...session, ...answers(session) };
    },
  };
}

test.each<{ fault: string; abort: (state: { isOver: boolean }) => void }>([
  {
    fault: "ends the other communicators too",
    abort: (state) => {
      state.isOver = true;
    },
  },
  {
    fault: "throws",
    abort: () => {
      throw new Error("planted");
    },
  },
])("an abort that $fault fails the case of aborts", async ({ abort }) => {
  const faulty = (): Backend =>
    answering((session) => {
      const state = { isOver: false };
      const execute: Session["execute"] = async (work) => {
        await new Promise((resolve) => setImmediate(resolve));
        if (state.isOver) throw new Error("the session is over");
        return session.execute(work);
      };
      return { execute, abort: () => abort(state) };
    });
  expect(await failures(faulty)).toContain(
    "ends the open calls of an aborted communicator, and no others",
  );
});

/** The host backend with other plans. */
function explaining(change: (plan: Explanation, question: Question) => Explanation): Backend {
  return answering((session) => {
    const explain: Session["explain"] = (question, ...place) =>
      change(session.explain(question, ...place), question);
    return { explain };
  });
}

const plansCase =
  "explains every call without running it, by the ranks that each element comes from";

test.each<{ fault: string; change: (plan: Explanation, question: Question) => Explanation }>([
  {
    fault: "a copy from another rank",
    change: (plan, { collective, root = 0 }) => {
      if (collective !== "scatter") return plan;
      const from = (root + 1) % plan.ranks;
      const chunks = plan.chunks.map((chunk) => {
        return { ...chunk, order: [from], fold: `copy of r${from} in[0]` };
      });
      return { ...plan, chunks };
    },
  },
  {
    fault: "no chunks for copies",
    change: (plan, { op }) => (op === undefined ? { ...plan, chunks: [] } : plan),
  },
  {
    fault: "an order that is not that of the text",
    change: (plan) => {
      const chunks = plan.chunks.map((each) => ({ ...each, order: [...each.order].reverse() }));
      return { ...plan, chunks };
    },
  },
  {
    fault: "the same chunk for every element",
    change: (plan) => ({ ...plan, chunkOf: () => plan.chunks.at(-1)! }),
  },
  {
    fault: "the output of the root, for every rank of a scatter",
    change: (plan, { collective, root = 0 }) =>
      collective === "scatter" ? { ...plan, rank: root } : plan,
  },
])("a plan with $fault fails the case of plans", async ({ change }) => {
  expect(await failures(() => explaining(change))).toEqual([plansCase]);
});

test("a backend that refuses all data but sums of int32 and float32 conforms", async () => {
  const few = (): Backend =>
    answering(() => {
      const refusal: Session["refusal"] = ({ collective, dtype = "", op }) => {
        if (/^(barrier|split|capture)$/.test(collective)) return undefined;
        const isSum = collective === "allReduce" && op === "sum";
        return isSum && /^(int|float)32$/.test(dtype) ? undefined : "it is not made";
      };
      return { refusal };
    });
  expect(await failures(few)).toEqual([]);
});

test.each([Number.NaN, -1, Number.POSITIVE_INFINITY])(
  "an estimate of %d ns fails the case of estimates",
  async (time) => {
    expect(await failures(() => answering(() => ({ estimate: () => time })))).toEqual([
      "estimates the time of every call, or none",
    ]);
  },
);

test("a fill that loses the upper half of 64 bits fails the case of fills", async () => {
  vi.spyOn(memory, "fill").mockImplementation(function (this: HostMemory, at, count, dtype, value) {
    const kept = dtype === "uint64" ? BigInt.asUintN(32, BigInt(value)) : value;
    return fill.call(this, at, count, dtype, kept);
  });
  expect(await failures(host)).toEqual(["fills, writes and reads parts of a buffer"]);
});

const memoryCase =
  "gives new memory of zeros, where no other memory is, and takes it back behind its calls";

test("new memory with old contents fails the case of memory", async () => {
  const given = new Map<number, Uint8Array>();
  vi.spyOn(memory, "free").mockImplementation(function (this: HostMemory) {
    given.set(this.byteLength, new Uint8Array(this.buffer).slice());
    return free.call(this);
  });
  const withContents = (): Backend =>
    answering((session) => {
      for (const rank of session.info.localRanks) {
        const device = session.device(rank);
        const allocate = device.allocate.bind(device);
        vi.spyOn(device, "allocate").mockImplementation((bytes, isSymmetric) => {
          const allocated = allocate(bytes, isSymmetric);
          allocated.write(0, given.get(bytes) ?? new Uint8Array(0));
          return allocated;
        });
      }
      return {};
    });
  expect(await failures(withContents)).toContain(memoryCase);
});

test("memory at one address fails the case of memory", async () => {
  const withAddress = (): Backend =>
    answering((session) => {
      for (const rank of session.info.localRanks) {
        const device = session.device(rank);
        const allocate = device.allocate.bind(device);
        vi.spyOn(device, "allocate").mockImplementation((bytes, isSymmetric) =>
          Object.defineProperty(allocate(bytes, isSymmetric), "ptr", { value: 256n }),
        );
      }
      return {};
    });
  expect(await failures(withAddress)).toEqual([memoryCase]);
});

describe("a queue of work", () => {
  /** The host backend with work that waits for the end of a turn, or until memory is written or read. */
  function queueing(isLast: boolean, freesAtOnce: boolean): Backend {
    return answering((session) => {
      const queue: { work: Work; completion: Completion }[] = [];
      const drain = (): void => {
        const found = queue.splice(0);
        for (const { work, completion } of isLast ? found.reverse() : found) {
          let error: unknown;
          try {
            void session.execute(work);
          } catch (caught) {
            error = caught;
          }
          completion.settled(error);
        }
      };
      for (const rank of session.info.localRanks) {
        const device = session.device(rank);
        const allocate = device.allocate.bind(device);
        vi.spyOn(device, "allocate").mockImplementation((...of) => {
          const allocated = allocate(...of);
          for (const name of ["write", "read", "fill", "free"] as const) {
            const act = allocated[name].bind(allocated) as (...given: unknown[]) => void;
            vi.spyOn(allocated, name).mockImplementation((...given: unknown[]) => {
              if (name !== "free" || !freesAtOnce) drain();
              act(...given);
            });
          }
          return allocated;
        });
      }
      const submit: QueueingSession["submit"] = (work, completion) => {
        queue.push({ work, completion });
        setImmediate(drain);
      };
      return { submit } as Partial<QueueingSession>;
    });
  }

  test("conforms in order", async () => {
    expect(await failures(() => queueing(false, false))).toEqual([]);
  });

  test("in reverse order fails the case of the order", async () => {
    expect(await failures(() => queueing(true, false))).toEqual([
      "runs calls in order, also when they are awaited later",
    ]);
  });

  test("that loses memory under it fails the case of memory", async () => {
    expect(await failures(() => queueing(false, true))).toEqual([memoryCase]);
  });
});

test("symmetric memory that is declared and not given fails the case that names it", async () => {
  const has = { ...capabilities, symmetricMemory: true };
  const backend = (isGiven: boolean): Backend => {
    const own = host();
    const open: Backend["open"] = async (request) => {
      const session = await own.open(request);
      for (const rank of session.info.localRanks) {
        const device = session.device(rank);
        const allocate = device.allocate.bind(device);
        vi.spyOn(device, "allocate").mockImplementation((bytes, isSymmetric) => {
          if (isSymmetric && !isGiven) throw new Error("no symmetric memory");
          return allocate(bytes, false);
        });
      }
      return { ...session, info: { ...session.info, capabilities: has } };
    };
    return { ...own, open };
  };
  expect(await failures(() => backend(true), has)).toEqual([]);
  expect(await failures(() => backend(false), has)).toEqual(["runs calls in symmetric memory"]);
});
