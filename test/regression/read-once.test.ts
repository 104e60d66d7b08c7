/** Arguments that change between two reads, and TypedArrays of a class that redefines their properties. */
import { asDType, type CommError, type Communicator, type DeviceBuffer } from "twinccl";
import { numbersToBits } from "twinccl/algorithms";
import { encodeTensors } from "twinccl/parallel";
import { describe, expect, test } from "vitest";
import { inWorld } from "../support/in-world.ts";

/** A Float32Array of a class that redefines properties, as its instances show them. */
function redefined(numbers: readonly number[], properties: PropertyDescriptorMap): Float32Array {
  class Redefined extends Float32Array {}
  const array = new Redefined(numbers);
  Object.defineProperties(Redefined.prototype, properties);
  return array;
}

const lies: Readonly<Record<string, PropertyDescriptorMap>> = {
  length: { length: { get: () => 1 << 20 } },
  "a negative length": { length: { get: () => -1 } },
  byteLength: { byteLength: { get: () => 1 << 20 } },
  byteOffset: { byteOffset: { get: () => 3 } },
  buffer: { buffer: { get: () => new ArrayBuffer(1) } },
  "a buffer that is none": { buffer: { get: () => undefined } },
  "the name of its class": { [Symbol.toStringTag]: { get: () => "BigInt64Array" } },
};

describe.each(Object.entries(lies))("a TypedArray that redefines %s", (_, properties) => {
  const array = (...numbers: number[]): Float32Array => redefined(numbers, properties);
  /** The elements, read past the redefined properties. */
  const elements = (of: Float32Array): number[] => [0, 1].map((at) => of[at] as number);

  test("is sent and received with its real elements", async () => {
    const got = await inWorld(2, async (comm) => {
      const recv = array(0, 0);
      await comm.allReduce({ send: array(comm.rank, 2), recv, op: "sum" });
      await comm.allReduce({ send: asDType(recv, "float32"), op: "max" });
      return elements(recv);
    });
    expect(got).toEqual([
      [1, 4],
      [1, 4],
    ]);
  });

  test("is copied to and from buffers", async () => {
    const [got] = await inWorld(1, async (comm) => {
      const into = array(0, 0);
      await comm.alloc("float32", 2).copyFrom(array(5, 6)).copyTo(into);
      return elements(into);
    });
    expect(got).toEqual([5, 6]);
  });

  test("is encoded", () => {
    const plain = Float32Array.of(1, 2);
    const encoded = (data: Float32Array): Uint8Array =>
      encodeTensors({ tensors: { x: { dtype: "float32", shape: [2], data } }, metadata: {} });
    expect(encoded(array(1, 2))).toEqual(encoded(plain));
    expect(numbersToBits("bfloat16", array(1, 2))).toEqual(numbersToBits("bfloat16", plain));
  });
});

test("an ArrayBuffer that redefines its length is refused by name", async () => {
  class Redefined extends ArrayBuffer {
    override get byteLength(): number {
      return 1;
    }
  }
  await inWorld(1, async (comm) => {
    const send = new Float32Array(new Redefined(8), 0, 2);
    await expect(comm.allReduce({ send, op: "sum" })).rejects.toMatchObject({
      code: "ERR_COMM_ARG",
      message: expect.stringContaining("its ArrayBuffer of 8 bytes says that it has 1"),
    });
  });
});

describe("arguments that are getters", () => {
  /** The fields as getters that count how often each is read, and give another value from the second time on. */
  function changing(fields: object, later: unknown): { args: object; reads: Map<string, number> } {
    const reads = new Map<string, number>();
    const args = {};
    for (const [name, value] of Object.entries(fields)) {
      const get = (): unknown => {
        reads.set(name, (reads.get(name) ?? 0) + 1);
        return reads.get(name) === 1 ? value : later;
      };
      Object.defineProperty(args, name, { get, enumerable: true });
    }
    return { args, reads };
  }

  type Call = (comm: Communicator, args: object) => PromiseLike<unknown>;
  type Fields = (comm: Communicator) => object;
  const send = (comm: Communicator, length = 2) => comm.alloc("float32", length).fill(1);
  const calls: Readonly<Record<string, readonly [Call, Fields]>> = {
    allReduce: [
      (comm, args) => comm.allReduce(args as never),
      (comm) => ({ send: send(comm), recv: send(comm), op: "sum", timeoutMs: 1000 }),
    ],
    reduceScatterv: [
      (comm, args) => comm.reduceScatterv(args as never),
      (comm) => ({ send: send(comm), recv: send(comm, 1), sendCounts: [1, 1], op: "max" }),
    ],
    allToAllv: [
      (comm, args) => comm.allToAllv(args as never),
      (comm) => ({
        ...{ send: send(comm), recv: send(comm), sendCounts: [1, 1], sendOffsets: [0, 1] },
        ...{ recvCounts: [1, 1], recvOffsets: [0, 1] },
      }),
    ],
    gather: [
      (comm, args) => comm.gather(args as never),
      (comm) => ({ send: send(comm), ...(comm.rank === 0 && { recv: send(comm, 4) }), root: 0 }),
    ],
    sendRecv: [
      (comm, args) => comm.sendRecv(args as never),
      (comm) => ({
        ...{ send: new Float32Array(2), recv: new Float32Array(2) },
        ...{ to: 1 - comm.rank, from: 1 - comm.rank, signal: new AbortController().signal },
      }),
    ],
    split: [(comm, args) => comm.split(args as never), ({ rank }) => ({ color: 0, key: rank })],
    barrier: [(comm, args) => comm.barrier(args), () => ({ timeoutMs: 1000 })],
  };

  test.each(Object.entries(calls))("of %s are each read once", async (_, [call, fields]) => {
    await inWorld(2, async (comm) => {
      const given = fields(comm);
      const { args, reads } = changing(given, "what was not checked");
      await call(comm, args);
      expect(Object.fromEntries(reads)).toEqual(
        Object.fromEntries(Object.keys(given).map((name) => [name, 1])),
      );
    });
  });

  test("of an array with its dtype, and of a scalar, are each read once", async () => {
    await inWorld(2, async (comm) => {
      const data = new Float32Array(2).fill(2);
      const typed = changing({ array: data, dtype: "float32" }, undefined);
      const scaled = changing({ preMul: 3 }, "none");
      await comm.allReduce({ send: typed.args as never, op: scaled.args as never });
      expect([...typed.reads.values(), ...scaled.reads.values()]).toEqual([1, 1, 1]);
      expect([...data]).toEqual([12, 12]);
    });
  });

  test("may make calls of their own", async () => {
    const errors: CommError[] = [];
    await inWorld(1, async (comm) => {
      const args = {
        get send(): DeviceBuffer {
          void comm.barrier();
          return comm.alloc("float32", 1);
        },
        op: "none",
      };
      await comm.allReduce(args as never).catch((error) => errors.push(error as CommError));
    });
    expect(errors.map(({ message }) => message)).toEqual([
      expect.stringContaining('allReduce: op: "none" is no operator'),
    ]);
  });

  test("are found where a class defines them", async () => {
    class Args {
      readonly #comm: Communicator;
      constructor(comm: Communicator) {
        this.#comm = comm;
      }
      get send(): DeviceBuffer {
        return send(this.#comm);
      }
      get op(): "sum" {
        return "sum";
      }
    }
    const [sum] = await inWorld(2, async (comm) => {
      const result = await comm.allReduce(new Args(comm) as { send: DeviceBuffer; op: "sum" });
      return [...((await result.toHost()) as Float32Array)];
    });
    expect(sum).toEqual([2, 2]);
  });
});
