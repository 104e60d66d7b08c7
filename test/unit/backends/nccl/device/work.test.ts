/** Work on streams: when operations are done, what fails them, and what each call takes and gives back. */
import { CommError, type Communicator, createWorld, type DeviceBuffer } from "twinccl";
import { describe, expect, test, vi } from "vitest";
import { ncclError } from "../../../../support/fake-gpus/index.ts";
import { expectHealthy, within } from "../../../../support/planted.ts";
import { quickTime } from "../../../../support/quick-time.ts";
import { cleanGpus, inWorld, seen, turns } from "../gpus.ts";

quickTime();

const remote = () => ncclError("ncclCommGetAsyncError", 6, "ncclRemoteError");

describe("completion", () => {
  test("comes when the streams are done, not when calls were submitted", async () => {
    const gpus = cleanGpus();
    await inWorld(gpus, 2, async (world) => {
      gpus.machine.hold();
      let done = 0;
      const running = world.run(async (comm) => {
        const op = comm.allReduce({ send: comm.alloc("int32", 4).fill(1), op: "sum" });
        const sum = await op;
        done += 1;
        return Array.from(await sum.toHost());
      });
      await turns(20);
      expect(done).toBe(0);
      gpus.machine.release();
      expect(await running).toEqual([
        [2, 2, 2, 2],
        [2, 2, 2, 2],
      ]);
    });
  });

  test("keeps the order of each communicator's calls, and both communicators' results", async () => {
    const gpus = cleanGpus();
    await inWorld(gpus, 4, async (world) => {
      const outcomes = await world.run(async (comm) => {
        const half = await comm.split({ color: comm.rank % 2 });
        const data = comm.alloc("int32", 1).fill(comm.rank + 1);
        const other = comm.alloc("int32", 1).fill(comm.rank + 1);
        const order: string[] = [];
        await Promise.all([
          comm.allReduce({ send: data, op: "sum" }).then(() => order.push("first")),
          half.allReduce({ send: other, op: "prod" }),
          comm.allReduce({ send: data, op: "sum" }).then(() => order.push("second")),
        ]);
        return [order.join(), (await data.toHost())[0], (await other.toHost())[0]];
      });
      expect(outcomes).toEqual([
        ["first,second", 40, 3],
        ["first,second", 40, 8],
        ["first,second", 40, 3],
        ["first,second", 40, 8],
      ]);
    });
  });

  test("reuses few events", async () => {
    const gpus = cleanGpus();
    await inWorld(gpus, 2, async (world) => {
      await world.run(async (comm) => {
        const data = comm.alloc("float32", 16);
        for (let i = 0; i < 50; i++) {
          gpus.machine.hold();
          setTimeout(() => gpus.machine.release(), 1);
          await comm.allReduce({ send: data, op: "sum" });
        }
      });
    });
    expect(gpus.machine.count("eventRecord")).toBeGreaterThan(80);
    expect(gpus.machine.count("eventCreate")).toBeLessThan(10);
  });

  test("that is immediate takes no event", async () => {
    const gpus = cleanGpus();
    await inWorld(gpus, 2, async (world) => {
      const before = gpus.machine.count("eventRecord");
      await world.run(async (comm) => {
        const data = comm.alloc("float32", 16);
        for (let i = 0; i < 50; i++) await comm.allReduce({ send: data, op: "sum" });
      });
      expect(gpus.machine.count("eventRecord") - before).toBe(0);
    });
  });

  test("of a call behind one that is under way takes an event of its own", async () => {
    const gpus = cleanGpus();
    await inWorld(gpus, 2, async (world) => {
      const order = await world.run(async (comm) => {
        const data = comm.alloc("float32", 16);
        const events: string[] = [];
        gpus.machine.hold();
        const first = comm.allReduce({ send: data, op: "sum" }).then(() => events.push("first"));
        await turns(3);
        const second = comm.allReduce({ send: data, op: "sum" }).then(() => events.push("second"));
        await turns(3);
        events.push("released");
        gpus.machine.release();
        await Promise.all([first, second]);
        return events.join();
      });
      expect(order).toEqual(["released,first,second", "released,first,second"]);
    });
  });

  test("of failures without an await is reported by the run", async () => {
    const gpus = cleanGpus();
    await inWorld(gpus, 2, async (world) => {
      const planned = ncclError("ncclAllReduce", 5, "ncclInvalidUsage");
      gpus.machine.failNext("allReduce", planned);
      const running = world.run((comm) => {
        void comm.allReduce({ send: comm.alloc("int8", 4), op: "sum" });
      });
      await expect(running).rejects.toMatchObject({ code: "ERR_COMM_WORLD", cause: seen(planned) });
      await expectHealthy(world);
    });
  });
});

