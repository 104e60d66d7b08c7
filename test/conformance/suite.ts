/**
 * What every backend must do, as one body of tests.
 *
 * A backend's own file names the backend, says which sizes it can open here and what it can do, and skips
 * nothing. Expectations come from oracles and from the contract, never from a backend.
 */

import {
  type Backend,
  type Capabilities,
  type CommError,
  type Communicator,
  createWorld,
  type Question,
  type World,
} from "twinccl";
import { type Program, type ProgramCall, runProgramIn } from "twinccl/testing";
import { afterAll, describe, expect, test } from "vitest";
import { everyDType } from "../support/element-bits.ts";
import { OpenWorlds } from "../support/open-worlds.ts";
import { expectHealthy, within } from "../support/planted.ts";
import { judgeRun } from "../support/program-oracle.ts";
import type { OracleDType, OracleOp } from "../support/rounding-oracle.ts";

/** A backend under test. */
export interface Candidate {
  readonly name: string;
  readonly backend: () => Backend;
  /** World sizes that can be opened here; at least one. */
  readonly sizes: readonly number[];
  readonly capabilities: Capabilities;
  /** One world of each size for all tests that leave theirs well, where opening takes long. */
  readonly keepsWorlds?: boolean;
}

const operators: readonly OracleOp[] = ["sum", "prod", "min", "max", "avg", { preMul: 2 }];

