/** Random programs that repeat calls with the same buffers, and the memory that they leave. */
import fc from "fast-check";
import type {
  CommError,
  CommOp,
  CommStats,
  Communicator,
  DeviceBuffer,
  NamedReduceOp,
  World,
} from "twinccl";

const kinds = [
  "summed",
  "allReduce",
  "reduce",
  "broadcast",
  "allGather",
  "reduceScatter",
  "allGatherv",
  "reduceScatterv",
  "gather",
  "scatter",
  "allToAll",
  "allToAllv",
  "barrier",
] as const;

/** The value that refills a memory in between, so that a call that is left out leaves it. */
const refilled = -7;

/** The call of every rank; small numbers, so that much of it recurs. */
interface Call {
  readonly kind: (typeof kinds)[number];
  readonly op: NamedReduceOp;
  readonly root: number;
  /** The memories of the call. */
  readonly from: number;
  readonly into: number;
  /** Elements a block; one rank's has one more, where there is such a rank. */
  readonly block: number;
  readonly longer: number;
  /** Elements between blocks, and whether the first rank's comes last. */
  readonly gap: number;
  readonly backwards: boolean;
}

interface Step extends Call {
  readonly times: number;
  readonly awaited: boolean;
  /** The number of calls from the last one at which the result's memory is refilled; beyond the program for never. */
  readonly refill: number;
}

/** A program for so many ranks. */
export interface Repeated {
  readonly size: number;
  readonly steps: readonly Step[];
}

const few = (most: number) => fc.nat({ max: most });
const fields = {
  op: fc.constantFrom<NamedReduceOp>("sum", "max"),
  ...{ root: few(1), from: few(1), into: few(1) },
  ...{ block: few(1), longer: few(4), gap: few(1), backwards: fc.boolean() },
};
const call: fc.Arbitrary<Call> = fc.record({ kind: fc.constantFrom(...kinds), ...fields });
const change = fc.oneof(
  ...Object.entries(fields).map(([name, value]) => {
    return (value as fc.Arbitrary<unknown>).map((given) => ({ [name]: given }) as Partial<Call>);
  }),
);

/** Mostly few; sometimes so often that what is repeated is kept as a list of foreign calls. */
const times = fc.oneof(
  { weight: 12, arbitrary: fc.integer({ min: 1, max: 3 }) },
  { weight: 1, arbitrary: fc.integer({ min: 60, max: 90 }) },
);

/** A few calls, of which single things are changed from one time to the next. */
export function repeatedPrograms(sizes: fc.Arbitrary<number>): fc.Arbitrary<Repeated> {
  return fc
    .record({
      size: sizes,
      calls: fc.array(call, { minLength: 1, maxLength: 3 }),
      turns: fc.array(
        fc.record({ at: few(2), changed: change, times, awaited: fc.boolean(), refill: few(30) }),
        { minLength: 2, maxLength: 20 },
      ),
    })
    .map(({ size, calls, turns }) => {
      const now = [...calls];
      const steps = turns.map(({ at, changed, ...turn }): Step => {
        const which = at % now.length;
        const next = { ...(now[which] as Call), ...changed };
        now[which] = next;
        return { ...next, ...turn };
      });
      return { size, steps };
    });
}

/** Gives views of memory: always the same object for the same place, or always a new one. */
class Views {
  readonly #memories: readonly DeviceBuffer<"int32">[];
  readonly #kept: Map<string, DeviceBuffer<"int32">> | undefined;

  constructor(memories: readonly DeviceBuffer<"int32">[], keeps: boolean) {
    this.#memories = memories;
    this.#kept = keeps ? new Map() : undefined;
  }

