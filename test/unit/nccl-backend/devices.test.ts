/** Machines on which CUDA sees no GPU, or has no driver that it can use: the backend is not there, and says why. */
import { BackendUnavailableError } from "twinccl";
import { expect, test } from "vitest";
import { countDevices } from "../../../src/backends/nccl/devices.ts";
import type { Libraries } from "../../../src/backends/nccl/discovery/libraries.ts";
import { cudaError } from "../../support/fake-gpus/index.ts";

const seeing = (deviceCount: () => number): Libraries =>
  ({ cuda: { deviceCount } }) as unknown as Libraries;

test.each([
  [100, "cudaErrorNoDevice", /CUDA_VISIBLE_DEVICES/],
  [35, "cudaErrorInsufficientDriver", /driver/],
])("status %i, %s, keeps the backend from being used", (status, name, hint) => {
  const cause = cudaError("cudaGetDeviceCount", status, name);
  const count = (): number =>
    countDevices(
      seeing(() => {
        throw cause;
      }),
    );
  expect(count).toThrow(BackendUnavailableError);
  expect(count).toThrow(
    expect.objectContaining({
      ...{ code: "ERR_COMM_BACKEND", cause, hint: expect.stringMatching(hint) },
      message: expect.stringContaining(`nccl: cudaGetDeviceCount: ${name} (${status})`),
    }),
  );
});

test("what is no word of CUDA's is nobody else's either", () => {
  const broken = new TypeError("broken");
  const count = (): number =>
    countDevices(
      seeing(() => {
        throw broken;
      }),
    );
  expect(count).toThrow(broken);
  expect(countDevices(seeing(() => 3))).toBe(3);
});
