/**
 * What a device's own float32 addition is good for, found out by trying it on hard cases.
 *
 * WGSL lets a device flush subnormals, round either way, assume that there is no NaN, and regroup sums. So the very
 * kernels that would use its addition fold chains of eight, and every result is compared with the arithmetic of cpu().
 */
import { type Fold, foldFor, lanesOf } from "../../../../algorithms/arithmetic/index.ts";
import type { DType } from "../../../../api/index.ts";
import type { OpenDevice } from "./device.ts";
import type { Job } from "./jobs.ts";
import { moved } from "./jobs.ts";
import { Machine } from "./machine.ts";
import { probeWords } from "./probe-words.ts";
import { Recording } from "./recording.ts";
import type { NativeAdd } from "./wgsl/float-native.ts";
import { operationOf } from "./wgsl/operation.ts";

/** Contributions of a chain. */
const depth = 8;

/** Dtypes whose sums use float32. */
const dtypes: readonly DType[] = ["float32", "float16", "bfloat16"];

const known = new WeakMap<GPUDevice, Promise<NativeAdd>>();

/** The most that a device's addition can be trusted with. */
export function nativeAddOf(device: OpenDevice): Promise<NativeAdd> {
  let found = known.get(device.device);
  if (found === undefined) {
    found = best(device);
    known.set(device.device, found);
  }
  return found;
}

async function best(device: OpenDevice): Promise<NativeAdd> {
  for (const native of ["all", "normal"] as const) {
    let right = true;
    for (const dtype of dtypes) right &&= await isRight(device, dtype, native);
    if (right) return native;
  }
  return "none";
}

/** Whether kernels with that much trust give the bits of cpu(). */
async function isRight(device: OpenDevice, dtype: DType, native: NativeAdd): Promise<boolean> {
  const machine = new Machine(device, undefined, native);
  const inputs = Array.from({ length: depth }, (_, k) => probeWords(dtype, k));
  const bytes = (inputs[0] as Uint32Array).byteLength;
  const range = machine.slabs.allocate((depth + 1) * bytes, false);
  const target = moved(range, depth * bytes);
  const fold = foldFor(dtype, "sum", depth, "fused");
  const job: Job = {
    level: 0,
    copy: false,
    operands: inputs.map((_, k) => ({
      spot: moved(range, k * bytes),
      kind: "contribution",
      scalar: [0, 0],
    })),
    targets: [target],
    bytes,
    place: 0,
    final: true,
  };
  const task = { operation: operationOf(fold, undefined), divisor: 1 };
  const recording = new Recording(machine, task, () => [job]);
  inputs.forEach((words, k) => {
    machine.upload(moved(range, k * bytes), new Uint8Array(words.buffer));
  });
  const found = await machine.download(
    range.slab,
    target.offset,
    target.offset + bytes,
    (encoder) => recording.encode(encoder),
  );
  const expected = folded(fold, inputs);
  let right = true;
  found((own) => {
    right = own.every((byte, i) => byte === expected[i]);
  });
  recording.close();
  machine.slabs.close();
  return right;
}

/** The same fold on the host. */
function folded(fold: Fold, inputs: readonly Uint32Array<ArrayBuffer>[]): Uint8Array {
  const bytes = (inputs[0] as Uint32Array).byteLength;
  const result = new ArrayBuffer(bytes);
  const lanes = lanesOf(fold.dtype, result, 0, bytes);
  const sources = inputs.map(({ buffer }) => lanesOf(fold.dtype, buffer, 0, bytes));
  fold.chain(
    lanes,
    0,
    sources,
    inputs.map(() => 0),
    lanes.length,
  );
  fold.finish(lanes, 0, lanes.length);
  return new Uint8Array(result);
}
