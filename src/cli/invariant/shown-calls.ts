/** The calls that show answers of `twinccl invariant` on a backend: each as data, and a rank's part of it. */
import {
  type FoldOrder,
  lanesOf,
  type NcclPlan,
  type NcclVariables,
  ncclEnvironment,
  ncclPlan,
  planFolds,
  type TopologyOf,
  takeSeparate,
} from "../../algorithms/index.ts";
import { foldInOrder } from "../../algorithms/invariance/fold-in-order.ts";
import { bytesOfView, firstDifference } from "../../api/bits.ts";
import { blockLengths, postCall } from "../../api/collectives/call-layout.ts";
import {
  bytesOf,
  type Communicator,
  type DType,
  type HostArray,
  type NamedReduceOp,
} from "../../api/index.ts";
import { encodeNumbers, hostArray } from "../../bench/encode.ts";
import { type GoldenCase, type GoldenCollective, sentBlocks } from "../../golden/case.ts";
import { inputOf } from "../../golden/inputs.ts";
import { canonicalForm, hashesOf } from "../../golden/outputs.ts";

/** A call of all ranks. */
export interface ShownCall {
  readonly collective: GoldenCollective;
  readonly ranks: number;
  readonly dtype: DType;
  readonly op: NamedReduceOp;
  readonly root: number | undefined;
  readonly count: number;
  /** NCCL's variables of the call. */
  readonly variables: NcclVariables;
  /** Contributions by rank, for every element; drawn ones when left out. Ranks beyond contribute the neutral element. */
  readonly contributions?: readonly number[] | undefined;
  /** Ranks with drawn contributions; all when left out. */
  readonly present?: number | undefined;
  /** The element with reported bits. */
  readonly at?: { readonly block: number; readonly element: number } | undefined;
  readonly promise: PromisedFolds;
}

/** The promised folds: one order for each output block, or those of NCCL's plan under variables. */
interface PromisedFolds {
  readonly orders?: readonly FoldOrder[] | undefined;
  readonly variables: NcclVariables;
}

/** The machine and library of promised plans. */
export interface PromisedOn {
  readonly version: string;
  readonly topology: TopologyOf;
}

/** One rank's part of a call. */
export interface ShownPart {
  /** Bits of the reported element, where this rank has it. */
  readonly bits?: string | undefined;
  /** Hash of the output; left out where the rank has none. */
  readonly hash?: string | undefined;
  /** Elements compared with the promise, and how many differ. */
  readonly elements: number;
  readonly differing: number;
  /** The first of those, in words. */
  readonly first?: string | undefined;
  /** The plan that the library has logged, on rank 0. */
  readonly plan?: PlanText | undefined;
}

/** Algorithm, protocol and channels. */
export type PlanText = `${string} ${string} ${number}`;

/** Makes the call, and compares this rank's output with the promised folds. */
export async function shownPart(
  comm: Communicator,
  call: ShownCall,
  on: PromisedOn,
): Promise<ShownPart> {
  const { collective, dtype, op, count, at } = call;
  const { rank } = comm;
  const shape = { ranks: call.ranks, root: call.root ?? 0, count };
  const send = comm.alloc(dtype, blocksOf(call) * count);
  const recv = comm.alloc(dtype, count);
  try {
    send.copyFrom(contentsOf(call, rank));
    await postCall(comm, collective, { send, recv, op, root: shape.root });
    if (blockLengths(collective, shape, rank).recv.length === 0) {
      return { elements: 0, differing: 0 };
    }
    const output = canonicalForm(await recv.toHost(), dtype, op);
    const block = collective === "reduceScatter" ? rank : 0;
    const bits = at?.block === block ? bitsAt(output, at.element) : undefined;
    const [hash] = hashesOf([output]);
    // The other ranks of an all-reduce are compared by their hash.
    if (collective === "allReduce" && rank > 0) return { hash, elements: 0, differing: 0 };
    return { bits, hash, ...comparison(output, promisedOutput(call, block, on)) };
  } finally {
    send.dispose();
    recv.dispose();
  }
}

