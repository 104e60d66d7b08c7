/** Every way in which a device's own addition may be used gives cpu()'s bits where the probe trusts it. */
import { createWorld, type DType } from "twinccl";
import { cpu, sim } from "twinccl/sim";
import { type NativeAdds, WebgpuExecutor } from "twinccl/webgpu";
import { expect, test } from "vitest";
import { dtypeInfo } from "../../src/api/dtype.ts";
import { foreignDevice } from "../../src/backends/sim/executors/webgpu/device.ts";
import { isTrustworthy, nativeAddsOf } from "../../src/backends/sim/executors/webgpu/probe.ts";
import { arithmeticOf } from "../../src/backends/sim/executors/webgpu/wgsl/arithmetic.ts";
import { foldKernel } from "../../src/backends/sim/executors/webgpu/wgsl/kernel.ts";
import { adapter, describeWebgpu, sharedDevice } from "../support/webgpu.ts";
import { wildBytes } from "../support/wild-bytes.ts";

const size = 7;
const count = 20_011;
const device = adapter.ok ? await sharedDevice() : undefined;
const wary: NativeAdds = { float32: "none", bfloat16: "none", float16: "none" };
const forms = ["halves", "converted", "all", "normal", "none"] as const;

/** Sums and averages in both alignments, as bytes of every rank. */
async function results(backend: ReturnType<typeof sim>, dtype: DType): Promise<string[]> {
  const world = await createWorld({ backend, size });
  const found = await world.run(async (comm) => {
    const bytes = wildBytes(dtype, count + 1, comm.rank);
    const values = dtypeInfo[dtype].view(bytes.buffer, 0, count + 1);
    const send = comm.alloc(dtype, count + 1).copyFrom(values as never);
    const recv = comm.alloc(dtype, count);
    const texts: string[] = [];
    for (const begin of [0, 1]) {
      for (const op of ["sum", "avg"] as const) {
        await comm.allReduce({ send: send.subarray(begin, begin + count), recv, op });
        texts.push(Buffer.from((await recv.toHost()).buffer).toString("base64"));
      }
    }
    return texts;
  });
  await world.close();
  return found.flat();
}

describeWebgpu("a device's own addition", () => {
  const cases = (["float32", "bfloat16", "float16"] as const).flatMap((dtype) =>
    forms
      .filter((form) => dtype === "float16" || (form !== "halves" && form !== "converted"))
      .filter((form) => form !== "halves" || device?.features.has("shader-f16") === true)
      .map((form) => ({ dtype, form })),
  );
  test.each(cases)("$dtype, $form, where it is trusted", async ({ dtype, form }) => {
    const natives: NativeAdds = { ...wary, [dtype]: form };
    const trusted = await isTrustworthy(foreignDevice(await sharedDevice(), {}), dtype, natives);
    if (form === "none") expect(trusted).toBe(true);
    const executor = new WebgpuExecutor({
      ...{ device, slabBytes: undefined, limits: {}, keepDevice: false, native: natives },
    });
    const [own, reference] = [
      await results(sim({ executor }), dtype),
      await results(sim({ executor: cpu() }), dtype),
    ];
    // Where the probe finds a difference there may be one in any input; where it finds none there is none.
    if (trusted) expect(own).toEqual(reference);
  });

  if (adapter.reason.includes("SwiftShader")) {
    // It flushes subnormals, which no sum of halves meets in float32.
    test("limits of SwiftShader", async () => {
      expect(await nativeAddsOf(foreignDevice(await sharedDevice(), {}))).toEqual({
        float32: "normal",
        bfloat16: "normal",
        float16: "all",
      });
    });
  }

  test("kernels that add halves are valid where a device has them", async () => {
    const { create } = await import("webgpu");
    const gpu = create(["backend=null"]);
    const none = (await gpu.requestAdapter()) as GPUAdapter;
    const device = await none.requestDevice({ requiredFeatures: ["shader-f16"] });
    device.pushErrorScope("validation");
    for (const kind of ["sum", "scaled"] as const) {
      for (const access of ["wide", "narrow"] as const) {
        const operation = { dtype: "float16", kind, fused: "none" } as const;
        const code = foldKernel(arithmeticOf(operation, "halves"), access, 2);
        const module = device.createShaderModule({ code });
        device.createComputePipeline({ layout: "auto", compute: { module, entryPoint: "main" } });
      }
    }
    expect((await device.popErrorScope())?.message).toBeUndefined();
    device.destroy();
  });
});
