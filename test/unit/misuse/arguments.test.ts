/** Wrong arguments: refused on the rank that gave them, before anything is posted, with the field by name. */

import { asDType, type CommError, type Communicator, connect, createWorld } from "twinccl";
import { sim } from "twinccl/sim";
import { describe, expect, test } from "vitest";
import { expectPlanted, type Guard, type Planted } from "../../support/planted.ts";

// biome-ignore lint/suspicious/noExplicitAny: wrong types are the point
type Wrong = any;

interface WrongCall {
  readonly wrong: string;
  readonly field: string;
  readonly call: (comm: Communicator, guard: Guard) => PromiseLike<unknown>;
  readonly name?: string;
}

const six = (comm: Communicator, guard: Guard) => guard.buffer(comm, "int32", 6);
const floats = (comm: Communicator, guard: Guard) => guard.buffer(comm, "float32", 6);

/** An all-to-allv of three ranks with something changed. */
function exchange(change: object): WrongCall["call"] {
  return (comm, guard) => {
    const send = six(comm, guard);
    const recv = guard.buffer(comm, "int32", 8);
    return comm.allToAllv({ send, recv, sendCounts: [2, 2, 2], ...change } as Wrong);
  };
}

function reduce(send: (comm: Communicator, guard: Guard) => unknown): WrongCall["call"] {
  return (comm, guard) => comm.allReduce({ send: send(comm, guard) as Wrong, op: "sum" });
}

function operator(op: unknown, dtype: "int8" | "uint8" | "int64" | "float32" = "int8") {
  return (comm: Communicator, guard: Guard) =>
    comm.allReduce({ send: guard.buffer(comm, dtype, 4), op: op as Wrong });
}

const elsewhere = connect({ backend: sim(), name: "elsewhere" });

