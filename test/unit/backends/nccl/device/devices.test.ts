/** Machines on which CUDA sees no GPU, or has no driver that it can use: the backend is not there, and says why. */
import { BackendUnavailableError } from "twinccl";
import { expect, test } from "vitest";
import { visibleDevices } from "../../../../../src/backends/nccl/devices.ts";
import type { Libraries } from "../../../../../src/backends/nccl/discovery/libraries.ts";
import { cudaError } from "../../../../support/fake-gpus/index.ts";

/** The backend's result for a count of CUDA's. */
function seen(deviceCount: () => number): ReturnType<typeof visibleDevices> {
  return visibleDevices({}, async () => ({ cuda: { deviceCount } }) as unknown as Libraries);
}

function failing(error: unknown): () => never {
  return () => {
    throw error;
  };
}

test.each([
  [100, "cudaErrorNoDevice", /CUDA_VISIBLE_DEVICES/],
  [35, "cudaErrorInsufficientDriver", /driver/],
])("status %i, %s, keeps the backend from being used", async (status, name, hint) => {
  const cause = cudaError("cudaGetDeviceCount", status, name);
  const unusable = seen(failing(cause));
  await expect(unusable).rejects.toBeInstanceOf(BackendUnavailableError);
  await expect(unusable).rejects.toMatchObject({
    ...{ field: "devices", cause, hint: expect.stringMatching(hint) },
    message: expect.stringContaining(`nccl: cudaGetDeviceCount: ${name} (${status})`),
  });
});

test("another error stays unchanged, and a count stays a count", async () => {
  const broken = new TypeError("broken");
  await expect(seen(failing(broken))).rejects.toBe(broken);
  await expect(seen(() => 3)).resolves.toMatchObject({ visible: 3 });
});