/** Runs every test of the suite on one backend. */
export function conformance(candidate: Candidate): void {
  const { name, backend, sizes, capabilities, keepsWorlds = false } = candidate;

  const kept = new OpenWorlds(backend);
  afterAll(() => kept.close());

  async function inWorld<T>(size: number, use: (world: World) => Promise<T>): Promise<T> {
    if (keepsWorlds) return kept.use(size, use);
    const world = await createWorld({ backend: backend(), size });
    try {
      return await use(world);
    } finally {
      await world.close();
    }
  }

  async function judge(
    size: number,
    issue: Program["issue"],
    calls: readonly ProgramCall[],
  ): Promise<void> {
    const steps = calls.map((call) => ({ kind: "call", comm: 0, call }) as const);
    const program: Program = { size, issue, splits: [], steps };
    judgeRun(program, await inWorld(size, (world) => runProgramIn(world, program)));
  }

  /** Runs the calls that a world of this size says it supports; the others must be refused by every rank. */
  async function judgeSupported(
    size: number,
    issue: Program["issue"],
    calls: readonly ProgramCall[],
  ): Promise<void> {
    const supported: ProgramCall[] = [];
    await inWorld(size, async (world) => {
      for (const call of calls) {
        const answers = await world.run((comm) => comm.supports(questionOf(call)));
        expect(new Set(answers).size, "ranks of one world give one answer").toBe(1);
        if (answers[0] === true) supported.push(call);
        else await expectRefused(world, call);
      }
      if (supported.length < calls.length) await expectHealthy(world);
    });
    if (supported.length > 0) await judge(size, issue, supported);
  }

  describe(`${name} conforms`, () => {
    test("says that it can be used, and opens with the capabilities it declares", async () => {
      const probe = await backend().probe({ size: sizes[0] as number, name: "world" });
      expect(probe).toMatchObject({ ok: true, reason: expect.any(String) });
      await inWorld(sizes[0] as number, async (world) => {
        expect(world.backend).toBe(backend().name);
        const found = await world.run((comm) => comm.capabilities);
        for (const each of found) expect(each).toEqual(capabilities);
      });
    });

    test("gives ranks, sizes and devices", async () => {
      for (const size of sizes) {
        await inWorld(size, async (world) => {
          const ranks = await world.run((comm) => [comm.rank, comm.size, comm.device]);
          expect(ranks.map(([rank]) => rank)).toEqual(Array.from({ length: size }, (_, r) => r));
          expect(new Set(ranks.map(([, of]) => of))).toEqual(new Set([size]));
          expect(new Set(ranks.map(([, , device]) => device)).size).toBe(size);
        });
      }
    });

    test("reduces exact payloads for every dtype and operator", async () => {
      for (const size of sizes) {
        for (const dtype of everyDType) {
          const calls = operators.map((op, at) => reduceCall(dtype, op, 13 + at, at, size));
          await judgeSupported(size, "together", calls);
        }
      }
    });

    test("copies bytes, NaN payloads included, for every dtype", async () => {
      for (const size of sizes) {
        for (const [at, dtype] of everyDType.entries()) {
          await judgeSupported(size, "each", copyCalls(dtype, size, at));
        }
      }
    });

    test("takes counts of nothing, one, and fewer than there are ranks", async () => {
      for (const size of sizes) {
        for (const count of [0, 1, size - 1, size, size + 1]) {
          const calls = (["sum", "max"] as const).map((op) =>
            reduceCall("int32", op, count, count, size),
          );
          await judge(size, "each", calls);
        }
      }
    });

    test("holds every rank at a barrier until all have come", async () => {
      for (const size of sizes) {
        await inWorld(size, async (world) => {
          let entered = 0;
          await world.run(async (comm) => {
            if (comm.rank % 2 === 1) await new Promise((resolve) => setTimeout(resolve, 3));
            entered += 1;
            await comm.barrier();
            expect(entered).toBe(size);
          });
        });
      }
    });

    test("runs calls in order, also when they are awaited later", async () => {
      const size = sizes.at(-1) as number;
      await inWorld(size, async (world) => {
        const results = await world.run(async (comm) => {
          const data = comm.alloc("int64", 3).fill(1);
          const ops = [1, 2, 3, 4].map(() => comm.allReduce({ send: data, op: "sum" }));
          await Promise.all(ops);
          return Array.from(await data.toHost());
        });
        const total = BigInt(size) ** 4n;
        for (const result of results) expect(result).toEqual([total, total, total]);
      });
    });

    test("reads what was there when it was asked, whatever is written later", async () => {
      await inWorld(sizes[0] as number, async (world) => {
        const reads = await world.run(async (comm) => {
          const data = comm.alloc("int32", 3).fill(1);
          const early = data.toHost();
          data.fill(2);
          const later = data.toHost();
          data.copyFrom(Int32Array.of(3, 4, 5));
          return [await early, await later, await data.toHost()].map((read) => Array.from(read));
        });
        for (const read of reads) {
          expect(read).toEqual([
            [1, 1, 1],
            [2, 2, 2],
            [3, 4, 5],
          ]);
        }
      });
    });

    test("gives the same bits in every run", async () => {
      const size = sizes.at(-1) as number;
      await inWorld(size, async (world) => {
        const once = (): Promise<string[]> => world.run((comm) => noisySum(comm));
        const first = await once();
        expect(new Set(first).size).toBe(1);
        expect(await once()).toEqual(first);
      });
    });

    test("refuses wrong arguments on the rank that gives them", async () => {
      await inWorld(sizes[0] as number, async (world) => {
        const codes = await world.run(async (comm) => {
          const send = comm.alloc("int8", 4);
          const wrong = [
            comm.allReduce({ send, op: "plus" as never }),
            comm.allReduce({ send, recv: comm.alloc("int8", 5), op: "sum" }),
            comm.allReduce({ send, op: { preMul: 1000 } }),
            comm.broadcast({ recv: send, root: comm.size }),
            comm.allToAll({ send, recv: send }),
            comm.allToAllv({ send, sendCounts: [] }),
          ];
          const failed = await Promise.allSettled(wrong);
          return failed.map(
            (each) => each.status === "rejected" && (each.reason as CommError).code,
          );
        });
        for (const rank of codes) expect(new Set(rank)).toEqual(new Set(["ERR_COMM_ARG"]));
        await expectHealthy(world);
      });
    });

    test("tells ranks that disagree, writes nothing, and goes on", async () => {
      const size = sizes.at(-1) as number;
      if (size === 1) return;
      await inWorld(size, async (world) => {
        const results = await world.run(async (comm) => {
          const send = comm.alloc("float32", 8).fill(3);
          const part = comm.rank === 1 ? send.subarray(0, 7) : send;
          const error = await comm.allReduce({ send: part, op: "sum" }).catch((caught) => caught);
          const { code, field, ranks } = error as CommError;
          return [code, field, ranks, Array.from(await comm.alloc("int8", 1).toHost())];
        });
        const expected = ["ERR_COMM_MISMATCH", "count", size === 2 ? expect.anything() : [1], [0]];
        for (const result of results) expect(result).toEqual(expected);
        await expectHealthy(world);
      });
    });

    test("tells the others when a rank throws or leaves, and goes on", async () => {
      const size = sizes.at(-1) as number;
      if (size === 1) return;
      await inWorld(size, async (world) => {
        const thrown = world.run((comm) => {
          if (comm.rank === 0) throw new Error("mine");
          return comm.barrier();
        });
        await expect(within(20_000, thrown)).rejects.toMatchObject({ cause: { message: "mine" } });
        const left = world.run((comm) => (comm.rank === 0 ? undefined : comm.barrier()));
        await expect(within(20_000, left)).rejects.toMatchObject({
          cause: { code: "ERR_COMM_DEADLOCK", ranks: [0] },
        });
        await expectHealthy(world);
      });
    });

    test("replays a recording until it is disposed, and refuses it then", async () => {
      const size = sizes.at(-1) as number;
      await inWorld(size, async (world) => {
        const found = await world.run(async (comm) => {
          const data = comm.alloc("int32", 2).fill(1);
          const graph = await comm.capture(() => {
            void comm.allReduce({ send: data, op: { preMul: 2 } });
          });
          await graph.replay();
          const last = graph.replay();
          graph.dispose();
          graph.dispose();
          const refused = await graph.replay().catch((error: unknown) => error as CommError);
          await last;
          const { code } = refused as CommError;
          return [graph.disposed, code, (await data.toHost())[1]];
        });
        expect(found).toEqual(new Array(size).fill([true, "ERR_COMM_CLOSED", (2 * size) ** 2]));
        await expectHealthy(world);
      });
    });

    test("closes once and for all", async () => {
      const world = await createWorld({ backend: backend(), size: sizes[0] as number });
      await world.close();
      await world.close();
      await expect(world.run(() => 0)).rejects.toMatchObject({ code: "ERR_COMM_CLOSED" });
    });

    test("explains a call without running it", async () => {
      await inWorld(sizes.at(-1) as number, async (world) => {
        const question = {
          collective: "allReduce",
          dtype: "float32",
          op: "sum",
          count: 100,
        } as const;
        const plan = world.explain(question);
        expect(plan).toMatchObject({ collective: "allReduce", ranks: world.size });
        const elements = plan.chunks.reduce((sum, { length }) => sum + length, 0);
        expect(elements).toBe(100);
        for (const { order } of plan.chunks) {
          expect([...order].sort((a, b) => a - b)).toEqual(
            Array.from({ length: world.size }, (_, rank) => rank),
          );
        }
        expect(String(plan)).toContain("allReduce");
      });
    });
  });
}

