/** Programs that must compile or must not: dtypes that belong together, names of operators and algorithms, host arrays. */
import {
  type AllReduceArgs,
  type AllToAllvResult,
  asDType,
  type CommError,
  type CommErrorCode,
  type CommOp,
  type Communicator,
  createWorld,
  type Data,
  DeviceBuffer,
  type Graph,
  type HostArray,
} from "twinccl";
import { sim } from "twinccl/sim";
import { describe, expectTypeOf, test } from "vitest";

declare const comm: Communicator;
declare const f32: DeviceBuffer<"float32">;
declare const i32: DeviceBuffer<"int32">;
declare const bf16: DeviceBuffer<"bfloat16">;
declare const f16: DeviceBuffer<"float16">;

describe("dtypes of send and recv", () => {
  test("agree", () => {
    expectTypeOf(comm.allReduce({ send: f32, op: "sum" })).toEqualTypeOf<
      CommOp<DeviceBuffer<"float32">>
    >();
    comm.allReduce({ send: f32, recv: f32, op: "sum" });
    comm.allToAll({ send: i32, recv: i32 });
    comm.broadcast({ send: f32, recv: f32, root: 0 });
    // @ts-expect-error: int32 is not float32
    comm.allReduce({ send: f32, recv: i32, op: "sum" });
    // @ts-expect-error: both travel in a Uint16Array, and are different dtypes all the same
    comm.allReduce({ send: bf16, recv: f16, op: "sum" });
    // @ts-expect-error: int32 is not float32
    comm.allToAll({ send: i32, recv: f32 });
    // @ts-expect-error: int32 is not float32
    comm.broadcast({ send: i32, recv: f32, root: 0 });
    // @ts-expect-error: int32 is not float32
    comm.allToAllv({ send: i32, recv: f32, sendCounts: [1] });
  });

  test("agree between host arrays too", () => {
    comm.allReduce({ send: new Float32Array(4), recv: new Float32Array(4), op: "sum" });
    comm.allToAll({ send: new BigInt64Array(4), recv: new BigInt64Array(4) });
    comm.allReduce({ send: new Float32Array(4), recv: f32, op: "sum" });
    comm.allReduce({ send: f32, recv: new Float32Array(4), op: "sum" });
    // @ts-expect-error: Int32Array is not Float32Array
    comm.allReduce({ send: new Float32Array(4), recv: new Int32Array(4), op: "sum" });
  });

  test("may be unknown until the program runs", () => {
    const some: Data = f32;
    comm.allReduce({ send: some, recv: some, op: "sum" });
    const args: AllReduceArgs = { send: some, op: "sum" };
    comm.allReduce(args);
  });
});

test("a recording is disposable", () => {
  expectTypeOf<Graph>().toExtend<Disposable>();
  expectTypeOf<Graph["dispose"]>().toEqualTypeOf<() => void>();
});

describe("arrays of bits", () => {
  test("name no dtype, and need theirs as an argument", () => {
    const bits = new Uint16Array(4);
    comm.allReduce({ send: asDType(bits, "float16"), op: "sum" });
    comm.allToAll({ send: bf16, recv: asDType(bits, "bfloat16") });
    // @ts-expect-error: float16 or bfloat16
    comm.allReduce({ send: bits, op: "sum" });
    // @ts-expect-error: a Uint8Array alone is uint8
    comm.allToAll({ send: asDType(new Uint8Array(4), "float8e4m3"), recv: new Uint8Array(4) });
    expectTypeOf(comm.allToAllv({ send: new Uint8Array(4), sendCounts: [4] })).toEqualTypeOf<
      CommOp<AllToAllvResult<DeviceBuffer<"uint8">>>
    >();
  });
});

test("an argument that may be left out may be undefined", () => {
  const some: { readonly timeoutMs?: number; readonly seed?: number } = {};
  const recvCounts = comm.rank === 0 ? [1, 2] : undefined;
  comm.gather({ send: i32, recvCounts, root: 0, timeoutMs: some.timeoutMs });
  comm.barrier({ timeoutMs: some.timeoutMs, signal: undefined });
  sim({ seed: some.seed, trace: undefined, link: { latencyNs: undefined } });
  void createWorld({ backend: sim(), size: 2, name: undefined, stallMs: undefined });
  void createWorld({ backend: sim(), size: 2, stall: some.seed === 0 ? "fail" : undefined });
  // @ts-expect-error no such effect of a stall
  void createWorld({ backend: sim(), size: 2, stall: "warn" });
  expectTypeOf(comm.broadcast({ send: undefined, recv: i32, root: 0 })).toEqualTypeOf<
    CommOp<DeviceBuffer<"int32">>
  >();
});

