/** Random calls that fold, and their results as bytes, for comparing executors. */
import fc from "fast-check";
import {
  asDType,
  type Backend,
  type Communicator,
  type Data,
  type DeviceBuffer,
  type DType,
  dtypeInfo,
  dtypes,
  type HostArray,
  type ReduceOp,
} from "twinccl";
import { type Executor, type SimOptions, sim } from "twinccl/sim";
import { payloadBytes } from "../../src/testing/payload.ts";
import { OpenWorlds } from "./open-worlds.ts";

/** Plans that an executor runs; names for failures. */
const planned: Readonly<Record<string, SimOptions>> = {
  ring: { algorithms: { allReduce: "ring", reduceScatter: "ring", reduce: "chain" } },
  trees: { algorithms: { allReduce: "double-tree", reduce: "binomial" } },
  doubling: { algorithms: { allReduce: "recursive-doubling", reduceScatter: "recursive-halving" } },
  halving: { algorithms: { allReduce: "halving-doubling" } },
  linear: { algorithms: { allReduce: "linear" } },
  LL: { like: "nccl-2.28", plan: { protocol: "LL" } },
  LL128: { like: "nccl-2.28", plan: { protocol: "LL128" } },
  Simple: { like: "nccl-2.28", plan: { protocol: "Simple" } },
  hosts: { like: "nccl-2.28", topology: "h200-hosts" },
  "trees of hosts": { like: "nccl-2.28", topology: "h200-hosts", plan: { algorithm: "Tree" } },
  "trees of hosts over LL128": {
    ...{ like: "nccl-2.28", topology: "h200-hosts" },
    plan: { algorithm: "Tree", protocol: "LL128" },
  },
};

/** A call of all ranks. Buffers begin so many elements into their memory. */
export interface FoldingCase {
  readonly plan: string;
  readonly collective: "allReduce" | "reduceScatter" | "reduce" | "allGather";
  readonly dtype: DType;
  readonly operator: "sum" | "prod" | "min" | "max" | "avg" | "preMul";
  readonly size: number;
  readonly count: number;
  readonly sendStart: number;
  readonly recvStart: number;
  readonly place: "alloc" | "symmetric" | "host" | "mixed";
  readonly inPlace: boolean;
  readonly seed: number;
}

/** Calls of up to `maxCount` elements. */
export function foldingCases(maxCount: number): fc.Arbitrary<FoldingCase> {
  return fc.record({
    plan: fc.constantFrom(...Object.keys(planned)),
    collective: fc.constantFrom("allReduce", "allReduce", "reduceScatter", "reduce", "allGather"),
    dtype: fc.constantFrom(...dtypes),
    operator: fc.constantFrom("sum", "prod", "min", "max", "avg", "preMul"),
    size: fc.integer({ min: 1, max: 8 }),
    count: fc.oneof(fc.integer({ min: 0, max: 40 }), fc.integer({ min: 0, max: maxCount })),
    sendStart: fc.integer({ min: 0, max: 5 }),
    recvStart: fc.integer({ min: 0, max: 5 }),
    place: fc.constantFrom("alloc", "alloc", "symmetric", "host", "mixed"),
    inPlace: fc.boolean(),
    seed: fc.integer(),
  });
}

/** An executor with its worlds, one for each plan and size. */
export class Subject {
  readonly name: string;
  readonly #worlds: Readonly<Record<string, OpenWorlds>>;

  constructor(name: string, executor: Executor) {
    this.name = name;
    const open = (plan: string) => (): Backend => sim({ executor, ...planned[plan] });
    this.#worlds = Object.fromEntries(
      Object.keys(planned).map((plan) => [plan, new OpenWorlds(open(plan))]),
    );
  }

  /** The bytes of all memory of every rank after the call. */
  async run(drawn: FoldingCase): Promise<Uint8Array[]> {
    const worlds = this.#worlds[drawn.plan] as OpenWorlds;
    return worlds.use(drawn.size, (world) => world.run((comm) => runCase(comm, drawn)));
  }

  async close(): Promise<void> {
    for (const worlds of Object.values(this.#worlds)) await worlds.close();
  }
}

async function runCase(comm: Communicator, drawn: FoldingCase): Promise<Uint8Array> {
  const { collective, count } = drawn;
  const { recvs, sends } = lengths(drawn, comm.size);
  // Symmetric sums of small types are defined at multiples of 4 bytes only.
  const align = drawn.place === "symmetric" ? 4 : 1;
  const sendStart = align * drawn.sendStart;
  const recvStart = align * drawn.recvStart;
  const from = memoryOf(comm, drawn, sendStart + sends, drawn.seed);
  const into = memoryOf(comm, drawn, recvStart + recvs, drawn.seed ^ 1);
  const send = part(from, drawn.dtype, sendStart, sends);
  const recv = part(into, drawn.dtype, recvStart, recvs);
  const op = operatorOf(drawn);
  const inPlace = drawn.inPlace && collective === "allReduce";
  const root = count % comm.size;
  const given = comm.rank === root ? { recv } : {};
  if (inPlace) await comm.allReduce({ send, op });
  else if (collective === "allReduce") await comm.allReduce({ send, recv, op });
  else if (collective === "reduceScatter") await comm.reduceScatter({ send, recv, op });
  else if (collective === "reduce") await comm.reduce({ send, op, root, ...given });
  else await comm.allGather({ send, recv });
  const found = [await bytesIn(from), await bytesIn(into)];
  for (const data of [from, into]) if (!ArrayBuffer.isView(data)) data.dispose();
  return Uint8Array.from(found.flatMap((bytes) => [...bytes]));
}

type Memory = DeviceBuffer | HostArray;

function part(memory: Memory, dtype: DType, begin: number, length: number): Data {
  if (!ArrayBuffer.isView(memory)) return memory.subarray(begin, begin + length);
  const array = memory.subarray(begin, begin + length);
  return asDType(array as Float32Array, dtype as "float32");
}

function lengths(drawn: FoldingCase, size: number): { sends: number; recvs: number } {
  const { collective, place } = drawn;
  // Of small types, blocks in symmetric memory must keep to 4 bytes too.
  const count = place === "symmetric" ? drawn.count - (drawn.count % 4) : drawn.count;
  return {
    sends: collective === "reduceScatter" ? count * size : count,
    recvs: collective === "allGather" ? count * size : count,
  };
}

/** Memory with any bits in it, where the case has it on this rank. */
function memoryOf(comm: Communicator, drawn: FoldingCase, length: number, seed: number): Memory {
  const { dtype } = drawn;
  const request = { dtype, payload: "bits", size: comm.size, seed } as const;
  const bytes = payloadBytes(request, comm.rank, length);
  const contents = dtypeInfo[dtype].view(bytes.buffer, 0, length);
  const onHost = drawn.place === "host" || (drawn.place === "mixed" && comm.rank % 2 === 0);
  if (onHost) return contents;
  const symmetric = drawn.place === "symmetric";
  return comm.alloc(dtype, length, { symmetric }).copyFrom(contents as never);
}

function operatorOf({ operator, dtype, seed }: FoldingCase): ReduceOp {
  if (operator !== "preMul") return operator;
  const { kind } = dtypeInfo[dtype];
  const scalars = kind === "float" ? [1 / 3, -2.5, 0.5, 1e30, -0, 1e-30] : [3, 0, 7, 101];
  return { preMul: scalars[Math.abs(seed) % scalars.length] as number };
}

async function bytesIn(data: Memory): Promise<Uint8Array> {
  const array = ArrayBuffer.isView(data) ? data : await data.toHost();
  return new Uint8Array(array.buffer, array.byteOffset, array.byteLength);
}
