/** A given stream means CUDA code of the caller: that is known from the first call on, before `comm.stream` is read. */
import { expect, test } from "vitest";
import { cleanGpus, inWorld } from "../gpus.ts";

test("the thread's device is set again for every call, whatever code switched it in between", async () => {
  const gpus = cleanGpus();
  // A stream of the caller: it lives before and after the world.
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