const calls: readonly WrongCall[] = [
  { wrong: "no arguments", field: "arguments", call: (comm) => (comm as Wrong).allReduce() },
  {
    wrong: "null for arguments",
    field: "arguments",
    call: (comm) => comm.broadcast(null as Wrong),
  },
  { wrong: "send left out", field: "send", call: reduce(() => undefined) },
  { wrong: "send is null", field: "send", call: reduce(() => null) },
  { wrong: "a plain array", field: "send", call: reduce(() => [1, 2, 3]) },
  { wrong: "a Uint16Array without asDType", field: "send", call: reduce(() => new Uint16Array(4)) },
  { wrong: "an Int16Array", field: "send", call: reduce(() => new Int16Array(4)) },
  { wrong: "a Uint8ClampedArray", field: "send", call: reduce(() => new Uint8ClampedArray(4)) },
  {
    wrong: "a DataView",
    field: "send",
    call: reduce(() => new DataView(new ArrayBuffer(8))),
  },
  { wrong: "an ArrayBuffer", field: "send", call: reduce(() => new ArrayBuffer(8)) },
  {
    wrong: "asDType with the wrong class",
    field: "send",
    call: reduce(() => asDType(new Uint8Array(4) as Wrong, "bfloat16")),
  },
  {
    wrong: "asDType with no dtype",
    field: "send",
    call: reduce(() => asDType(new Uint16Array(4), "half" as Wrong)),
  },
  {
    wrong: "asDType around a plain array",
    field: "send",
    call: reduce(() => asDType([1, 2] as Wrong, "float32")),
  },
  {
    wrong: "a resizable buffer",
    field: "send",
    call: reduce(() => new Uint8Array(new (ArrayBuffer as Wrong)(8, { maxByteLength: 16 }))),
  },
  {
    wrong: "a growable shared buffer",
    field: "send",
    call: reduce(() => new Uint8Array(new (SharedArrayBuffer as Wrong)(8, { maxByteLength: 16 }))),
  },
  {
    wrong: "a transferred buffer",
    field: "send",
    call: reduce(() => {
      const array = new Uint8Array(8);
      structuredClone(array.buffer, { transfer: [array.buffer] });
      return array;
    }),
  },
  {
    wrong: "a buffer of another world",
    field: "send",
    call: async (comm) => comm.allReduce({ send: (await elsewhere).alloc("int8", 1), op: "sum" }),
  },
  {
    wrong: "a disposed buffer",
    field: "send",
    name: "CommClosedError",
    call: reduce((comm) => {
      const buffer = comm.alloc("int8", 4);
      buffer.dispose();
      return buffer;
    }),
  },
  {
    wrong: "a subarray of a disposed buffer",
    field: "recv",
    name: "CommClosedError",
    call: (comm, guard) => {
      const owner = comm.alloc("int32", 12);
      const recv = owner.subarray(6);
      owner.dispose();
      return comm.allReduce({ send: six(comm, guard), recv, op: "sum" });
    },
  },
  {
    wrong: "recv shorter than send",
    field: "recv",
    call: (comm, guard) =>
      comm.allReduce({ send: six(comm, guard), recv: guard.buffer(comm, "int32", 5), op: "sum" }),
  },
  {
    wrong: "recv longer than send",
    field: "recv",
    call: (comm, guard) =>
      comm.allReduce({ send: six(comm, guard), recv: guard.buffer(comm, "int32", 7), op: "sum" }),
  },
  {
    wrong: "recv of another dtype",
    field: "recv",
    call: (comm, guard) =>
      comm.allReduce({ send: six(comm, guard), recv: floats(comm, guard) as Wrong, op: "sum" }),
  },
  {
    wrong: "send and recv overlap by one element",
    field: "recv",
    call: (comm, guard) => {
      const both = guard.buffer(comm, "int32", 11);
      return comm.allReduce({ send: both.subarray(0, 6), recv: both.subarray(5), op: "sum" });
    },
  },
  {
    wrong: "host arrays that overlap",
    field: "recv",
    call: (comm, guard) => {
      const both: Float64Array = guard.array(new Float64Array(8));
      return comm.allReduce({ send: both.subarray(0, 5), recv: both.subarray(3), op: "sum" });
    },
  },
  {
    wrong: "an all-to-all in place",
    field: "recv",
    call: (comm, guard) => {
      const both = six(comm, guard);
      return comm.allToAll({ send: both, recv: both });
    },
  },
  {
    wrong: "an all-to-all whose length is no multiple of the ranks",
    field: "send",
    call: (comm, guard) =>
      comm.allToAll({ send: guard.buffer(comm, "int8", 4), recv: guard.buffer(comm, "int8", 4) }),
  },
  { wrong: "an operator that does not exist", field: "op", call: operator("plus") },
  { wrong: "an operator from the prototype", field: "op", call: operator("toString") },
  { wrong: "no operator", field: "op", call: operator(undefined) },
  { wrong: "null for an operator", field: "op", call: operator(null) },
  { wrong: "preMul above int8", field: "op", call: operator({ preMul: 128 }) },
  { wrong: "preMul below int8", field: "op", call: operator({ preMul: -129 }) },
  { wrong: "preMul negative for uint8", field: "op", call: operator({ preMul: -1 }, "uint8") },
  { wrong: "preMul a fraction for int8", field: "op", call: operator({ preMul: 0.5 }) },
  { wrong: "preMul NaN for int8", field: "op", call: operator({ preMul: Number.NaN }) },
  { wrong: "preMul unsafe for int64", field: "op", call: operator({ preMul: 2 ** 53 }, "int64") },
  { wrong: "preMul 2^63 for int64", field: "op", call: operator({ preMul: 2n ** 63n }, "int64") },
  { wrong: "preMul a bigint for float32", field: "op", call: operator({ preMul: 2n }, "float32") },
  { wrong: "preMul a string", field: "op", call: operator({ preMul: "2" }) },
  {
    wrong: "a root that is no rank",
    field: "root",
    call: (comm, guard) => comm.broadcast({ recv: six(comm, guard), root: 3 }),
  },
  {
    wrong: "a negative root",
    field: "root",
    call: (comm, guard) => comm.broadcast({ recv: six(comm, guard), root: -1 }),
  },
  {
    wrong: "a fraction for a root",
    field: "root",
    call: (comm, guard) => comm.broadcast({ recv: six(comm, guard), root: 0.5 }),
  },
  {
    wrong: "a bigint for a root",
    field: "root",
    call: (comm, guard) => comm.broadcast({ recv: six(comm, guard), root: 0n as Wrong }),
  },
  {
    wrong: "send on a rank that is not the root",
    field: "send",
    call: (comm, guard) => {
      const root = (comm.rank + 1) % comm.size;
      return comm.broadcast({ send: six(comm, guard), recv: six(comm, guard), root });
    },
  },
  { wrong: "sendCounts too short", field: "sendCounts", call: exchange({ sendCounts: [2, 2] }) },
  { wrong: "sendCounts no array", field: "sendCounts", call: exchange({ sendCounts: 2 }) },
  {
    wrong: "sendCounts a typed array",
    field: "sendCounts",
    call: exchange({ sendCounts: Int32Array.of(2, 2, 2) }),
  },
  {
    wrong: "a fraction for a count",
    field: "sendCounts[1]",
    call: exchange({ sendCounts: [2, 1.5, 2] }),
  },
  {
    wrong: "NaN for a count",
    field: "sendCounts[2]",
    call: exchange({ sendCounts: [2, 2, Number.NaN] }),
  },
  {
    wrong: "a negative count",
    field: "sendCounts[0]",
    call: exchange({ sendCounts: [-2, 2, 2] }),
  },
  {
    wrong: "a huge count",
    field: "sendCounts[0]",
    call: exchange({ sendCounts: [2 ** 52, 0, 0] }),
  },
  {
    wrong: "a count beyond safe integers",
    field: "sendCounts[0]",
    call: exchange({ sendCounts: [2 ** 53, 0, 0] }),
  },
  {
    wrong: "a hole in the counts",
    field: "sendCounts[1]",
    // biome-ignore lint/suspicious/noSparseArray: the hole is the point
    call: exchange({ sendCounts: [2, , 2] }),
  },
  {
    wrong: "a block outside of send",
    field: "sendOffsets[2]",
    call: exchange({ sendOffsets: [0, 2, 5] }),
  },
  {
    wrong: "a negative offset",
    field: "sendOffsets[0]",
    call: exchange({ sendOffsets: [-1, 2, 4] }),
  },
  {
    wrong: "recvOffsets without recvCounts",
    field: "recvOffsets",
    call: exchange({ recvOffsets: [0, 2, 4] }),
  },
  {
    wrong: "a block outside of recv",
    field: "recvOffsets[0]",
    call: exchange({ recvCounts: [2, 2, 2], recvOffsets: [7, 0, 2] }),
  },
  {
    wrong: "received blocks that overlap",
    field: "recvOffsets[1]",
    call: exchange({ recvCounts: [2, 2, 2], recvOffsets: [0, 1, 4] }),
  },
  {
    wrong: "a signal that is none",
    field: "signal",
    call: (comm) => comm.barrier({ signal: {} as Wrong }),
  },
  {
    wrong: "a deadline that is no number",
    field: "timeoutMs",
    call: (comm) => comm.barrier({ timeoutMs: "1" as Wrong }),
  },
  { wrong: "a deadline of 0", field: "timeoutMs", call: (comm) => comm.barrier({ timeoutMs: 0 }) },
  {
    wrong: "NaN for a deadline",
    field: "timeoutMs",
    call: (comm) => comm.barrier({ timeoutMs: Number.NaN }),
  },
];