test("a recv that may be undefined types the result as either", () => {
  const maybe = comm.rank === 0 ? f32 : undefined;
  const host = new Float32Array(4);
  comm.gather({ send: i32, recv: comm.rank === 0 ? i32 : undefined, root: 0 });
  comm.allReduce({ send: f32, recv: undefined, op: "sum" });
  expectTypeOf(comm.allReduce({ send: f32, recv: maybe, op: "sum" })).toEqualTypeOf<
    CommOp<DeviceBuffer<"float32">>
  >();
  expectTypeOf(comm.reduce({ send: host, recv: maybe, op: "sum", root: 0 })).toEqualTypeOf<
    CommOp<Float32Array<ArrayBuffer> | DeviceBuffer<"float32"> | undefined>
  >();
  expectTypeOf(comm.broadcast({ send: host, recv: maybe, root: 0 })).toEqualTypeOf<
    CommOp<Float32Array<ArrayBuffer> | DeviceBuffer<"float32">>
  >();
  expectTypeOf(
    comm.allToAllv({ send: host, recv: comm.rank === 0 ? host : undefined, sendCounts: [4] }),
  ).toEqualTypeOf<CommOp<AllToAllvResult<Float32Array<ArrayBuffer> | DeviceBuffer<"float32">>>>();
  // @ts-expect-error: int32 is not float32
  comm.allReduce({ send: f32, recv: comm.rank === 0 ? i32 : undefined, op: "sum" });
  const args: AllReduceArgs = { send: f32, recv: maybe, op: "sum" };
  comm.allReduce(args);
});

test("a split gives a rank with a color its communicator", () => {
  expectTypeOf(comm.split({ color: 0, key: 1 })).toEqualTypeOf<CommOp<Communicator>>();
  expectTypeOf(comm.split({ color: undefined })).toEqualTypeOf<CommOp<Communicator | undefined>>();
  expectTypeOf(comm.split({ color: comm.rank > 0 ? 0 : undefined })).toEqualTypeOf<
    CommOp<Communicator | undefined>
  >();
  // @ts-expect-error: a rank that joins none says so
  comm.split({});
  // @ts-expect-error: that is `undefined`
  comm.split({ color: null });
});

describe("operators", () => {
  test("have the names of the contract", () => {
    for (const op of ["sum", "prod", "min", "max", "avg"] as const)
      comm.allReduce({ send: f32, op });
    comm.allReduce({ send: f32, op: { preMul: 0.5 } });
    comm.allReduce({ send: f32, op: { preMul: 2n } });
    // @ts-expect-error: no such operator
    comm.allReduce({ send: f32, op: "plus" });
    // @ts-expect-error: a scalar is a number or bigint
    comm.allReduce({ send: f32, op: { preMul: "2" } });
    // @ts-expect-error: a reduction needs its operator
    comm.allReduce({ send: f32 });
    // @ts-expect-error: a broadcast has none
    comm.broadcast({ recv: f32, root: 0, op: "sum" });
  });
});

describe("algorithms", () => {
  test("are named per collective", () => {
    sim({ algorithms: { allReduce: "ring", broadcast: "binomial" } });
    sim({ algorithms: { allReduce: "linear" } });
    // @ts-expect-error: binomial is no all-reduce
    sim({ algorithms: { allReduce: "binomial" } });
    // @ts-expect-error: a ring is no barrier
    sim({ algorithms: { barrier: "ring" } });
    // @ts-expect-error: no such collective
    sim({ algorithms: { allRedude: "ring" } });
    // @ts-expect-error: what a call means does not depend on how it is done
    comm.allReduce({ send: f32, op: "sum", algorithm: "ring" });
  });
});

describe("buffers", () => {
  test("take and give host arrays of their dtype", () => {
    expectTypeOf(comm.alloc("bfloat16", 2)).toEqualTypeOf<DeviceBuffer<"bfloat16">>();
    expectTypeOf(comm.adopt(4096n, "bfloat16", 2)).toEqualTypeOf<DeviceBuffer<"bfloat16">>();
    expectTypeOf(comm.stream).toEqualTypeOf<bigint | undefined>();
    // @ts-expect-error: an address does not fit a number
    comm.adopt(4096, "bfloat16", 2);
    expectTypeOf(bf16.toHost()).resolves.toEqualTypeOf<Uint16Array>();
    expectTypeOf(f32.subarray(1)).toEqualTypeOf<DeviceBuffer<"float32">>();
    expectTypeOf<HostArray<"int64">>().toEqualTypeOf<BigInt64Array>();
    f32.copyFrom(new Float32Array(2));
    bf16.copyFrom(new Uint16Array(2));
    asDType(new Uint16Array(2), "bfloat16");
    // @ts-expect-error: float32 travels in a Float32Array
    f32.copyFrom(new Float64Array(2));
    // @ts-expect-error: plain arrays are no host memory
    f32.copyFrom([1, 2]);
    // @ts-expect-error: bits travel in unsigned arrays
    bf16.copyFrom(new Int16Array(2));
    // @ts-expect-error: no such dtype
    comm.alloc("float128", 2);
    // @ts-expect-error: bfloat16 travels in a Uint16Array
    asDType(new Uint8Array(2), "bfloat16");
    // @ts-expect-error: the dtype of a buffer is fixed
    f32.dtype = "int32";
  });
});

