/** The GPUs of this machine, for suites that were asked for by name: without any they fail. */
import { nccl } from "twinccl/nccl";

/** World sizes up to the GPUs that are here. */
export async function gpuSizes(): Promise<readonly [number, ...number[]]> {
  const sizes: number[] = [];
  for (const size of [1, 2, 3, 4, 5, 6, 7, 8]) {
    const probe = await nccl().probe({ size, name: "gpus" });
    if (!probe.ok && size === 1) throw new Error(`these tests need a GPU: ${probe.reason}`);
    if (!probe.ok) break;
    sizes.push(size);
  }
  return sizes as [number, ...number[]];
}
