/**
 * Virtual time of random programs: work, barriers, messages, groups, splits, recordings and replays on two kinds of
 * communicators, awaited at once or at the end.
 *
 * The oracle is a few lines of arithmetic: a rank has a clock, which work and awaited calls move, and for every
 * stream a time from which on its next call can run: communicators share one, or have their own. The programs leave no port contended, so that the seed and
 * the order in which ranks really come change nothing.
 */
import fc from "fast-check";
import { type Communicator, createWorld, type Graph } from "twinccl";
import { sim, Trace } from "twinccl/sim";
import { expect, test } from "vitest";
import { holds } from "../support/seed.ts";

const latencyNs = 700;
/** One byte takes one nanosecond. */
const link = { latencyNs, gigabytesPerSecond: 1 };

/** The acts of a rank on one communicator, and those that can be recorded. */
type Act =
  | { readonly kind: "work"; readonly scale: number }
  | { readonly kind: "barrier" }
  /** Every rank sends to the one so many places on. */
  | { readonly kind: "shift"; readonly by: number; readonly bytes: number }
  /** Barriers and one shift, made the other way round. */
  | {
      readonly kind: "group";
      readonly barriers: number;
      readonly by: number;
      readonly bytes: number;
    };

type Step = (
  | Act
  | { readonly kind: "pair"; readonly from: number; readonly by: number; readonly bytes: number }
  | { readonly kind: "split" }
  | { readonly kind: "replay"; readonly acts: readonly Act[]; readonly times: number }
) & { readonly half: boolean; readonly awaited: boolean };

interface Timed {
  readonly size: number;
  readonly seed: number;
  /** The halves have streams of their own. */
  readonly ownStream: boolean;
  readonly steps: readonly Step[];
}

const small = fc.nat({ max: 900 });
const acts: fc.Arbitrary<Act> = fc.oneof(
  fc.record({ kind: fc.constant("work" as const), scale: small }),
  fc.record({ kind: fc.constant("barrier" as const) }),
  fc.record({ kind: fc.constant("shift" as const), by: fc.nat({ max: 5 }), bytes: small }),
  fc.record({
    kind: fc.constant("group" as const),
    barriers: fc.nat({ max: 2 }),
    by: fc.nat({ max: 5 }),
    bytes: small,
  }),
);
const place = { half: fc.boolean(), awaited: fc.boolean() };
const steps: fc.Arbitrary<Step> = fc.oneof(
  fc.tuple(acts, fc.record(place)).map(([act, where]) => ({ ...act, ...where })),
  fc.record({
    ...place,
    kind: fc.constant("pair" as const),
    from: fc.nat({ max: 5 }),
    by: fc.nat({ max: 5 }),
    bytes: small,
  }),
  fc.record({ ...place, kind: fc.constant("split" as const) }),
  fc.record({
    ...place,
    kind: fc.constant("replay" as const),
    acts: fc.array(acts, { maxLength: 4 }),
    times: fc.integer({ min: 1, max: 2 }),
  }),
);
const timed: fc.Arbitrary<Timed> = fc.record({
  size: fc.integer({ min: 1, max: 6 }),
  seed: fc.integer(),
  ownStream: fc.boolean(),
  steps: fc.array(steps, { minLength: 1, maxLength: 6 }),
});

/** A rank works longer or shorter than its neighbours, by its number in the world. */
const workNs = (scale: number, worldRank: number): number => (scale * (worldRank + 3)) % 1009;

function act(comm: Communicator, worldRank: number, each: Act): PromiseLike<unknown> | undefined {
  const shift = (by: number, bytes: number): PromiseLike<unknown> =>
    comm.sendRecv({
      send: new Uint8Array(bytes),
      recv: new Uint8Array(bytes),
      to: (comm.rank + by) % comm.size,
      from: (comm.rank + by * (comm.size - 1)) % comm.size,
    });
  if (each.kind === "barrier") return comm.barrier();
  if (each.kind === "shift") return shift(each.by, each.bytes);
  if (each.kind === "work") return void comm.work(workNs(each.scale, worldRank));
  return comm.group(() => {
    void shift(each.by, each.bytes);
    for (let i = 0; i < each.barriers; i++) void comm.barrier();
  });
}

async function runRank(world: Communicator, { steps, ownStream }: Timed): Promise<void> {
  const stream = ownStream ? "own" : undefined;
  const half = await world.split({ color: world.rank % 2, stream });
  const open: PromiseLike<unknown>[] = [];
  for (const step of steps) {
    const comm = step.half ? half : world;
    const keep = async (op: PromiseLike<unknown> | undefined): Promise<void> => {
      if (op === undefined) return;
      if (step.awaited) await op;
      else open.push(op);
    };
    if (step.kind === "pair") {
      const from = step.from % comm.size;
      const to = (from + step.by) % comm.size;
      const data = new Uint8Array(step.bytes);
      if (from === to) continue;
      if (comm.rank === from) await keep(comm.send({ send: data, peer: to }));
      if (comm.rank === to) await keep(comm.recv({ recv: data, peer: from }));
    } else if (step.kind === "split") {
      await keep(comm.split({ color: undefined }));
    } else if (step.kind === "replay") {
      const graph: Graph = await comm.capture(() => {
        for (const each of step.acts) void act(comm, world.rank, each);
      });
      for (let round = 0; round < step.times; round++) await keep(graph.replay());
    } else {
      await keep(act(comm, world.rank, step));
    }
  }
  await Promise.all(open);
  world.work(0, "end");
}