test("a buffer shows its elements, and nothing of the library", () => {
  expectTypeOf<keyof DeviceBuffer>().toEqualTypeOf<
    | "dtype"
    | "length"
    | "byteLength"
    | "byteOffset"
    | "device"
    | "ptr"
    | "disposed"
    | "subarray"
    | "copyFrom"
    | "fill"
    | "toHost"
    | "copyTo"
    | "dispose"
    | typeof Symbol.dispose
  >();
  // @ts-expect-error: the memory behind it is the library's
  expectTypeOf(f32.allocation).toBeObject();
  // @ts-expect-error: so is the last call with it
  expectTypeOf(f32.lastCall).toBeObject();
  // @ts-expect-error: a communicator makes buffers
  new DeviceBuffer("float32", 2, f32);
  const data: unknown = f32;
  if (data instanceof DeviceBuffer) expectTypeOf(data).toExtend<DeviceBuffer>();
});

test("a handler names the class of the error that it handles, as with a Promise", () => {
  const sum = comm.allReduce({ send: f32, op: "sum" });
  const code = sum.catch((error: CommError) => error.code);
  expectTypeOf(code).resolves.toEqualTypeOf<DeviceBuffer<"float32"> | CommErrorCode>();
  const ranks = comm.barrier().then(
    () => [],
    ({ ranks }: CommError) => ranks,
  );
  expectTypeOf(ranks).resolves.toExtend<readonly number[]>();
  // @ts-expect-error: an error has no such field
  comm.barrier().catch((error: CommError) => error.rnak);
});

describe("an operation", () => {
  test("shows what a program may read, and nothing by which it is settled", () => {
    expectTypeOf<keyof CommOp>().toEqualTypeOf<
      | keyof Promise<unknown>
      | "rank"
      | "call"
      | "status"
      | "pending"
      | "error"
      | "place"
      | "enqueued"
    >();
    expectTypeOf<CommOp<number>>().toExtend<Promise<number>>();
    const op = comm.barrier();
    // @ts-expect-error: callbacks of the library
    op.whenSettled(() => undefined);
    // @ts-expect-error: the deadline is the library's
    expectTypeOf(op.deadline).toBeUndefined();
    // @ts-expect-error: only the library sets it
    op.status = "done";
  });
});

describe("results", () => {
  test("have the type of the receiving memory", () => {
    expectTypeOf(comm.barrier()).toEqualTypeOf<CommOp<void>>();
    // @ts-expect-error: in place the result is the buffer, whatever type it is wanted as
    const op: CommOp<Float32Array> = comm.allReduce({ send: f32, op: "sum" });
    expectTypeOf(op).toBeObject();
    expectTypeOf(comm.allToAllv({ send: i32, recv: i32, sendCounts: [1] })).toEqualTypeOf<
      CommOp<AllToAllvResult<DeviceBuffer<"int32">>>
    >();
    expectTypeOf(
      createWorld({ backend: sim(), size: 2 }).then((world) => world.run(() => 7)),
    ).resolves.toEqualTypeOf<[number, ...number[]]>();
    expectTypeOf(
      createWorld({ backend: sim(), size: 2 }).then((world) => world.run((c) => c.barrier())),
    ).resolves.items.toBeVoid();
    void createWorld({ backend: sim(), size: 2 }).then(async (world) => {
      const [first, second] = await world.run((c) => c.rank);
      expectTypeOf(first).toBeNumber();
      expectTypeOf(second).toEqualTypeOf<number | undefined>();
      const all: number[] = await world.run((c) => c.rank);
      expectTypeOf(all.map(String)).toEqualTypeOf<string[]>();
    });
    // @ts-expect-error: a world needs its backend
    void createWorld({ size: 2 });
    // @ts-expect-error: a backend is a value, not a name
    void createWorld({ backend: "sim", size: 2 });
  });
});
