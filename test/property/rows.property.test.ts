/**
 * Calls made in a row, without awaiting one, on the same memory: each reads what the earlier ones of its communicator
 * wrote. Plain loops over plain arrays say what must be there, and strict lending has nothing to say.
 */
import fc from "fast-check";
import { type CommOp, type Communicator, createWorld } from "twinccl";
import { sim } from "twinccl/sim";
import { expect, test } from "vitest";
import { within } from "../support/planted.ts";
import { holds } from "../support/seed.ts";

/** Elements of a rank's memory on one communicator: four ranges of equal length. */
const ranges = 4;
const count = 3;

/** One call: from a range to a range, of the world or of a half of it. */
interface Call {
  readonly kind: "sum" | "broadcast" | "shift";
  readonly half: boolean;
  readonly from: number;
  readonly to: number;
  readonly awaited: boolean;
}

interface Row {
  readonly size: number;
  readonly seed: number;
  readonly host: boolean;
  readonly calls: readonly Call[];
}

const rows: fc.Arbitrary<Row> = fc.record({
  size: fc.integer({ min: 1, max: 7 }),
  seed: fc.integer(),
  host: fc.boolean(),
  calls: fc.array(
    fc.record({
      kind: fc.constantFrom<Call["kind"]>("sum", "sum", "broadcast", "shift"),
      half: fc.boolean(),
      from: fc.nat({ max: ranges - 1 }),
      to: fc.nat({ max: ranges - 1 }),
      awaited: fc.integer({ min: 0, max: 5 }).map((dice) => dice === 0),
    }),
    { minLength: 1, maxLength: 12 },
  ),
});

/** The memory of world rank `rank` on the world or on its half, before all calls. */
function contents(rank: number, half: boolean): Int32Array<ArrayBuffer> {
  return Int32Array.from({ length: ranges * count }, (_, i) => 100 * rank + i + (half ? 5000 : 0));
}

/** A shift within one range would receive what it sends. */
function targetOf({ kind, from, to }: Call): number {
  return kind === "shift" && from === to ? (to + 1) % ranges : to;
}

async function runRank(world: Communicator, { calls, host }: Row): Promise<number[][]> {
  const child = await world.split({ color: world.rank % 2 });
  const pending: CommOp<unknown>[] = [];
  const memory = [false, true].map((half) => {
    const array = contents(world.rank, half);
    return host ? array : world.alloc("int32", array.length).copyFrom(array);
  });
  for (const call of calls) {
    const comm = call.half ? child : world;
    const data = memory[Number(call.half)]!;
    const part = (range: number) => data.subarray(range * count, (range + 1) * count);
    const [send, recv] = [part(call.from), part(targetOf(call))];
    const { rank, size } = comm;
    const [to, from] = [(rank + 1) % size, (rank + size - 1) % size];
    let op: CommOp<unknown>;
    if (call.kind === "sum") op = comm.allReduce({ send, recv, op: "sum" });
    else if (call.kind === "shift") op = comm.sendRecv({ send, recv, to, from });
    else op = comm.broadcast({ ...(rank === 0 ? { send } : {}), recv, root: 0 });
    if (call.awaited) await op;
    else pending.push(op);
  }
  await Promise.all(pending);
  const arrays = memory.map((data) => ("allocation" in data ? data.toHost() : data));
  return (await Promise.all(arrays)).map((array) => Array.from(array));
}

/** The same in plain loops: by world rank, the memory on the world and that on its half. */
function expected({ size, calls }: Row): number[][][] {
  const everyRank = Array.from({ length: size }, (_, rank) => rank);
  const memory = everyRank.map((rank) => [contents(rank, false), contents(rank, true)]);
  for (const call of calls) {
    const halves = [0, 1].map((half) => everyRank.filter((rank) => rank % 2 === half));
    for (const members of call.half ? halves : [everyRank]) {
      const start = call.from * count;
      const sent = members.map((rank) => [
        ...memory[rank]![Number(call.half)]!.slice(start, start + count),
      ]);
      for (const [place, rank] of members.entries()) {
        const before = sent[(place + members.length - 1) % members.length]!;
        const sums = before.map((_, i) => sent.reduce((sum, each) => (sum + each[i]!) | 0, 0));
        const values = { sum: sums, shift: before, broadcast: sent[0]! }[call.kind];
        memory[rank]![Number(call.half)]!.set(values, targetOf(call) * count);
      }
    }
  }
  return memory.map((both) => both.map((array) => Array.from(array)));
}

test("consecutive calls read the results of earlier ones, and strict lending raises no alarm", async () => {
  await holds(
    rows,
    async (row) => {
      const backend = sim({ strict: true, seed: row.seed });
      const world = await createWorld({ backend, size: row.size });
      const found = await within(
        5000,
        world.run((comm) => runRank(comm, row)),
      );
      await world.close();
      expect(found).toEqual(expected(row));
    },
    1000,
  );
});
