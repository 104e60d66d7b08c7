/** A device for calls on other threads, as the owner of a device gives it. */
import type { CudaCalls } from "../../../../../src/backends/nccl/result/cuda.ts";
import type { ThreadDevice } from "../../../../../src/backends/nccl/sys/background.ts";

/** The device of that number. */
export function deviceOf(cuda: CudaCalls, index: number): ThreadDevice {
  return { ...cuda.threadDevice(index), setHere: () => cuda.setDevice(index) };
}