describe("one call", () => {
  test("is one group, closed also when a call in it fails", async () => {
    const gpus = cleanGpus();
    await inWorld(gpus, 3, async (world) => {
      const before = gpus.machine.count("groupEnd");
      const planned = ncclError("ncclAllReduce", 4, "ncclInvalidArgument");
      gpus.machine.failNext("allReduce", planned, 1);
      const codes = await world.run(async (comm) => {
        const data = comm.alloc("int32", 2);
        const failed = await comm.allReduce({ send: data, op: "sum" }).catch((error) => error);
        return (failed as CommError).code;
      });
      expect(codes).toEqual(["ERR_COMM_NCCL", "ERR_COMM_NCCL", "ERR_COMM_NCCL"]);
      expect(gpus.machine.count("groupEnd") - before).toBe(1);
      await expectHealthy(world);
    });
  });

  test.each(["allReduce", "preMulSum", "groupEnd"])(
    "gives its pre-multiplied operators back, also when %s fails",
    async (failing) => {
      const gpus = cleanGpus();
      await inWorld(gpus, 3, async (world) => {
        const sums = await world.run(async (comm) => {
          const data = comm.alloc("int32", 2).fill(comm.rank);
          await comm.allReduce({ send: data, op: { preMul: 10 + comm.rank } });
          return (await data.toHost())[0];
        });
        expect(sums).toEqual([35, 35, 35]);
        const planned = ncclError(failing, 3, "ncclInternalError");
        await world.run(async (comm) => {
          const data = comm.alloc("int32", 2);
          if (comm.rank === 0)
            gpus.machine.failNext(failing, planned, failing === "groupEnd" ? 0 : 1);
          const op = comm.allReduce({ send: data, op: { preMul: 2 } });
          await expect(op).rejects.toEqual(
            seen(planned, { rank: comm.rank, collective: "allReduce" }),
          );
        });
        expect(gpus.machine.leaks().join()).not.toContain("operator");
        const made = gpus.machine.count("preMulSum") - (failing === "preMulSum" ? 1 : 0);
        expect(gpus.machine.count("destroyOp")).toBe(made);
        await expectHealthy(world);
      });
    },
  );

  test.each(["float8e4m3", "float8e5m2"] as const)(
    "of %s on one rank averages by a copy",
    async (dtype) => {
      const gpus = cleanGpus();
      await inWorld(gpus, 2, async (world) => {
        await world.run(async (comm) => {
          const alone = await comm.split({ color: comm.rank });
          const bits = Uint8Array.of(0x38, 0x81, 0x7f, 0x00, 0xff);
          const send = comm.alloc(dtype, 5).copyFrom(bits);
          const recv = comm.alloc(dtype, 5);
          for (const call of [
            () => alone.allReduce({ send, recv, op: "avg" }),
            () => alone.reduce({ send, recv, op: "avg", root: 0 }),
            () => alone.reduceScatter({ send, recv, op: "avg" }),
            () => alone.reduceScatterv({ send, recv, op: "avg", sendCounts: [5] }),
          ]) {
            recv.fill(1);
            await call();
            expect(await recv.toHost()).toEqual(bits);
          }
          await alone.allReduce({ send, op: "avg" });
          expect(await send.toHost()).toEqual(bits);
          const question = { collective: "allReduce", dtype, op: { preMul: 2 } } as const;
          expect([alone.supports(question), comm.supports(question)]).toEqual([false, true]);
          const made = gpus.machine.count("preMulSum");
          await expect(alone.allReduce({ send, op: { preMul: 2 } })).rejects.toMatchObject({
            code: "ERR_COMM_UNSUPPORTED",
          });
          expect(gpus.machine.count("preMulSum")).toBe(made);
        });
      });
    },
  );

  test("of send and receive halves meets inside a group and outside", async () => {
    const gpus = cleanGpus();
    await inWorld(gpus, 3, async (world) => {
      const got = await world.run(async (comm) => {
        const [send, recv] = [comm.alloc("int32", 2).fill(comm.rank), comm.alloc("int32", 2)];
        const [next, last] = [(comm.rank + 1) % 3, (comm.rank + 2) % 3];
        await comm.group(() => {
          void comm.send({ send, peer: next });
          void comm.recv({ recv, peer: last });
        });
        const ring = (await recv.toHost())[0];
        if (comm.rank === 0) await comm.send({ send: send.fill(77), peer: 2 });
        if (comm.rank === 2) await comm.recv({ recv, peer: 0 });
        return [ring, (await recv.toHost())[0]];
      });
      expect(got).toEqual([
        [2, 2],
        [0, 0],
        [1, 77],
      ]);
    });
  });
});

