/** Uses after the end: of a program, a run, a communicator, a world. Typed errors, and what still works. */

import {
  type CommError,
  type Communicator,
  connect,
  createWorld,
  type DeviceBuffer,
  WorldError,
} from "twinccl";
import { sim } from "twinccl/sim";
import { describe, expect, test } from "vitest";
import { expectHealthy, within } from "../../support/planted.ts";

const code = (error: unknown): string => (error as CommError).code;
const codeOf = (op: PromiseLike<unknown>): PromiseLike<string> => op.then(() => "ok", code);

describe("a communicator", () => {
  test("refuses calls and allocations before and after a run", async () => {
    const world = await createWorld({ backend: sim(), size: 2 });
    const kept: Communicator[] = [];
    await world.run((comm) => {
      kept.push(comm);
    });
    for (const comm of kept) {
      expect(await codeOf(comm.barrier())).toBe("ERR_COMM_CLOSED");
      expect(() => comm.alloc("int8", 1)).toThrowError(/no run is going on|has returned/);
    }
    await world.close();
    for (const comm of kept) expect(await codeOf(comm.barrier())).toBe("ERR_COMM_CLOSED");
  });

  test("refuses the calls of a rank with a program that has returned", async () => {
    const world = await createWorld({ backend: sim(), size: 2 });
    const late: { op?: Promise<string> } = {};
    await world.run(async (comm) => {
      if (comm.rank === 0) {
        setTimeout(() => {
          late.op = Promise.resolve(codeOf(comm.barrier()));
        }, 2);
        return;
      }
      while (late.op === undefined) await new Promise((resolve) => setTimeout(resolve, 1));
    });
    expect(await late.op).toBe("ERR_COMM_CLOSED");
    await expectHealthy(world);
    await world.close();
  });

  test("refuses calls after its close, and finishes its own before", async () => {
    const world = await createWorld({ backend: sim(), size: 2 });
    const results = await world.run(async (comm) => {
      const op = comm.barrier();
      await comm.close();
      await comm.close();
      return [op.status, await codeOf(comm.barrier())];
    });
    expect(results).toEqual([
      ["done", "ERR_COMM_CLOSED"],
      ["done", "ERR_COMM_CLOSED"],
    ]);
    await world.close();
  });

  test("that a program closed is open again in the world's next run", async () => {
    const world = await createWorld({ backend: sim(), size: 2 });
    await world.run((comm) => comm.close());
    await expectHealthy(world);
    await world.close();
  });

  test("of one rank: closing it closes everything, twice is fine", async () => {
    const comm = await connect({ backend: sim() });
    const buffer = comm.alloc("float32", 2).fill(3);
    await comm.allReduce({ send: buffer, op: "avg" });
    expect(Array.from(await buffer.toHost())).toEqual([3, 3]);
    await comm.close();
    await comm.close();
    expect(await codeOf(comm.barrier())).toBe("ERR_COMM_CLOSED");
    expect(() => comm.alloc("int8", 1)).toThrowError(/closed/);
  });
});

describe("a world", () => {
  test("refuses a second run during the first", async () => {
    const world = await createWorld({ backend: sim(), size: 2 });
    const inner: unknown[] = [];
    await world.run(async (comm) => {
      if (comm.rank === 0) await world.run(() => 0).catch((error) => inner.push(error));
      await comm.barrier();
    });
    expect(inner).toMatchObject([{ code: "ERR_COMM_CLOSED" }]);
    expect(String(inner[0])).toMatch(/running already/);
    await expectHealthy(world);
    await world.close();
  });

  test("refuses a program that is not a function", async () => {
    const world = await createWorld({ backend: sim(), size: 2 });
    const run = world.run("program" as never);
    await expect(run).rejects.toMatchObject({ code: "ERR_COMM_ARG", field: "program" });
    await expectHealthy(world);
    await world.close();
  });

  test("refuses a run once it is closed; closing again is fine", async () => {
    const world = await createWorld({ backend: sim(), size: 2, name: "gone" });
    await world.close();
    await world.close();
    await world[Symbol.asyncDispose]();
    await expect(world.run(() => 0)).rejects.toMatchObject({ code: "ERR_COMM_CLOSED" });
    await expect(world.run(() => 0)).rejects.toThrow(/"gone" was closed/);
  });

  test("closed in the middle of a run fails open calls, by name", async () => {
    const world = await createWorld({ backend: sim(), size: 3 });
    const run = world.run(async (comm) => {
      if (comm.rank === 0) {
        await new Promise((resolve) => setTimeout(resolve, 3));
        await world.close();
        await comm.barrier();
      }
      await comm.barrier();
    });
    const error = await within(
      2000,
      run.catch((failed) => failed),
    );
    expect(error).toBeInstanceOf(WorldError);
    expect((error as WorldError).failures.map((failure) => code(failure.error))).toEqual(
      new Array(3).fill("ERR_COMM_CLOSED"),
    );
  });

  test("refuses invalid sizes before the backend is opened", async () => {
    for (const size of [0, -1, 1.5, Number.NaN, Infinity, 2 ** 53, "2", undefined, null, 2n]) {
      const opened = createWorld({ backend: sim(), size: size as number });
      await expect(opened, String(size)).rejects.toMatchObject({
        code: "ERR_COMM_ARG",
        field: "size",
      });
    }
  });

  test("refuses invalid backends", async () => {
    for (const backend of [undefined, null, "sim", sim, {}]) {
      const opened = createWorld({ backend: backend as never, size: 1 });
      await expect(opened).rejects.toMatchObject({ code: "ERR_COMM_ARG", field: "backend" });
      const connected = connect({ backend: backend as never });
      await expect(connected).rejects.toMatchObject({ code: "ERR_COMM_ARG", field: "backend" });
    }
  });
});