/** The shape of a call, as `supports` takes it. */
function questionOf(call: ProgramCall): Question {
  if (call.kind === "barrier") return { collective: "barrier" };
  const { dtype } = call;
  if (call.kind === "allReduce") {
    return { collective: call.kind, dtype, op: call.op, count: call.count };
  }
  if (call.kind === "broadcast") {
    return { collective: call.kind, dtype, count: call.count, root: call.root };
  }
  if (call.kind === "allToAll" || call.kind === "allToAllv")
    return { collective: call.kind, dtype };
  throw new Error(`the suite asks nothing about ${call.kind}`);
}

/** Every rank is refused the call before anything of it happens. */
async function expectRefused(world: World, call: ProgramCall): Promise<void> {
  if (call.kind === "barrier") throw new Error("a barrier is always supported");
  const codes = await world.run(async (comm) => {
    const send = comm.alloc(call.dtype, comm.size);
    const recv = comm.alloc(call.dtype, comm.size);
    const counts = new Array<number>(comm.size).fill(1);
    const op = "op" in call ? call.op : "sum";
    const root = "root" in call ? call.root : 0;
    const made = {
      allReduce: () => comm.allReduce({ send, recv, op }),
      broadcast: () => comm.broadcast({ recv, root }),
      allToAll: () => comm.allToAll({ send, recv }),
      allToAllv: () => comm.allToAllv({ send, recv, sendCounts: counts, recvCounts: counts }),
    };
    const make = made[call.kind as keyof typeof made] as () => PromiseLike<unknown>;
    return make().then(
      () => "it was taken",
      (error: CommError) => error.code,
    );
  });
  expect(codes, `${call.dtype} ${call.kind}`).toEqual(
    new Array(world.size).fill("ERR_COMM_UNSUPPORTED"),
  );
}

function reduceCall(
  dtype: OracleDType,
  op: OracleOp,
  count: number,
  seed: number,
  size: number,
): ProgramCall {
  // An average is exact where 1/n is; elsewhere the plan's rounding decides, which is not judged here.
  const inexact = op === "avg" && /float/.test(dtype) && !Number.isInteger(Math.log2(size));
  const form = seed % 2 === 0 ? "inPlace" : "apart";
  const placement = { form, lead: seed % 3, tail: 1, host: false } as const;
  const data = { dtype, payload: "exact", seed, placement } as const;
  return { ...data, kind: "allReduce", op: inexact ? "sum" : op, count };
}

function copyCalls(dtype: OracleDType, size: number, seed: number): ProgramCall[] {
  const placement = { form: "apart", lead: seed % 3, tail: 2, host: false } as const;
  const data = { dtype, payload: "bits", seed, placement } as const;
  const counts = Array.from({ length: size }, (_, from) =>
    Array.from({ length: size }, (_, to) => (from * 3 + to * 5 + seed) % 4),
  );
  const give = seed % 2 === 0 ? "exchange" : "both";
  return [
    { ...data, kind: "broadcast", count: 11, root: seed % size },
    { ...data, kind: "allToAll", count: 3 },
    { ...data, kind: "allToAllv", counts, give, recv: "exact", order: "packed" },
    { ...data, kind: "allToAllv", counts, give, recv: "allocated", order: "packed" },
    { ...data, kind: "allToAllv", counts, give: "both", recv: "longer", order: "reversed" },
    { kind: "barrier" },
  ];
}

/** Bits of a sum that rounds at nearly every hop. */
async function noisySum(comm: Communicator): Promise<string> {
  const values = Float32Array.from({ length: 1000 }, (_, i) => Math.sin(i * (comm.rank + 1)) / 3);
  const data = comm.alloc("float32", 1000).copyFrom(values);
  await comm.allReduce({ send: data, op: "sum" });
  const host = await data.toHost();
  return Buffer.from(host.buffer, host.byteOffset, host.byteLength).toString("hex");
}
