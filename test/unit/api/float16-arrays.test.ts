/** The Float16Array of newer runtimes: float16 wherever a host array is taken; elsewhere a class of its name stands in. */

import { asDType, type Communicator, createWorld, type Float16Host } from "twinccl";
import { cpu, sim } from "twinccl/sim";
import { expect, test, vi } from "vitest";

/** Stand-ins for Float16Array in runtimes without it: the language's own property of TypedArrays names the class. */
const standIns = vi.hoisted(() => {
  // Another file may have loaded the library, which takes that property once.
  vi.resetModules();
  const arrays = new WeakSet<object>();
  const prototype: object = Object.getPrototypeOf(Uint8Array.prototype);
  const tag = Object.getOwnPropertyDescriptor(prototype, Symbol.toStringTag);
  Object.defineProperty(prototype, Symbol.toStringTag, {
    configurable: true,
    get(this: object) {
      return arrays.has(this) ? "Float16Array" : tag?.get?.call(this);
    },
  });
  return arrays;
});

/** Of its bits. */
function float16Array(bits: readonly number[]): Float16Host {
  const { buffer } = Uint16Array.from(bits);
  const found = (globalThis as { Float16Array?: new (memory: ArrayBuffer) => Float16Host })
    .Float16Array;
  if (found !== undefined) return new found(buffer);
  const array = new Uint16Array(buffer);
  standIns.add(array);
  return array as unknown as Float16Host;
}

const bitsOf = ({ buffer }: ArrayBufferView): number[] => Array.from(new Uint16Array(buffer));

const [one, two, half] = [0x3c00, 0x4000, 0x3800];

async function onTwo<T>(program: (comm: Communicator) => Promise<T>, executor = cpu()) {
  const world = await createWorld({ backend: sim({ executor }), size: 2 });
  try {
    return await world.run(program);
  } finally {
    await world.close();
  }
}

test("a call accepts it as float16, in place and beside a buffer", async () => {
  const sums = await onTwo(async (comm) => {
    const send = float16Array([one, half]);
    const sum = await comm.allReduce({ send, op: "sum" });
    expect(sum).toBe(send);
    const { recv } = await comm.allToAllv({ send, sendCounts: [1, 1] });
    expect(recv.dtype).toBe("float16");
    const buffer = comm.alloc("float16", 2);
    await comm.allReduce({
      send: asDType(Uint16Array.of(one, one), "float16"),
      recv: buffer,
      op: "sum",
    });
    return [bitsOf(send), Array.from(await buffer.toHost())];
  });
  expect(sums).toEqual([
    [
      [two, one],
      [two, two],
    ],
    [
      [two, one],
      [two, two],
    ],
  ]);
});

test("a buffer of float16 is copied from it and into it", async () => {
  const copies = await onTwo(async (comm) => {
    const into = float16Array([0, 0]);
    await comm
      .alloc("float16", 2)
      .copyFrom(float16Array([one, two]))
      .copyTo(into);
    return bitsOf(into);
  });
  expect(copies).toEqual([
    [one, two],
    [one, two],
  ]);
});

test("no other dtype accepts it", async () => {
  await onTwo(async (comm) => {
    const array = float16Array([one]) as unknown as Uint16Array;
    const refused = (needs: string) =>
      expect.objectContaining({
        code: "ERR_COMM_ARG",
        message: expect.stringContaining(needs),
      });
    expect(() => comm.alloc("bfloat16", 1).copyFrom(array)).toThrow(
      refused("copyFrom: found Float16Array, bfloat16 needs Uint16Array"),
    );
    await expect(comm.allReduce({ send: asDType(array, "bfloat16"), op: "sum" })).rejects.toEqual(
      refused("bfloat16 needs a Uint16Array, found Float16Array"),
    );
  });
});
