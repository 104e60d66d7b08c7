/**
 * The objects of the NCCL backend above its native calls, on fakes of CUDA and NCCL in memory. No GPU and no library is
 * tried here: that is what `test/gpu` does.
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
  name: "nccl on fakes of CUDA and NCCL",
  backend: () => {
    const gpus = fakeGpus();
    machines.push(gpus);
    return gpus.backend();
  },
  sizes: someSizes,
  foldsAsExplained: false,
  capabilities: {
    hostArrays: false,
    virtualTime: false,
    deterministic: true,
    symmetricMemory: true,
    ownStreams: true,
  },
});