/** Each rank's time at the end, in nanoseconds. */
async function measured(program: Timed): Promise<number[]> {
  const trace = new Trace();
  const world = await createWorld({
    backend: sim({ seed: program.seed, link, trace }),
    size: program.size,
  });
  await world.run((comm) => runRank(comm, program)).finally(() => world.close());
  const ends: number[] = [];
  for (const [, time, rank] of trace.toText().matchAll(/^(\d+) work rank=(\d+) .* end$/gm)) {
    ends[Number(rank)] = Number(time) / 1000;
  }
  return ends;
}

/** The arithmetic. */
class Model {
  readonly clock: number[];
  /** From when on a rank's next call on the world, and on its half, can run. */
  readonly #free: readonly number[][];
  /** When all that a rank has not awaited is done. */
  readonly #open: number[];

  constructor(size: number, ownStream: boolean) {
    this.clock = new Array<number>(size).fill(0);
    const shared = this.clock.slice();
    this.#free = [shared, ownStream ? this.clock.slice() : shared];
    this.#open = this.clock.slice();
  }

  take(step: Step, members: readonly number[]): void {
    const free = this.#free[step.half ? 1 : 0] as number[];
    const size = members.length;
    if (step.kind === "replay") {
      this.#settle(members, this.#meet(members, free), true);
      for (let round = 0; round < step.times; round++) {
        let done = members.map(() => 0);
        for (const each of step.acts) {
          const at = this.#act(members, free, each);
          done = done.map((time, i) => Math.max(time, at[i] as number));
        }
        this.#settle(members, done, step.awaited);
      }
    } else if (step.kind === "split") {
      this.#settle(members, this.#meet(members, free), step.awaited);
    } else if (step.kind === "pair") {
      const from = step.from % size;
      const pair = [members[from] as number, members[(from + step.by) % size] as number];
      if (pair[0] !== pair[1]) this.#settle(pair, this.#send(pair, free, step.bytes), step.awaited);
    } else {
      this.#settle(members, this.#act(members, free, step), step.awaited);
    }
  }

  /** Awaits everything. */
  end(): number[] {
    return this.clock.map((time, rank) => Math.max(time, this.#open[rank] as number));
  }

  #settle(members: readonly number[], done: readonly number[], awaited: boolean): void {
    const to = awaited ? this.clock : this.#open;
    members.forEach((rank, i) => {
      to[rank] = Math.max(to[rank] as number, done[i] as number);
    });
  }

  #starts(members: readonly number[], free: readonly number[]): number[] {
    return members.map((rank) => Math.max(this.clock[rank] as number, free[rank] as number));
  }

  #run(members: readonly number[], free: number[], done: readonly number[]): readonly number[] {
    members.forEach((rank, i) => {
      free[rank] = done[i] as number;
    });
    return done;
  }

  #act(members: readonly number[], free: number[], each: Act): readonly number[] {
    if (each.kind === "work") {
      for (const rank of members) {
        this.clock[rank] = (this.clock[rank] as number) + workNs(each.scale, rank);
      }
      return members.map(() => 0);
    }
    if (each.kind === "barrier") return this.#barrier(members, free);
    if (each.kind === "group") {
      for (let i = 0; i < each.barriers; i++) this.#barrier(members, free);
    }
    const starts = this.#starts(members, free);
    const size = members.length;
    const from = (at: number, by: number): number => starts[(at + by) % size] as number;
    const done = starts.map((mine, at) => {
      const sent = Math.max(mine, from(at, each.by)) + each.bytes;
      const came = Math.max(mine, from(at, size * each.by - each.by)) + latencyNs + each.bytes;
      return Math.max(sent, came);
    });
    return this.#run(members, free, done);
  }

  #barrier(members: readonly number[], free: number[]): readonly number[] {
    let times = this.#starts(members, free);
    const size = members.length;
    for (let distance = 1; distance < size; distance *= 2) {
      const before = times;
      times = before.map((time, at) =>
        Math.max(time, (before[(at - distance + size) % size] as number) + latencyNs),
      );
    }
    return this.#run(members, free, times);
  }

  #meet(members: readonly number[], free: number[]): readonly number[] {
    const last = Math.max(...this.#starts(members, free));
    return this.#run(
      members,
      free,
      members.map(() => last),
    );
  }

  #send(pair: readonly number[], free: number[], bytes: number): readonly number[] {
    const ready = Math.max(...this.#starts(pair, free));
    return this.#run(pair, free, [ready + bytes, ready + latencyNs + bytes]);
  }
}

/** Each rank's time at the end, by arithmetic. */
function expected({ size, steps, ownStream }: Timed): number[] {
  const world = Array.from({ length: size }, (_, rank) => rank);
  const halves = [0, 1].map((color) => world.filter((rank) => rank % 2 === color));
  const model = new Model(size, ownStream);
  for (const step of steps) {
    for (const members of step.half ? halves : [world]) {
      if (members.length > 0) model.take(step, members);
    }
  }
  return model.end();
}

test("the clocks of random programs equal the computed times, with every seed", async () => {
  await holds(
    timed,
    async (program) => {
      expect(await measured(program)).toEqual(expected(program));
    },
    400,
  );
});
