/** A session's calls to an executor that holds memory itself. */
import { createWorld, firstAvailable } from "twinccl";
import { cpu, type Executor, HostMemory, type SimMemory, sim } from "twinccl/sim";
import { expect, test } from "vitest";

/** An executor that logs its calls. */
function writing(log: string[], ok = true): Executor {
  const { execute } = cpu();
  return {
    name: "writing",
    execute,
    probe: () => ({ ok, reason: "as the test says" }),
    open: async (size) => {
      await Promise.resolve();
      log.push(`open ${size}`);
    },
    allocate: (device, ptr, byteLength): SimMemory => {
      log.push(`allocate ${device} ${byteLength} ${ptr % 256n}`);
      return new HostMemory(device, ptr, new ArrayBuffer(byteLength), false);
    },
    close: async () => {
      await Promise.resolve();
      log.push("close");
    },
  };
}

test("an executor is opened before its first allocation and closed once, after the last", async () => {
  const log: string[] = [];
  const world = await createWorld({ backend: sim({ executor: writing(log) }), size: 2 });
  const sums = await world.run(async (comm) => {
    const buffer = comm.alloc("int32", 3).fill(comm.rank + 1);
    await comm.allReduce({ send: buffer, op: "sum" });
    return buffer.toHost();
  });
  await world.close();
  await world.close();
  expect(sums.map((sum) => [...sum])).toEqual([
    [3, 3, 3],
    [3, 3, 3],
  ]);
  expect(log[0]).toBe("open 2");
  expect(log.slice(1, -1).sort()).toEqual(["allocate sim:0 12 0", "allocate sim:1 12 0"]);
  expect(log.at(-1)).toBe("close");
});

test("a rebuilt world opens its executor again", async () => {
  const log: string[] = [];
  const world = await createWorld({ backend: sim({ executor: writing(log) }), size: 3 });
  const smaller = await world.rebuild({ without: [1] });
  await smaller.close();
  expect(log).toEqual(["open 3", "close", "open 2", "close"]);
});

test("a simulation with an executor that cannot be opened is skipped", async () => {
  const log: string[] = [];
  const backend = firstAvailable(sim({ executor: writing(log, false) }), sim());
  const world = await createWorld({ backend, size: 1 });
  expect(world.selection.map(({ ok }) => ok)).toEqual([false, true]);
  await world.close();
  expect(log).toEqual([]);
});

test("a fingerprint distinguishes contents and ranges", () => {
  const memory = new HostMemory("sim:0", 0n, new ArrayBuffer(16), false);
  const [low, high] = [memory.fingerprint(0, 8), memory.fingerprint(8, 8)];
  memory.write(8, Uint8Array.of(1));
  expect(memory.fingerprint(0, 8)).toBe(low);
  expect(memory.fingerprint(8, 8)).not.toBe(high);
});
