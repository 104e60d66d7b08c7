/** The text of kernels: nothing in it depends on a device. A changed kernel shows as a changed snapshot. */
import { expect, test } from "vitest";
import { arithmeticOf } from "../../../../src/backends/sim/executors/webgpu/wgsl/arithmetic.ts";
import type { NativeAdd } from "../../../../src/backends/sim/executors/webgpu/wgsl/float-sum.ts";
import { foldKernel } from "../../../../src/backends/sim/executors/webgpu/wgsl/kernel.ts";
import {
  copying,
  type Operation,
} from "../../../../src/backends/sim/executors/webgpu/wgsl/operation.ts";

const operations: readonly (readonly [Operation, NativeAdd])[] = [
  [{ dtype: "float32", kind: "sum", fused: "none" }, "all"],
  [{ dtype: "bfloat16", kind: "sum", fused: "none" }, "normal"],
  [{ dtype: "float16", kind: "sum", fused: "none" }, "halves"],
  [{ dtype: "float16", kind: "sum", fused: "none" }, "converted"],
  [{ dtype: "float16", kind: "sum", fused: "none" }, "all"],
  [{ dtype: "float16", kind: "scaled", fused: "all" }, "none"],
  [{ dtype: "float8e4m3", kind: "wide", fused: "none" }, "normal"],
  [{ dtype: "float64", kind: "scaled", fused: "byPosition" }, "none"],
  [{ dtype: "int64", kind: "average", fused: "none" }, "none"],
  [{ dtype: "uint8", kind: "max", fused: "none" }, "none"],
];

test("copies", async () => {
  const arithmetic = arithmeticOf(copying, "none");
  await expect(foldKernel(arithmetic, "wide", 1)).toMatchFileSnapshot("kernels/copy-wide.wgsl");
  await expect(foldKernel(arithmetic, "narrow", 3)).toMatchFileSnapshot(
    "kernels/copy-narrow-3.wgsl",
  );
});

test.each(operations)("%o, native addition %s", async (operation, native) => {
  const { dtype, kind } = operation;
  const arithmetic = arithmeticOf(operation, native);
  const path = `kernels/${dtype}-${kind}-${native}`;
  await expect(foldKernel(arithmetic, "wide", 2)).toMatchFileSnapshot(`${path}-wide.wgsl`);
  await expect(foldKernel(arithmetic, "narrow", 1)).toMatchFileSnapshot(`${path}-narrow.wgsl`);
});