function comparison(
  output: HostArray,
  promised: HostArray,
): Pick<ShownPart, "elements" | "differing" | "first"> {
  const { length, BYTES_PER_ELEMENT: width } = output;
  const found = firstDifference(promised, output, width);
  if (found === undefined) return { elements: length, differing: 0 };
  const first = `element ${found.element} of ${length}: promised ${found.a}, found ${found.b}`;
  let differing = 0;
  for (let i = found.element; i < length; i++) {
    if (bitsAt(output, i) !== bitsAt(promised, i)) differing++;
  }
  return { elements: length, differing, first };
}

/** Bits of an element, as witnesses have them. */
function bitsAt(array: HostArray, element: number): string {
  const one = bytesOfView(array.subarray(element, element + 1) as HostArray);
  return `0x${Buffer.from(one).reverse().toString("hex")}`;
}

function goldenOf({ ranks, collective, dtype, op, count, root }: ShownCall): GoldenCase {
  return {
    ...{ ranks, collective, dtype, op, count, root, forced: undefined, values: "norm" },
    ...{ environment: undefined, inPlace: false, offset: 0 },
  };
}

function blocksOf(call: ShownCall): number {
  return sentBlocks(goldenOf(call));
}

/** The contributions of a rank. */
function contentsOf(call: ShownCall, rank: number): HostArray {
  const { contributions, present = call.ranks, dtype, op, count } = call;
  if (contributions === undefined && rank < present) return inputOf(goldenOf(call), rank);
  const elements = blocksOf(call) * count;
  const contents = hostArray(dtype, elements);
  // The neutral element of a sum: it changes no other zero.
  const value = contributions?.[rank] ?? (op === "prod" ? 1 : -0);
  encodeNumbers(dtype, contents, 0, elements, () => value);
  return contents;
}

/** The predicted plan of a call. */
export function planTextOf(call: ShownCall, on: PromisedOn): PlanText {
  const { algorithm, protocol, channels } = planUnder(call.variables, call, on);
  return `${algorithm} ${protocol} ${channels}`;
}

function planUnder(
  variables: NcclVariables,
  call: ShownCall,
  { version, topology }: PromisedOn,
): NcclPlan {
  const { collective, ranks, dtype, op, count, root } = call;
  const { settings, forced } = ncclEnvironment(variables);
  return ncclPlan({
    ...{ version, topology: topology(ranks), collective, dtype, op, count, root, settings },
    forced: forced(collective),
  });
}

/** The output block that the promised folds give. */
function promisedOutput(call: ShownCall, block: number, on: PromisedOn): HostArray {
  const { collective, ranks, dtype, op, count, promise } = call;
  const plan = planUnder(promise.variables, call, on);
  const { fold, separate } = planFolds(plan, op);
  const lanes = (array: HostArray) =>
    lanesOf(dtype, array.buffer, array.byteOffset, array.byteLength);
  const sources = Array.from({ length: ranks }, (_, rank) => lanes(contentsOf(call, rank)));
  const output = hostArray(dtype, count);
  const target = lanes(output);
  const start = collective === "reduceScatter" ? block * count : 0;
  const whole = promise.orders?.[block];
  const pieces =
    whole === undefined
      ? plan.pieces.filter((piece) => piece.block === block)
      : [{ offset: 0, length: count, order: whole }];
  for (const { offset, length, order } of pieces) {
    if (length === 0) continue;
    const make = () => lanes(hostArray(dtype, length));
    const folded = { sources, at: start + offset, count: length, make };
    foldInOrder(fold, order, folded, target, offset);
    if (separate === undefined) continue;
    const other = make();
    foldInOrder(separate, order, folded, other, 0);
    const own = target.subarray(offset, offset + length);
    takeSeparate(own, other, length, bytesOf(dtype), 0);
  }
  fold.finish(target, 0, count);
  return canonicalForm(output, dtype, op);
}
