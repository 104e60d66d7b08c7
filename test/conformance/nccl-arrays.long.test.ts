/**
 * TypedArrays in calls of the NCCL backend, copied to fake GPUs and back (`staging: "copy"`): the same suite, with arrays in
 * place of buffers wherever a program may have them.
 */
import { afterEach, expect } from "vitest";
import { type FakeGpus, fakeGpus } from "../support/fake-gpus/index.ts";
import { someSizes } from "./sizes.ts";
import { worldsConform } from "./worlds.ts";

const machines: FakeGpus[] = [];

afterEach(() => {
  for (const { machine } of machines.splice(0)) {
    expect(machine.complaints).toEqual([]);
    expect(machine.stuck()).toEqual([]);
    expect(machine.leaks()).toEqual([]);
  }
});

worldsConform({
  name: "nccl with copied arrays on fakes of CUDA and NCCL",
  backend: () => {
    const gpus = fakeGpus({ staging: "copy" });
    machines.push(gpus);
    return gpus.backend();
  },
  sizes: someSizes,
  foldsAsExplained: false,
  capabilities: {
    hostArrays: true,
    virtualTime: false,
    deterministic: true,
    symmetricMemory: true,
    ownStreams: true,
  },
});