const codes = { InvalidArgumentError: "ERR_COMM_ARG", CommClosedError: "ERR_COMM_CLOSED" };

function onEveryRank({ wrong, field, call, name = "InvalidArgumentError" }: WrongCall): Planted {
  const code = codes[name as keyof typeof codes];
  return { wrong, size: 3, program: call, expected: () => ({ name, code, field }) };
}

function onOneRank({ wrong, field, call, name = "InvalidArgumentError" }: WrongCall): Planted {
  const code = codes[name as keyof typeof codes];
  return {
    wrong,
    size: 3,
    program: (comm, guard) => (comm.rank === 1 ? call(comm, guard) : comm.barrier()),
    expected: (rank) =>
      rank === 1
        ? { name, code, field }
        : { name: "RemoteRankError", code: "ERR_COMM_REMOTE", ranks: [1] },
  };
}

describe("a wrong argument on every rank", () => {
  test.each(calls.map(onEveryRank))("$wrong", (planted) => expectPlanted(planted));
});

describe("a wrong argument on one rank", () => {
  test.each(calls.map(onOneRank))("$wrong", (planted) => expectPlanted(planted));

  test("a buffer of another rank", async () => {
    const shared: { of0?: unknown } = {};
    await expectPlanted({
      wrong: "",
      size: 2,
      program: async (comm, guard) => {
        const own = six(comm, guard);
        if (comm.rank === 0) shared.of0 = own;
        await comm.barrier();
        const send = comm.rank === 1 ? (shared.of0 as typeof own) : own;
        await comm.allReduce({ send, op: "sum" });
      },
      expected: (rank) =>
        rank === 1
          ? { name: "InvalidArgumentError", code: "ERR_COMM_ARG", field: "send" }
          : { name: "RemoteRankError", code: "ERR_COMM_REMOTE", ranks: [1] },
    });
  });
});