  of(memory: number, start: number, length: number): DeviceBuffer<"int32"> {
    const key = `${memory} ${start} ${length}`;
    const known = this.#kept?.get(key);
    if (known !== undefined) return known;
    const view = (this.#memories[memory] as DeviceBuffer<"int32">).subarray(start, start + length);
    this.#kept?.set(key, view);
    return view;
  }
}

const sum = (counts: readonly number[]): number => counts.reduce((total, each) => total + each, 0);

/** Where blocks begin that have gaps between them. */
function offsetsOf(counts: readonly number[], { gap, backwards }: Call): number[] {
  const before = (at: number) => (backwards ? counts.slice(at + 1) : counts.slice(0, at));
  return counts.map((_, at) => sum(before(at)) + before(at).length * gap);
}

/** Lists of the caller's own, written for every call. */
type Lists = Record<"sendCounts" | "sendOffsets" | "recvCounts" | "recvOffsets", number[]>;

function write(list: number[], values: readonly number[]): number[] {
  list.splice(0, list.length, ...values);
  return list;
}

/** Makes a rank's call. */
function make(comm: Communicator, views: Views, lists: Lists, step: Call): CommOp {
  const { rank, size } = comm;
  const { kind, op, from, block, longer, gap } = step;
  const into = 2 + step.into;
  const root = step.root % size;
  const counts = Array.from({ length: size }, (_, at) => block + (at === longer ? 1 : 0));
  const offsets = offsetsOf(counts, step);
  const [whole, spread] = [sum(counts), sum(counts) + gap * size];
  const even = block * size;
  const isRoot = rank === root;
  switch (kind) {
    case "summed":
      // Its result shows the number of calls.
      return comm.allReduce({ send: views.of(into, 0, even), op: "sum" });
    case "allReduce":
      return comm.allReduce({ send: views.of(from, 0, even), recv: views.of(into, 0, even), op });
    case "reduce": {
      const recv = isRoot && { recv: views.of(into, 0, even) };
      return comm.reduce({ send: views.of(from, 0, even), ...recv, op, root });
    }
    case "broadcast": {
      const send = isRoot && { send: views.of(from, 0, even) };
      return comm.broadcast({ recv: views.of(into, 0, even), ...send, root });
    }
    case "allGather":
      return comm.allGather({ send: views.of(from, 0, block), recv: views.of(into, 0, even) });
    case "reduceScatter": {
      const recv = views.of(into, 0, block);
      return comm.reduceScatter({ send: views.of(from, 0, even), recv, op });
    }
    case "allGatherv": {
      const send = views.of(from, 0, counts[rank] as number);
      const recv = views.of(into, 0, spread);
      const recvCounts = write(lists.recvCounts, counts);
      const recvOffsets = write(lists.recvOffsets, offsets);
      return comm.allGatherv({ send, recv, recvCounts, recvOffsets });
    }
    case "reduceScatterv": {
      const recv = views.of(into, 0, counts[rank] as number);
      const sendCounts = write(lists.sendCounts, counts);
      return comm.reduceScatterv({ send: views.of(from, 0, whole), recv, op, sendCounts });
    }
    case "gather": {
      const send = views.of(from, 0, counts[rank] as number);
      if (!isRoot) return comm.gather({ send, root });
      const recvCounts = write(lists.recvCounts, counts);
      const recvOffsets = write(lists.recvOffsets, offsets);
      return comm.gather({ send, root, recv: views.of(into, 0, spread), recvCounts, recvOffsets });
    }
    case "scatter": {
      const recv = views.of(into, 0, counts[rank] as number);
      if (!isRoot) return comm.scatter({ recv, root });
      const sendCounts = write(lists.sendCounts, counts);
      const sendOffsets = write(lists.sendOffsets, offsets);
      return comm.scatter({ recv, root, send: views.of(from, 0, spread), sendCounts, sendOffsets });
    }
    case "allToAll":
      return comm.allToAll({ send: views.of(from, 0, even), recv: views.of(into, 0, even) });
    case "allToAllv": {
      const send = views.of(from, 0, spread);
      const recv = views.of(into, 0, ((counts[rank] as number) + gap) * size);
      const received = new Array<number>(size).fill(counts[rank] as number);
      return comm.allToAllv({
        ...{ send, recv, sendCounts: write(lists.sendCounts, counts) },
        sendOffsets: write(lists.sendOffsets, offsets),
        recvCounts: write(lists.recvCounts, received),
        recvOffsets: write(lists.recvOffsets, offsetsOf(received, step)),
      });
    }
    case "barrier":
      return comm.barrier() as CommOp;
  }
}

/** The state after a program: a rank's memories, the outcome of each call, and the counts so far. */
export interface Left {
  readonly ends: readonly string[];
  readonly held: readonly (readonly number[])[];
  readonly stats: CommStats;
}

/** Runs a program: with the same views of memory for the same place, or with a new one for every call. */
export function run(
  world: World,
  { size, steps }: Repeated,
  keeps: boolean,
): Promise<readonly Left[]> {
  return world.run(async (comm) => {
    const memories = [0, 1, 2, 3].map((memory) => {
      const values = Int32Array.from({ length: 5 * size }, (_, at) => {
        return 1000 * comm.rank + 100 * memory + at;
      });
      return comm.alloc("int32", values.length).copyFrom(values);
    });
    const views = new Views(memories, keeps);
    const own = (): Lists => ({ sendCounts: [], sendOffsets: [], recvCounts: [], recvOffsets: [] });
    const lists = own();
    const ops: Promise<string>[] = [];
    for (const step of steps) {
      for (let time = 0; time < step.times; time++) {
        if (time === step.times - 1 - step.refill) {
          await Promise.all(ops);
          memories[2 + step.into]?.fill(refilled);
        }
        const op = make(comm, views, keeps ? lists : own(), step);
        const ended = op.then(
          () => "done",
          (error: unknown) => (error as CommError).message,
        );
        ops.push(ended);
        if (step.awaited) await ended;
      }
    }
    const ends = await Promise.all(ops);
    const held = await Promise.all(memories.map((memory) => memory.toHost()));
    for (const memory of memories) memory.dispose();
    return { ends, held: held.map((each) => Array.from(each)), stats: comm.stats() };
  });
}
