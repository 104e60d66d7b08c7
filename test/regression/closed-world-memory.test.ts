/** Memory that a closed world holds for as long as it is referenced, and an open one of communicators that are over. */
import { setFlagsFromString } from "node:v8";
import { runInNewContext } from "node:vm";
import { type Communicator, createWorld } from "twinccl";
import { sim } from "twinccl/sim";
import { expect, test } from "vitest";
import type { LocalWorld } from "../../src/api/world/local-world.ts";

setFlagsFromString("--expose-gc");
const collectGarbage = runInNewContext("gc") as () => void;

test("a run kept aborted communicators of splits with errors that the program had handled late", async () => {
  const world = await createWorld({ backend: sim(), size: 2 });
  const causes: WeakRef<Error>[] = [];
  await world.run(async (comm) => {
    for (let each = 0; each < 20; each++) {
      const child = (await comm.split({ color: 0 })) as Communicator;
      if (comm.rank === 0) {
        const cause = new Error("enough");
        causes.push(new WeakRef(cause));
        const open = child.barrier();
        child.abort(cause);
        await open.catch(() => undefined);
      }
      await comm.barrier();
    }
    await new Promise((resolve) => setImmediate(resolve));
    collectGarbage();
    const kept = causes.filter((cause) => cause.deref() !== undefined);
    // The last one or two may still be on the stack.
    expect(kept.length).toBeLessThan(3);
  });
  await world.close();
});

test("a closed world kept the communicators of splits that were not closed", async () => {
  const world = (await createWorld({ backend: sim(), size: 3 })) as LocalWorld;
  const kept: Communicator[] = [];
  await world.run(async (comm) => {
    for (let each = 0; each < 20; each++) {
      const child = (await comm.split({ color: comm.rank % 2 })) as Communicator;
      await child.barrier();
      kept.push(child);
    }
  });
  expect(world.openCommunicators).toBe(41);
  await world.close();
  expect(world.openCommunicators).toBe(1);
  // What is still in use says why it is over, and the world explains calls.
  const child = kept[0] as Communicator;
  await expect(child.barrier()).rejects.toMatchObject({ code: "ERR_COMM_CLOSED" });
  child.abort();
  await child.close();
  expect(world.explain({ collective: "barrier" }).collective).toBe("barrier");
  await expect(world.estimate({ collective: "barrier" })).rejects.toMatchObject({
    code: "ERR_COMM_CLOSED",
  });
});

test("a world that was closed with calls open kept them", async () => {
  const world = (await createWorld({ backend: sim(), size: 2 })) as LocalWorld;
  const errors: unknown[] = [];
  const running = world.run(async (comm) => {
    const child = (await comm.split({ color: 0 })) as Communicator;
    if (comm.rank === 0) await child.barrier().catch((error: unknown) => errors.push(error));
    else await world.close();
  });
  await running;
  await world.close();
  expect(errors).toEqual([expect.objectContaining({ code: "ERR_COMM_CLOSED" })]);
  expect(world.openCommunicators).toBe(1);
});
