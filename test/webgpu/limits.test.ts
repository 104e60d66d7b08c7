/** Calls that do not fit: more buffers than bindings, buffers larger than a binding, more work than a grid is wide. */
import { createWorld, dtypes } from "twinccl";
import { cpu, sim } from "twinccl/sim";
import type { WebgpuOptions } from "twinccl/webgpu";
import { expect, test } from "vitest";
import { dtypeInfo } from "../../src/api/dtype.ts";
import { WebgpuExecutor } from "../../src/backends/sim/executors/webgpu/executor.ts";
import { describeWebgpu, sharedDevice, sharedExecutor } from "../support/webgpu.ts";
import { wildBytes } from "../support/wild-bytes.ts";

const size = 6;
/** Longer than the bindings of a limit and its buffers; every binding is a pass of its own, which takes time in software. */
const count = 709;

/** The bits that every rank ends with, of an all-reduce, an all-reduce in place, an all-to-all and a reduce-scatter. */
async function results(backend: ReturnType<typeof sim>): Promise<string[]> {
  const world = await createWorld({ backend, size });
  try {
    const found = await world.run(async (comm) => {
      const { view } = dtypeInfo.float32;
      const values = (seed: number) =>
        view(wildBytes("float32", count * size, seed + comm.rank).buffer, 0, count * size);
      const send = comm.alloc("float32", count * size).copyFrom(values(100) as Float32Array);
      const recv = comm.alloc("float32", count * size);
      const texts: string[] = [];
      const keep = async (): Promise<void> => {
        const { buffer } = await recv.toHost();
        texts.push(Buffer.from(buffer).toString("base64"));
      };
      await comm.allReduce({ send, recv, op: "sum" });
      await keep();
      await comm.allReduce({ send: recv, op: "avg" });
      await keep();
      await comm.allToAll({ send, recv });
      await keep();
      await comm.reduceScatter({ send, recv: recv.subarray(1, count + 1), op: "max" });
      await keep();
      return texts;
    });
    return found.flat();
  } finally {
    await world.close();
  }
}

const settings: readonly (WebgpuOptions & { readonly name: string })[] = [
  { name: "a slab for every buffer", slabBytes: 256 },
  { name: "one binding and a slab for every buffer", slabBytes: 256, limits: { windows: 1 } },
  { name: "three bindings and a slab for every buffer", slabBytes: 256, limits: { windows: 3 } },
  { name: "bindings of 1 KiB", limits: { windowBytes: 1_024, windows: 3 } },
  { name: "bindings of 4 KiB, slabs", slabBytes: 256, limits: { windowBytes: 4_096, windows: 4 } },
  { name: "a grid two groups wide", limits: { gridWidth: 2 } },
  { name: "GPUBuffers of 4 KiB", limits: { bufferBytes: 4_096 } },
  {
    name: "GPUBuffers of 5 KiB and a bit, bindings of 1 KiB",
    limits: { bufferBytes: 5_400, windowBytes: 1_024, windows: 3 },
  },
];

describeWebgpu("within limits", () => {
  test.each(settings)("$name", async ({ name: _, ...options }) => {
    const expected = await results(sim({ executor: cpu() }));
    expect(await results(sim({ executor: await sharedExecutor(options) }))).toEqual(expected);
  });

  test.each(["none", "normal"] as const)("native addition trusted for %s", async (native) => {
    const device = await sharedDevice();
    const executor = new WebgpuExecutor({
      device,
      slabBytes: undefined,
      limits: {},
      keepDevice: false,
      native: { float32: native },
    });
    expect(await results(sim({ executor }))).toEqual(await results(sim({ executor: cpu() })));
  });

  test("a buffer that is larger than a GPUBuffer can be is split into several", async () => {
    const executor = await sharedExecutor({ limits: { bufferBytes: 4_096 } });
    const world = await createWorld({ backend: sim({ executor }), size: 1 });
    await world.run(async (comm) => {
      const small = comm.alloc("float32", 1_024);
      expect(executor.places(small)).toEqual([executor.place(small)]);
      const large = comm.alloc("float32", 2_500).fill(3);
      const places = executor.places(large);
      expect(places.map(({ offset, size }) => [offset, size])).toEqual([
        [0, 4_096],
        [0, 4_096],
        [0, 1_808],
      ]);
      expect(new Set(places.map(({ buffer }) => buffer)).size).toBe(3);
      expect(() => executor.place(large)).toThrow(
        /place: found 10000 bytes in 3 GPUBuffers of .*\nhint: use places\(buffer\)/,
      );
      const across = large.subarray(1_020, 2_060);
      expect(executor.places(across).map(({ offset, size }) => [offset, size])).toEqual([
        [4_080, 16],
        [0, 4_096],
        [0, 48],
      ]);
      expect(executor.place(large.subarray(2_500)).size).toBe(0);
      across.copyFrom(Float32Array.from({ length: 1_040 }, (_, i) => i));
      const found = await large.toHost();
      expect([...found]).toEqual(
        Array.from({ length: 2_500 }, (_, i) => (i < 1_020 || i >= 2_060 ? 3 : i - 1_020)),
      );
      large.dispose();
      // What was used is zero again, in all of its parts.
      expect((await comm.alloc("float32", 2_500).toHost()).every((value) => value === 0)).toBe(
        true,
      );
    });
    await world.close();
  });

  test.each(dtypes)("%s: bytes are written and read where they belong", async (dtype) => {
    const { bytes, view } = dtypeInfo[dtype];
    const executor = await sharedExecutor();
    const world = await createWorld({ backend: sim({ executor }), size: 1 });
    await world.run(async (comm) => {
      const before = comm.alloc(dtype, 33).fill(1);
      before.dispose();
      const buffer = comm.alloc(dtype, 33);
      const expected = new Uint8Array(33 * bytes);
      expect(Buffer.from((await buffer.toHost()).buffer)).toEqual(Buffer.from(expected));
      for (const [begin, end] of [
        [1, 2],
        [3, 10],
        [7, 33],
        [0, 33],
        [30, 31],
      ] as const) {
        const part = wildBytes(dtype, end - begin, begin);
        expected.set(part, begin * bytes);
        const array = view(part.buffer, 0, end - begin);
        buffer.subarray(begin, end).copyFrom(array as never);
        expect(Buffer.from((await buffer.toHost()).buffer)).toEqual(Buffer.from(expected));
      }
    });
    await world.close();
  });
});
