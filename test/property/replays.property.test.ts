/**
 * Replays of random recordings end when their calls would, with what their calls would leave: made directly, recorded, and
 * recorded under a trace, which follows every call instead of what was known from the replay before.
 */
import fc from "fast-check";
import { type CommOp, type Communicator, createWorld, type DeviceBuffer } from "twinccl";
import { sim, Trace } from "twinccl/sim";
import { expect, test } from "vitest";
import type { Operation } from "../../src/api/op.ts";
import { holds } from "../support/seed.ts";

type Act =
  | { readonly kind: "work"; readonly scale: number }
  | { readonly kind: "allReduce"; readonly buffer: number; readonly length: number }
  | { readonly kind: "broadcast"; readonly buffer: number; readonly root: number }
  | { readonly kind: "scattered"; readonly unit: number };

interface Round {
  /** Work of the ranks before the round; often the same again, so that they begin as far apart as before. */
  readonly scale: number;
  readonly awaited: boolean;
}

interface Repeated {
  readonly size: number;
  readonly seed: number;
  readonly acts: readonly Act[];
  readonly rounds: readonly Round[];
}

const buffers = 2;
const longest = 40;
const scale = fc.constantFrom(0, 0, 300, 7_777, 20_000);
const act: fc.Arbitrary<Act> = fc.oneof(
  fc.record({ kind: fc.constant("work" as const), scale }),
  fc.record({
    kind: fc.constant("allReduce" as const),
    buffer: fc.nat({ max: buffers - 1 }),
    length: fc.nat({ max: longest }),
  }),
  fc.record({
    kind: fc.constant("broadcast" as const),
    buffer: fc.nat({ max: buffers - 1 }),
    root: fc.nat({ max: 4 }),
  }),
  fc.record({ kind: fc.constant("scattered" as const), unit: fc.nat({ max: 4 }) }),
);
const repeated: fc.Arbitrary<Repeated> = fc.record({
  size: fc.integer({ min: 1, max: 5 }),
  seed: fc.integer(),
  acts: fc.array(act, { minLength: 1, maxLength: 6 }),
  rounds: fc.array(fc.record({ scale, awaited: fc.boolean() }), { minLength: 1, maxLength: 7 }),
});

const workNs = (scale: number, rank: number): number => (scale * (rank + 3)) % 30_011;

/** Makes one of the calls; each rank's block of a scattered sum has another length. */
function make(comm: Communicator, own: readonly DeviceBuffer[], each: Act): CommOp | undefined {
  if (each.kind === "work") return void comm.work(workNs(each.scale, comm.rank));
  if (each.kind === "scattered") {
    const sendCounts = Array.from({ length: comm.size }, (_, rank) => rank % 3);
    const total = sendCounts.reduce((sum, count) => sum + count, 0);
    const [send, recv] = own as readonly [DeviceBuffer, DeviceBuffer];
    return comm.reduceScatterv({
      send: send.subarray(0, total),
      recv: recv.subarray(each.unit, each.unit + (sendCounts[comm.rank] as number)),
      sendCounts,
      op: "sum",
    });
  }
  const data = own[each.buffer] as DeviceBuffer;
  if (each.kind === "broadcast") return comm.broadcast({ recv: data, root: each.root % comm.size });
  return comm.allReduce({ send: data.subarray(0, each.length), op: "sum" });
}

/** Of every rank: when each round was done, in picoseconds, and what the buffers hold at the end. */
async function outcome(program: Repeated, way: "direct" | "recorded" | "traced") {
  const trace = way === "traced" ? new Trace() : undefined;
  const backend = sim({ seed: program.seed, ...(trace && { trace }) });
  const world = await createWorld({ backend, size: program.size });
  const found = await world.run(async (comm) => {
    const own = Array.from({ length: buffers }, (_, i) => {
      const values = Int32Array.from({ length: longest }, (_, at) => at * 7 + comm.rank + i);
      return comm.alloc("int32", longest).copyFrom(values);
    });
    const all = (): CommOp | undefined => {
      const ops = program.acts.map((each) => make(comm, own, each));
      return ops.findLast((op) => op !== undefined);
    };
    // Both ways have one call before the first round.
    const graph = await comm.capture(way === "direct" ? () => undefined : () => void all());
    const last: (CommOp | undefined)[] = [];
    for (const { scale, awaited } of program.rounds) {
      comm.work(workNs(scale, comm.rank));
      const op = way === "direct" ? all() : (graph.replay() as CommOp);
      if (awaited) await op;
      last.push(op);
    }
    await Promise.all(last);
    const values = await Promise.all(own.map(async (each) => [...(await each.toHost())]));
    const acts = program.acts.some(({ kind }) => kind !== "work");
    return [acts ? last.map((op) => (op as Operation | undefined)?.finishedAtPs) : [], values];
  });
  await world.close();
  return found;
}

test("replays, traced or not, take the time of their calls and have their results", async () => {
  await holds(
    repeated,
    async (program) => {
      const direct = await outcome(program, "direct");
      expect(await outcome(program, "recorded")).toEqual(direct);
      expect(await outcome(program, "traced")).toEqual(direct);
    },
    300,
  );
});