describe("abort", () => {
  test("fails open and later calls of all ranks with the reason, at once", async () => {
    const world = await createWorld({ backend: sim(), size: 3 });
    const reason = new Error("enough");
    const run = world.run(async (comm) => {
      if (comm.rank === 0) {
        await new Promise((resolve) => setTimeout(resolve, 2));
        comm.abort(reason);
        comm.abort("again");
      }
      await comm.barrier();
    });
    const error = (await within(
      2000,
      run.catch((failed) => failed),
    )) as WorldError;
    expect(error.failures).toHaveLength(3);
    for (const { error: each } of error.failures) {
      expect(each).toMatchObject({ code: "ERR_COMM_ABORTED", cause: reason });
    }
    await world.close();
  });

  test("between runs: the next run is refused with the reason", async () => {
    const world = await createWorld({ backend: sim(), size: 2 });
    const reason = new Error("enough");
    world.abort(reason);
    await expect(world.run(() => 0)).rejects.toMatchObject({
      code: "ERR_COMM_ABORTED",
      cause: reason,
    });
    await world.close();
  });

  test("runs every rank's hooks once", async () => {
    const world = await createWorld({ backend: sim(), size: 3 });
    const reasons: unknown[] = [];
    await world.run((comm) => {
      comm.hooks.onAbort((reason) => reasons.push(reason));
    });
    world.abort("stop");
    world.abort("stop again");
    expect(reasons).toEqual(["stop", "stop", "stop"]);
    await world.close();
  });

  test("a program that catches the abort may still finish", async () => {
    const world = await createWorld({ backend: sim(), size: 2 });
    const results = await world.run(async (comm) => {
      if (comm.rank === 1) comm.abort();
      return codeOf(comm.barrier());
    });
    expect(results).toEqual(["ERR_COMM_ABORTED", "ERR_COMM_ABORTED"]);
    await world.close();
  });
});

describe("a buffer", () => {
  test.each(["close", "rebuild"] as const)(
    "is refused after %s, as on GPUs, and can be disposed",
    async (end) => {
      const world = await createWorld({ backend: sim(), size: 1 });
      const [buffer] = (await world.run((comm) => comm.alloc("int8", 2).fill(5))) as [
        DeviceBuffer<"int8">,
      ];
      const next = end === "close" ? await world.close() : await world.rebuild();
      const closed = { code: "ERR_COMM_CLOSED", rank: 0, device: "sim:0" };
      await expect(buffer.toHost()).rejects.toMatchObject(closed);
      await expect(buffer.copyTo(new Int8Array(2))).rejects.toMatchObject(closed);
      const late = [
        () => buffer.fill(1),
        () => buffer.copyFrom(new Int8Array(2)),
        () => buffer.subarray(1),
      ];
      for (const use of late) expect(use).toThrow(expect.objectContaining(closed));
      buffer.dispose();
      await expect(buffer.toHost()).rejects.toMatchObject({ code: "ERR_COMM_CLOSED" });
      await next?.close();
    },
  );

  test("disposed while it is lent fails the call with a typed error on every rank", async () => {
    const world = await createWorld({ backend: sim(), size: 3 });
    const results = await world.run(async (comm) => {
      const send = comm.alloc("float32", 4).fill(1);
      if (comm.rank > 0) await new Promise((resolve) => setTimeout(resolve, 3));
      const op = comm.allReduce({ send, op: "sum" });
      if (comm.rank === 0) send.dispose();
      return op.then(
        () => "ok",
        (error) => (error as CommError).code ?? String(error),
      );
    });
    for (const result of results) expect(result).toMatch(/^ERR_COMM_/);
    await world.close();
  });
});
