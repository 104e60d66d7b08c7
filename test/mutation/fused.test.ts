/**
 * Folds are messages: what the simulation computes from the fused plan, without any message, is bit for bit what the
 * same program gives when it is executed hop by hop. For every algorithm, 1 to 17 ranks, in place and apart.
 */
import { type Communicator, createWorld, specifications } from "twinccl";
import { algorithmsOf, buildProgram, builtCollectives, type Program } from "twinccl/algorithms";
import { sim } from "twinccl/sim";
import { describe, expect, test } from "vitest";
import { interpret } from "../support/interpreter.ts";
import { readings, scalar } from "./arithmetic.ts";
import { lengthOf, type WildCall, wildCall } from "./wild.ts";

const maxRanks = 17;

/** The elements of the interpreter, as the library's dtypes and operators. */
const wholes = [{ at: 0, width: 1, arrayOf: Int32Array, op: "avg" }] as const;
const pairs = [
  { at: 0, width: readings, arrayOf: Float32Array, op: { preMul: scalar } },
  { at: 1, width: readings, arrayOf: Int32Array, op: "avg" },
] as const;

type Reading = (typeof wholes)[number] | (typeof pairs)[number];
type Numbers = Int32Array<ArrayBuffer> | Float32Array<ArrayBuffer>;

/** One reading of every element. */
function readingOf(values: Float64Array, { at, width, arrayOf }: Reading): Numbers {
  return arrayOf.from(values.filter((_, i) => i % width === at));
}

/** One rank's call in the library; gives its output. */
async function callOn(
  comm: Communicator,
  program: Program,
  call: WildCall,
  reading: Reading,
  inPlace: boolean,
): Promise<Numbers> {
  const { rank } = comm;
  const { collective, root } = program;
  const { op, arrayOf } = reading;
  const own = readingOf(call.inputs[rank]!, reading);
  const empty = new arrayOf(lengthOf(call.layout.out[rank]!));
  const counts = call.counts?.[rank] ?? [];
  const start = counts.slice(0, rank).reduce((sum, count) => sum + count, 0);
  const isRoot = rank === root;
  // In place, a rank's own block lies inside the longer one of its two buffers.
  const inside = (whole: Numbers, length: number, blocks: number): Numbers => {
    const from = call.counts === undefined ? rank * (whole.length / blocks) : start;
    return whole.subarray(from, from + length) as Numbers;
  };
  const gathered = (): { send: Numbers; recv: Numbers } => {
    const send = inPlace && empty.length > 0 ? inside(empty, own.length, comm.size) : own;
    send.set(own);
    return { send, recv: empty };
  };
  const scattered = (): { send: Numbers; recv: Numbers } => ({
    send: own,
    recv: inPlace && own.length > 0 ? inside(own, empty.length, comm.size) : empty,
  });
  switch (collective) {
    case "allReduce":
      return comm.allReduce({ send: own, op, ...(inPlace ? {} : { recv: empty }) });
    case "reduce":
      await comm.reduce({ send: own, op, root, ...(inPlace || !isRoot ? {} : { recv: empty }) });
      if (!isRoot) return empty;
      return inPlace ? own : empty;
    case "broadcast":
      if (!isRoot) return comm.broadcast({ recv: empty, root });
      return comm.broadcast({ send: own, root, ...(inPlace ? {} : { recv: empty }) });
    case "allGather":
      return comm.allGather(gathered());
    case "allGatherv":
      return comm.allGatherv({ ...gathered(), recvCounts: counts });
    case "reduceScatter":
      return comm.reduceScatter({ ...scattered(), op });
    case "reduceScatterv":
      return comm.reduceScatterv({ ...scattered(), op, sendCounts: counts });
    case "allToAll":
      return comm.allToAll({ send: own, recv: empty });
    case "allToAllv":
      await comm.allToAllv({ send: own, recv: empty, sendCounts: counts });
      return empty;
    case "gather": {
      if (!isRoot) await comm.gather({ send: own, root });
      else await comm.gather({ ...gathered(), root, recvCounts: counts });
      return empty;
    }
    case "scatter": {
      const { send, recv } = isRoot ? scattered() : { send: own, recv: empty };
      return comm.scatter({ recv, root, ...(isRoot ? { send, sendCounts: counts } : {}) });
    }
    case "barrier":
      await comm.barrier();
      return empty;
  }
}

const rows = builtCollectives.flatMap((collective) =>
  algorithmsOf(collective).map((algorithm) => ({ collective, name: algorithm.name, algorithm })),
);

describe("fused folds have the results of messages", () => {
  test.each(rows)("$collective $name", async ({ collective, name, algorithm }) => {
    const { reduces, rooted } = specifications[collective];
    for (let ranks = 1; ranks <= maxRanks; ranks++) {
      const backend = sim({ algorithms: { [collective]: name } });
      const world = await createWorld({ backend, size: ranks });
      for (const root of rooted ? new Set([0, ranks >> 1, ranks - 1]) : [-1]) {
        const program = buildProgram(collective, algorithm, ranks, root);
        const call = wildCall(program);
        for (const inPlace of [false, true]) {
          const credits = algorithm.credits(ranks);
          const ending = interpret({ ...call, program, credits, inPlace, order: 2 });
          expect(ending).toMatchObject({ finished: true, fault: undefined });
          for (const reading of reduces ? pairs : wholes) {
            const found = await world.run((comm) => callOn(comm, program, call, reading, inPlace));
            const hops = ending.outputs.map((output) => readingOf(output, reading));
            expect(found, `${ranks} ranks, root ${root}, in place: ${inPlace}`).toEqual(hops);
          }
        }
      }
      await world.close();
    }
  });
});