describe("staging", () => {
  test("blocks are used again once their copies are done, and never before", async () => {
    const gpus = cleanGpus();
    await inWorld(gpus, 1, async (world) => {
      await world.run(async (comm) => {
        const length = 300_000;
        const buffers = Array.from({ length: 6 }, () => comm.alloc("uint8", length));
        gpus.machine.hold();
        for (const [i, buffer] of buffers.entries()) {
          buffer.copyFrom(new Uint8Array(length).fill(i + 1));
        }
        await turns(5);
        const early = gpus.machine.count("hostAlloc");
        expect(early).toBeGreaterThan(1);
        gpus.machine.release();
        for (const [i, buffer] of buffers.entries()) {
          const host = await buffer.toHost();
          expect(host.every((byte) => byte === i + 1)).toBe(true);
        }
        for (let round = 0; round < 20; round++) {
          for (const buffer of buffers) buffer.copyFrom(new Uint8Array(length).fill(round));
          await buffers[0]?.toHost();
          await turns(3);
        }
        expect(gpus.machine.count("hostAlloc")).toBeLessThanOrEqual(early + 2);
        buffers[0]?.copyFrom(new Uint8Array(length).fill(9));
        expect((await buffers[0]?.toHost())?.every((byte) => byte === 9)).toBe(true);
      });
    });
  });

  test("takes uploads larger than a block", async () => {
    const gpus = cleanGpus();
    await inWorld(gpus, 1, async (world) => {
      await world.run(async (comm) => {
        const values = Float64Array.from({ length: 400_000 }, (_, i) => i / 3);
        const found = await comm.alloc("float64", values.length).copyFrom(values).toHost();
        expect(Buffer.compare(new Uint8Array(found.buffer), new Uint8Array(values.buffer))).toBe(0);
      });
    });
  });
});

describe("failures in the background", () => {
  test("reject the calls of their communicator by name, and only those", async () => {
    const gpus = cleanGpus();
    await inWorld(gpus, 4, async (world) => {
      const failure = remote();
      const outcome = await within(
        5000,
        world.run(async (comm) => {
          const half = await comm.split({ color: comm.rank % 2 });
          await comm.barrier();
          if (comm.rank === 0) {
            gpus.machine.hold();
            setTimeout(() => {
              const end = [...gpus.nccl.ends.values()].at(-1);
              if (end !== undefined) end.failure = failure;
            }, 30);
            setTimeout(() => gpus.machine.release(), 200);
          }
          const data = comm.alloc("int32", 4).fill(1);
          const result = await half.allReduce({ send: data, op: "sum" }).catch((error) => error);
          const after = await half.barrier().catch((error) => (error as CommError).code);
          const { cause } = result as CommError;
          return [cause instanceof CommError && cause.cause === failure && cause.rank, after];
        }),
      );
      // The failed end, as each rank sees it.
      expect(outcome).toEqual([
        [false, undefined],
        [1, "ERR_COMM_ABORTED"],
        [false, undefined],
        [1, "ERR_COMM_ABORTED"],
      ]);
      await expectHealthy(world);
    });
  });

  test.each(["streamDone", "eventRecord", "eventDone"])(
    "of the devices that %s reports reject everything, and the world still closes",
    async (failing) => {
      const gpus = cleanGpus();
      const world = await createWorld({ backend: gpus.backend(), size: 2 });
      const lost = ncclError(failing, 1, "ncclUnhandledCudaError");
      const running = world.run(async (comm) => {
        await comm.barrier();
        gpus.machine.hold();
        gpus.machine.failNext(failing, lost);
        await comm.barrier();
      });
      await expect(running).rejects.toMatchObject({
        code: "ERR_COMM_WORLD",
        cause: seen(lost),
      });
      gpus.machine.release();
      await world.close();
    },
  );
});