describe("a refused call", () => {
  test("is counted as a failure and uses up no call number", async () => {
    const world = await createWorld({ backend: sim(), size: 2 });
    const numbers = await world.run(async (comm) => {
      const refused = comm.broadcast({ root: 9 });
      await refused.catch((error) => expect((error as CommError).call).toBeUndefined());
      const next = comm.barrier();
      await next;
      return [refused.call, next.call, comm.stats().failures];
    });
    expect(numbers).toEqual([
      [-1, 0, 1],
      [-1, 0, 1],
    ]);
    await world.close();
  });
});

describe("received blocks with gaps between them", () => {
  test("fit into the recv that the library allocates, or are refused with a typed error", async () => {
    const world = await createWorld({ backend: sim(), size: 2 });
    const results = await world.run(async (comm) => {
      const send = comm.alloc("int32", 2).copyFrom(Int32Array.of(comm.rank, comm.rank + 10));
      const counts = { sendCounts: [1, 1], recvCounts: [1, 1], recvOffsets: [0, 5] };
      return comm.allToAllv({ send, ...counts }).then(
        async ({ recv }) => {
          const host = await recv.toHost();
          return [host[0], host[5]];
        },
        (error) => (error as CommError).code ?? String(error),
      );
    });
    const refused = ["ERR_COMM_ARG", "ERR_COMM_ARG"];
    const received = [
      [0, 1],
      [10, 11],
    ];
    expect([refused, received]).toContainEqual(results);
    await world.close();
  });
});

test("the article of a refused array is that of its class", async () => {
  const cases: [unknown, string][] = [
    [new Int16Array(4), "an Int16Array does not"],
    [new Uint16Array(4), "a Uint16Array does not"],
    [asDType(new Uint8Array(4) as Wrong, "int32"), "int32 needs an Int32Array"],
    [asDType(new Uint8Array(4) as Wrong, "bfloat16"), "bfloat16 needs a Uint16Array"],
  ];
  const world = await createWorld({ backend: sim(), size: 1 });
  await world.run(async (comm) => {
    for (const [send, text] of cases) {
      const { message } = await comm
        .allReduce({ send: send as Wrong, op: "sum" })
        .catch((error) => error);
      expect(message).toContain(text);
    }
  });
  await world.close();
});

test("a refused argument of send has a hint for its kind alone", async () => {
  const copy = "pass a copy, whose length is fixed: array.slice()";
  const cases: [unknown, string | undefined][] = [
    [[1, 2, 3], "make a TypedArray of it: Float32Array.from(array)"],
    [
      new Uint16Array(4),
      'say which dtype an array of bits holds: asDType(new Uint16Array(8), "bfloat16")',
    ],
    [new Uint8Array(new (ArrayBuffer as Wrong)(8, { maxByteLength: 16 })), copy],
    [new Uint8Array(new (SharedArrayBuffer as Wrong)(8, { maxByteLength: 16 })), copy],
    [new DataView(new ArrayBuffer(8)), undefined],
    [undefined, undefined],
  ];
  const world = await createWorld({ backend: sim(), size: 1 });
  await world.run(async (comm) => {
    for (const [send, hint] of cases) {
      const { hint: found } = await comm
        .allReduce({ send: send as Wrong, op: "sum" })
        .catch((error) => error);
      expect(found).toBe(hint);
    }
    const fixed = new Uint8Array(new (ArrayBuffer as Wrong)(8, { maxByteLength: 16 })).slice();
    await comm.allReduce({ send: fixed, op: "sum" });
  });
  await world.close();
});
