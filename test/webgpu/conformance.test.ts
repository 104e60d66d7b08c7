/** The shared suite, on the simulation with its memory on a device. */
import { sim } from "twinccl/sim";
import { webgpu } from "twinccl/webgpu";
import { worldsConform } from "../conformance/worlds.ts";
import { adapter, describeWebgpu, sharedDevice } from "../support/webgpu.ts";

const device = adapter.ok ? await sharedDevice() : undefined;
const executor = webgpu(device && { device });

describeWebgpu("on WebGPU", () => {
  worldsConform({
    name: "sim(webgpu)",
    keepsWorlds: true,
    backend: () => sim({ executor }),
    sizes: [1, 2, 3, 8],
    capabilities: {
      hostArrays: true,
      virtualTime: true,
      deterministic: true,
      symmetricMemory: true,
      ownStreams: true,
    },
  });
});