describe("aborts and deadlines", () => {
  test("a deadline passes in real time, aborts and rejects by name; the world closes", async () => {
    const gpus = cleanGpus();
    const world = await createWorld({ backend: gpus.backend(), size: 2 });
    gpus.machine.hold();
    const startMs = performance.now();
    const running = world.run((comm) =>
      comm.allReduce({ send: comm.alloc("int8", 8), op: "sum", timeoutMs: 80 }),
    );
    await expect(within(5000, running)).rejects.toMatchObject({
      cause: { code: "ERR_COMM_TIMEOUT" },
    });
    expect(performance.now() - startMs).toBeGreaterThanOrEqual(75);
    expect(gpus.machine.count("abortInBackground")).toBe(2);
    gpus.machine.release();
    await world.close();
  });

  test("the world's own deadline holds where a call gives none", async () => {
    const gpus = cleanGpus({ timeoutMs: 50 });
    const world = await createWorld({ backend: gpus.backend(), size: 2 });
    gpus.machine.hold();
    const running = world.run((comm) => comm.barrier());
    await expect(within(5000, running)).rejects.toMatchObject({
      cause: { code: "ERR_COMM_TIMEOUT" },
    });
    gpus.machine.release();
    await world.close();
  });

  test("an aborted communicator refuses further calls", async () => {
    const gpus = cleanGpus();
    await inWorld(gpus, 2, async (world) => {
      await world.run(async (comm) => {
        const child = await comm.split({ color: 0 });
        await comm.barrier();
        if (comm.rank === 0) child.abort(new Error("enough"));
        await expect(child.barrier()).rejects.toMatchObject({ code: "ERR_COMM_ABORTED" });
      });
      await expectHealthy(world);
    });
  });

  test("closed children release their handles at once", async () => {
    const gpus = cleanGpus();
    await inWorld(gpus, 2, async (world) => {
      await world.run(async (comm) => {
        for (let i = 0; i < 5; i++) {
          const child = await comm.split({ color: 0 });
          await child.barrier();
          await child.close();
        }
      });
      await turns(50);
      expect(gpus.nccl.ends.size).toBe(2);
    });
  });

  test("a hanging abort delays no other rank: closing is bounded", async () => {
    const { fakeGpus } = await import("../../../../support/fake-gpus/index.ts");
    const gpus = fakeGpus();
    const world = await createWorld({ backend: gpus.backend(), size: 2 });
    gpus.machine.hold();
    gpus.nccl.hangAborts();
    const buffers: DeviceBuffer[] = [];
    const program = (comm: Communicator) => {
      buffers.push(comm.alloc("int8", 4));
      return comm.barrier();
    };
    const running = world.run(program).catch((error) => error);
    await turns(5);
    world.abort(new Error("enough"));
    expect(await running).toMatchObject({ cause: { code: "ERR_COMM_ABORTED" } });
    const [buffer] = buffers;
    const reading = buffer?.toHost().catch((error) => (error as CommError).code);
    let closed = false;
    const closing = world.close().then(() => {
      closed = true;
    });
    await vi.advanceTimersByTimeAsync(9_000);
    expect(closed).toBe(false);
    for (let i = 0; i < 40 && !closed; i++) {
      await turns(2);
      await vi.advanceTimersByTimeAsync(1_000);
    }
    await closing;
    expect(await reading, "an open read fails").toBe("ERR_COMM_ABORTED");
    expect(gpus.machine.complaints).toEqual([]);
    expect(gpus.machine.count("free"), "what may still run keeps its memory").toBe(0);
  });
});
