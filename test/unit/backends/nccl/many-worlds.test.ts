/** A warning for a separate world in each of a launcher's processes, given once. */

import { createWorld } from "twinccl";
import type { OpenRequest } from "twinccl/backend";
import { beforeEach, expect, onTestFinished, test, vi } from "vitest";
import { placesFor } from "../../../../src/backends/nccl/devices.ts";
import { fakeGpus } from "../../../support/fake-gpus/index.ts";

const { setup } = fakeGpus();
vi.doMock("../../../../src/backends/nccl/devices.ts", async (original) => ({
  ...(await original<object>()),
  rankPlaces: (options: object, request: OpenRequest) => ({
    libraries: setup.libraries,
    places: placesFor(options, request),
  }),
}));

beforeEach(() => vi.resetModules());

/** The output of a process that opens two worlds of two GPUs, started with these variables. */
async function said(variables: Readonly<Record<string, string>>, devices?: readonly number[]) {
  for (const [name, value] of Object.entries(variables)) vi.stubEnv(name, value);
  const warn = vi.spyOn(process, "emitWarning").mockReturnValue(undefined);
  onTestFinished(() => {
    vi.unstubAllEnvs();
    warn.mockRestore();
  });
  const { nccl } = await import("../../../../src/backends/nccl/index.ts");
  for (let world = 0; world < 2; world++) {
    const opened = await createWorld({ backend: nccl({ ...(devices && { devices }) }), size: 2 });
    await opened.close();
  }
  return warn.mock.calls;
}

const launched = (size: number): Record<string, string> => ({
  ...{ TWINCCL_RANK: "0", TWINCCL_SIZE: String(size), TWINCCL_LOCAL_RANK: "0" },
  TWINCCL_JOB_ID: "test",
});

test("one of four processes warns with the alternative, once", async () => {
  const calls = await said(launched(4));
  expect(calls).toEqual([
    [
      expect.stringMatching(/one of 4 processes .* first 2 GPUs that it sees .*use connect\(/),
      { type: "TwincclLaunch", code: "ERR_COMM_ARG" },
    ],
  ]);
});

test("torchrun's warn as well", async () => {
  const place = { RANK: "1", WORLD_SIZE: "2", LOCAL_RANK: "1" };
  const master = { MASTER_ADDR: "127.0.0.1", MASTER_PORT: "29500" };
  expect(await said({ ...place, ...master })).toHaveLength(1);
});

test.each([
  ["a process by itself", {}, undefined],
  ["the only one of a job", launched(1), undefined],
  ["one that says which GPUs it has", launched(4), [0, 1]],
  ["one with half of a launcher's variables", { RANK: "0", WORLD_SIZE: "4" }, undefined],
])("%s gives no warning", async (_, variables, devices) => {
  expect(await said(variables, devices)).toEqual([]);
});
