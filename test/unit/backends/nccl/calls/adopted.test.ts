/** Device memory of other code as buffers: used by calls, checked, and left to its owner. */
import type { CommError, Communicator } from "twinccl";
import { describe, expect, test } from "vitest";
import type { FakeGpus } from "../../../../support/fake-gpus/index.ts";
import { quickTime } from "../../../../support/quick-time.ts";
import { cleanGpus, inWorld, turns } from "../gpus.ts";

quickTime();

/** Memory as another library would make it. */
function foreign({ machine }: FakeGpus, device: number, bytes: number): bigint {
  return machine.memory.allocate(bytes, device);
}

const errorOf = (body: () => unknown): CommError => {
  try {
    body();
  } catch (error) {
    return error as CommError;
  }
  throw new Error("nothing was thrown");
};

describe("adopted memory", () => {
  test("takes part in calls and copies with its contents, and outlives its buffer", async () => {
    const gpus = cleanGpus();
    const owned = [0, 1].map((device) => foreign(gpus, device, 16));
    for (const [device, ptr] of owned.entries()) {
      gpus.machine.memory.range(ptr, 16, device).fill(device + 1);
    }
    await inWorld(gpus, 2, async (world) => {
      const seen = await world.run(async (comm) => {
        const ptr = owned[comm.rank] as bigint;
        const whole = comm.adopt(ptr, "uint8", 16);
        const half = comm.adopt(ptr + 8n, "uint8", 8);
        expect([whole.ptr, whole.device, whole.byteLength]).toEqual([ptr, comm.device, 16]);
        const sum = comm.alloc("uint8", 8);
        await comm.allReduce({ send: half, recv: sum, op: "sum" });
        await comm.allReduce({ send: whole.subarray(0, 8), op: "prod" });
        half.fill(9);
        const held = await whole.toHost();
        for (const buffer of [whole, half, whole]) buffer.dispose();
        expect(() => whole.fill(1)).toThrow(/disposed/);
        return [...(await sum.toHost()).subarray(0, 1), ...held];
      });
      for (const each of seen) expect(each).toEqual([3, ...Array(8).fill(2), ...Array(8).fill(9)]);
    });
    for (const [device, ptr] of owned.entries()) {
      expect(gpus.machine.memory.range(ptr, 16, device)[15]).toBe(9);
      gpus.machine.memory.free(ptr);
    }
  });

  test.each([
    [
      "of another device",
      (gpus: FakeGpus) => foreign(gpus, 1, 64),
      16,
      /memory of cuda:1, needs memory of cuda:0/,
    ],
    [
      "of the host",
      (gpus: FakeGpus) => gpus.machine.memory.allocate(64, "host"),
      16,
      /page-locked memory of the host/,
    ],
    ["that is none", () => 0x1234n * 4n, 16, /ptr 0x48d0: it is no memory that CUDA knows/],
    [
      "that ends too early",
      (gpus: FakeGpus) => foreign(gpus, 0, 64),
      17,
      /ptr 0x[0-9a-f]+: the last of the 68 bytes there is no memory that CUDA knows/,
    ],
  ])("%s is refused by name", async (_, memory, length, message) => {
    const gpus = cleanGpus();
    const ptr = memory(gpus);
    await inWorld(gpus, 1, async (world) => {
      await world.run((comm) => {
        const error = errorOf(() => comm.adopt(ptr, "float32", length));
        expect(error.message).toMatch(message);
        expect(error).toMatchObject({ code: "ERR_COMM_ARG", field: "ptr", rank: 0 });
      });
    });
    if (gpus.machine.memory.at(ptr) !== undefined) gpus.machine.memory.free(ptr);
  });

  test.each<[unknown, RegExp]>([
    [4096, /ptr: found 4096, needs an address, as a bigint/],
    [0n, /ptr: found 0, needs an address/],
    [-16n, /ptr: found -16/],
    [1n << 64n, /needs an address of device memory/],
    [4098n, /found 0x1002, needs a multiple of 4, the bytes of float32/],
  ])("is refused at the address %s", async (ptr, message) => {
    await inWorld(cleanGpus(), 1, async (world) => {
      await world.run((comm) => {
        expect(() => comm.adopt(ptr as bigint, "float32", 1)).toThrow(message);
        expect(() => comm.adopt(4096n, "float31" as "float32", 1)).toThrow(/is no dtype/);
        expect(() => comm.adopt(4096n, "float32", -1)).toThrow(/found length -1/);
      });
    });
  });

  test("is compared by address: overlaps are refused, in place is recognised", async () => {
    const gpus = cleanGpus();
    await inWorld(gpus, 2, async (world) => {
      const sums = await world.run(async (comm: Communicator) => {
        const data = comm.alloc("int32", 8).fill(comm.rank + 1);
        const shifted = comm.adopt(data.ptr + 4n, "int32", 7);
        const wrong = comm.allReduce({ send: data.subarray(0, 7), recv: shifted, op: "sum" });
        await expect(wrong).rejects.toThrow(/recv: it overlaps send in 24 bytes/);
        const apart = comm.adopt(data.ptr + 16n, "int32", 4);
        await comm.allReduce({ send: data.subarray(0, 4), recv: apart, op: "sum" });
        const same = comm.adopt(data.ptr, "int32", 8);
        await comm.allReduce({ send: same, recv: data, op: "sum" });
        return [...(await data.toHost())];
      });
      for (const sum of sums) expect(sum).toEqual([3, 3, 3, 3, 6, 6, 6, 6]);
    });
  });

  test("may not be the rank's symmetric memory, which NCCL knows by its address", async () => {
    const gpus = cleanGpus();
    await inWorld(gpus, 2, async (world) => {
      await world.run(async (comm: Communicator) => {
        const symmetric = comm.alloc("float16", 1000, { symmetric: true });
        const { ptr } = symmetric;
        const before = comm.alloc("float16", 8);
        const inside = /reaches into symmetric memory of this rank, 2000 bytes at 0x[0-9a-f]+/;
        // At its start, within it, at its last byte, behind it in its last page; empty too.
        for (const offset of [0n, 2n, 1998n, 2000n, 4094n]) {
          const error = errorOf(() => comm.adopt(ptr + offset, "float16", 1));
          expect(error.message).toMatch(inside);
          expect(error).toMatchObject({ code: "ERR_COMM_ARG", field: "ptr", rank: comm.rank });
        }
        expect(() => comm.adopt(ptr + 2n, "float16", 0)).toThrow(inside);
        expect(() => comm.adopt(ptr - 2n, "float16", 2)).toThrow(inside);
        // Its subarray is refused for what it is, and what lies beside it is taken.
        const odd = symmetric.subarray(1);
        await expect(comm.allReduce({ send: odd, op: "sum" })).rejects.toMatchObject({
          code: "ERR_COMM_UNSUPPORTED",
          message: expect.stringContaining("multiple of 4"),
        });
        const beside = comm.adopt(before.ptr + 2n, "float16", 7);
        await comm.allReduce({ send: beside, op: "sum" });
        symmetric.dispose();
        await comm.barrier();
        await turns();
        expect(() => comm.adopt(ptr, "float16", 1)).toThrow(/no memory that CUDA knows/);
      });
    });
  });
});
