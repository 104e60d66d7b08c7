/** Who gives a stream has CUDA code of its own: that is known from the first call on, before anybody asks for the stream. */
import { expect, test } from "vitest";
import { cleanGpus, inWorld } from "./gpus.ts";

test("the thread's device is set again for every call, whoever switched it in between", async () => {
  const gpus = cleanGpus();
  // Of somebody else: it lives before and after the world.
  const { cuda } = gpus.setup.libraries;
  cuda.setDevice(0);
  const stream = cuda.streamCreate();
  await inWorld(
    gpus,
    1,
    async (world) => {
      const homes = await world.run((comm) =>
        [5, 6, 7].map((device) => {
          gpus.machine.current = device;
          return gpus.machine.memory.at(comm.alloc("int32", 4).ptr)?.home;
        }),
      );
      expect(homes).toEqual([[0, 0, 0]]);
    },
    [0],
    [stream],
  );
  cuda.streamDestroy(stream);
});
