/** The GPUs of this machine, for suites that were requested by name: without any they fail. */
import { nccl } from "twinccl/nccl";
import { describe, test } from "vitest";

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

/** A test that needs so many GPUs; with fewer it is skipped under a title that says so. */
export function testOn(needed: number, found: number) {
  return (title: string, body: () => Promise<void>): void => {
    if (found >= needed) test(title, body);
    else test.skip(skippedTitle(needed, found, title), body);
  };
}

/** The same for a whole suite. */
export function describeOn(needed: number, found: number) {
  return (title: string, body: () => void): void => {
    if (found >= needed) describe(title, body);
    else describe.skip(skippedTitle(needed, found, title), () => test(title, () => undefined));
  };
}

/** Prints that a title is skipped; gives the title that says why. */
function skippedTitle(needed: number, found: number, title: string): string {
  process.stderr.write(`skipped, needs ${needed} GPUs, ${found} are here: ${title}\n`);
  return `${title} (needs ${needed} GPUs, ${found} are here)`;
}
