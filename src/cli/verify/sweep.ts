/**
 * The built-in comparison of two backends: every collective, dtype and operator, rank counts from one on, and element
 * counts around the edges of chunks.
 *
 * Copying collectives are compared on arbitrary bits, and so are folding ones if both backends explain the same plan. Otherwise
 * only exact numbers must agree.
 */
import { type BitDifference, firstDifference } from "../../api/bits.ts";
import {
  type Backend,
  bytesOf,
  type Communicator,
  createWorld,
  type DType,
  dtypeInfo,
  type HostArray,
  type NamedReduceOp,
  UnsupportedError,
  type World,
} from "../../api/index.ts";
import { type CallShape, type MeasuredCollective, questionOf } from "../../bench/collectives.ts";
import { bitsOfArray, encodeBits, hostArray } from "../../bench/encode.ts";
import { Oracle } from "../../bench/oracle.ts";
import { buffersOf } from "../../bench/trial.ts";
import { mixedBits } from "../../bench/values.ts";
import { canonicalForm } from "../../golden/outputs.ts";
import { divergenceText, orderEndingAt } from "./divergence.ts";

/** One of the two backends and its name. */
export interface Side {
  readonly name: string;
  readonly backend: Backend;
}

/** The compared calls. */
interface SweepOptions {
  readonly a: Side;
  readonly b: Side;
  readonly rows: readonly MeasuredCollective[];
  readonly dtypes: readonly DType[];
  readonly ops: readonly NamedReduceOp[];
  /** Rank counts range from 1 to this one. */
  readonly maxRanks: number;
  /** Elements of a call, in the benchmark's notation; by default around the edges of chunks. */
  readonly elements: readonly number[] | undefined;
  readonly seed: number;
  readonly onProgress: (text: string) => void;
}

/** The findings on one collective. A result is the contents of one rank after one call, if any. */
export interface Comparison {
  readonly row: MeasuredCollective;
  results: number;
  identical: number;
  elements: number;
  /** Results of calls on arbitrary bits. */
  onBits: number;
  /** Calls that one of the backends does not support. */
  leftOut: number;
  /** The first difference in words. */
  first: string | undefined;
}

/** One call that both backends make. */
interface Case {
  readonly row: MeasuredCollective;
  readonly shape: CallShape;
  readonly dtype: DType;
  readonly op: NamedReduceOp;
  readonly inPlace: boolean;
  readonly payload: Payload;
  readonly input: (rank: number) => HostArray;
}

/** Output of a rank; `undefined` if the backend does not support the call. */
type Output = HostArray | undefined;

/** Most bytes of outputs held at once. */
const maxHeld = 2 ** 26;

/** Runs the comparison and yields its findings, by collective. */
export async function sweep(options: SweepOptions): Promise<Comparison[]> {
  const found = options.rows.map((row): Comparison => {
    return { row, results: 0, identical: 0, elements: 0, onBits: 0, leftOut: 0, first: undefined };
  });
  for (let ranks = 1; ranks <= options.maxRanks; ranks++) {
    const worlds: World[] = [];
    try {
      for (const { backend } of [options.a, options.b]) {
        worlds.push(await createWorld({ backend, size: ranks, name: "verify" }));
      }
      const [a, b] = worlds as [World, World];
      for (const comparison of found) {
        options.onProgress(`${comparison.row.collective} on ${ranks} of ${options.maxRanks} ranks`);
        for (const cases of batches(casesOf(options, comparison.row, a, b))) {
          const outputs = [await outputsOf(a, cases), await outputsOf(b, cases)] as const;
          for (const [index, each] of cases.entries())
            compare(comparison, options, a, each, index, outputs);
        }
      }
    } finally {
      for (const world of worlds) await world.close();
    }
  }
  return found;
}

/** Sizes at which blocks and chunks become empty, even, or one longer than others. */
function edges(ranks: number): readonly number[] {
  const square = ranks * ranks;
  const sizes = [0, 1, ranks - 1, ranks, ranks + 1, square - 1, square, square + 1, 67 * ranks + 5];
  return [...new Set(sizes)].sort((x, y) => x - y);
}

function* casesOf(
  options: SweepOptions,
  row: MeasuredCollective,
  a: World,
  b: World,
): Generator<Case> {
  const ranks = a.size;
  const { seed } = options;
  const all = row.moves ? (options.elements ?? edges(ranks)) : [0];
  for (const dtype of row.moves ? options.dtypes : (["uint8"] as const)) {
    for (const op of row.reduces ? options.ops : (["sum"] as const)) {
      for (const elements of all) {
        const root = row.rooted ? elements % ranks : -1;
        const shape = { ...row.shape(elements, ranks, { spread: 0.5, seed }), ranks, root };
        const payload = payloadOf(row, shape, dtype, op, a, b);
        const input = inputOf(row, shape, dtype, op, payload, seed);
        const common = { row, shape, dtype, op, payload, input };
        yield { ...common, inPlace: false };
        if (row.inPlace !== undefined) yield { ...common, inPlace: true };
      }
    }
  }
}

function payloadOf(
  row: MeasuredCollective,
  shape: CallShape,
  dtype: DType,
  op: NamedReduceOp,
  a: World,
  b: World,
): Payload {
  if (!row.reduces) return "bits";
  const question = questionOf(row, shape, dtype, op);
  const [planOfA, planOfB] = [a, b].map((world) => planText(world, question));
  return planOfA !== undefined && planOfA === planOfB ? "bits" : "exact";
}

/** The parts of a plan that determine the bits; `undefined` if the backend explains none. */
function planText(world: World, question: ReturnType<typeof questionOf>): string | undefined {
  try {
    const { algorithm, protocol, channels, chunks } = world.explain(question);
    return JSON.stringify({ algorithm, protocol, channels, chunks });
  } catch (error) {
    if (error instanceof UnsupportedError) return undefined;
    throw error;
  }
}

function inputOf(
  row: MeasuredCollective,
  shape: CallShape,
  dtype: DType,
  op: NamedReduceOp,
  payload: Payload,
  seed: number,
): (rank: number) => HostArray {
  const oracle = new Oracle(row, shape, dtype, op, seed);
  // The oracle's inputs of collectives that copy are arbitrary bits already.
  if (payload === "exact" || !row.reduces) return (rank) => oracle.input(rank);
  return (rank) => arbitraryBits(dtype, row.sendLength(shape, rank), seed, rank);
}

function* batches(cases: Iterable<Case>): Generator<Case[]> {
  let batch: Case[] = [];
  let held = 0;
  for (const each of cases) {
    batch.push(each);
    held += each.shape.ranks * each.shape.sizeElements * bytesOf(each.dtype);
    if (held < maxHeld) continue;
    yield batch;
    batch = [];
    held = 0;
  }
  if (batch.length > 0) yield batch;
}

/** Every rank's output of every case, by rank and case. */
async function outputsOf(world: World, cases: readonly Case[]): Promise<Output[][]> {
  return world.run(async (comm) => {
    const outputs: Output[] = [];
    for (const each of cases) outputs.push(await outputOf(comm, each));
    return outputs;
  });
}

async function outputOf(comm: Communicator, each: Case): Promise<Output> {
  const { row, shape, dtype, op } = each;
  if (!comm.supports(questionOf(row, shape, dtype, op))) return undefined;
  const { send, recv, whole } = buffersOf(comm, each);
  send.copyFrom(each.input(comm.rank));
  await row.call(comm, { shape, send, recv, op });
  const output = await recv.toHost();
  for (const buffer of whole) buffer.dispose();
  return row.reduces ? canonicalForm(output, dtype, op) : output;
}

function compare(
  comparison: Comparison,
  { a, b }: SweepOptions,
  world: World,
  each: Case,
  index: number,
  [outputsOfA, outputsOfB]: readonly [Output[][], Output[][]],
): void {
  for (let rank = 0; rank < each.shape.ranks; rank++) {
    const left = outputsOfA[rank]?.[index];
    const right = outputsOfB[rank]?.[index];
    if (left === undefined || right === undefined) {
      if (rank === 0) comparison.leftOut++;
      continue;
    }
    // A rank without output has no result to compare; for a barrier, both returns count.
    if (left.length + right.length === 0 && each.row.moves) continue;
    const difference = firstDifference(left, right, left.BYTES_PER_ELEMENT);
    comparison.results++;
    comparison.elements += left.length;
    if (each.payload === "bits") comparison.onBits++;
    if (difference === undefined) comparison.identical++;
    else if (comparison.first === undefined) {
      const text = differenceText(each, rank, difference, a.name, b.name);
      const hop = hopText(world, each, rank, difference.element, right);
      comparison.first = hop === undefined ? text : `${text}; ${hop}`;
    }
  }
}

/** The hop of the common plan at which the second result diverges; no text without a common plan. */
function hopText(
  world: World,
  { row, shape, dtype, op, payload, input }: Case,
  rank: number,
  element: number,
  found: HostArray,
): string | undefined {
  const { collective } = row;
  const isOwned = collective === "reduceScatter" || collective === "reduce";
  if (!(isOwned || collective === "allReduce") || payload !== "bits") return undefined;
  if (element >= found.length) return undefined;
  // The explanation describes rank 0's block.
  const question = { ...questionOf(row, shape, dtype, op), ...(row.rooted && { root: 0 }) };
  const { chunk, order } = world.explain(question).chunkOf(element);
  const at = collective === "reduceScatter" ? rank * shape.count + element : element;
  const one = (array: HostArray, index: number): HostArray =>
    array.slice(index, index + 1) as HostArray;
  const parting = divergenceText({
    dtype,
    op,
    order: isOwned ? orderEndingAt(order, rank) : order,
    contributions: order.map((_, each) => one(input(each), at)),
    found: one(found, element),
  });
  return `chunk ${chunk}, ${parting}`;
}

function differenceText(
  { row, shape, dtype, op, inPlace, payload }: Case,
  rank: number,
  { element, length, a, b }: BitDifference,
  nameOfA: string,
  nameOfB: string,
): string {
  const what: string[] = [row.collective, dtype];
  if (row.reduces) what.push(op);
  const root = row.rooted ? `, root ${shape.root}` : "";
  const facts = `${shape.ranks} ranks, count ${shape.count}${root}, ${inPlace ? "in place" : "out of place"}, ${payload === "bits" ? "arbitrary bits" : "exact numbers"}`;
  return `${what.join(" ")}, ${facts}: rank ${rank}, element ${element} of ${length}: ${a} on ${nameOfA}, ${b} on ${nameOfB}`;
}

/** The sent numbers. */
type Payload = "exact" | "bits";

/** Exponent of one, and bits of the fraction, in the part of an element that holds its sign. */
const formats: Readonly<Partial<Record<DType, { bias: number; fraction: number }>>> = {
  float16: { bias: 15, fraction: 10 },
  bfloat16: { bias: 127, fraction: 7 },
  float32: { bias: 127, fraction: 23 },
  // The upper of two words.
  float64: { bias: 1023, fraction: 20 },
  float8e4m3: { bias: 7, fraction: 3 },
  float8e5m2: { bias: 15, fraction: 2 },
};

/** Arbitrary bits for a rank. A third of the floats are random bits, and most others are near one. */
function arbitraryBits(dtype: DType, length: number, seed: number, rank: number): HostArray {
  const array = hostArray(dtype, length);
  encodeBits(array, 0, length, { seed, rank, index: 0 });
  const format = formats[dtype];
  if (format === undefined) return array;
  const { bytes } = dtypeInfo[dtype];
  const words = (bytes === 8 ? new Uint32Array(array.buffer) : bitsOfArray(array)) as Uint32Array;
  const width = bytes === 8 ? 2 : 1;
  const signBit = 2 ** (8 * Math.min(bytes, 4) - 1);
  for (let i = 0; i < length; i++) {
    const choice = mixedBits(~seed, rank, i);
    if (choice % 32 < 11) continue;
    const top = i * width + width - 1;
    const fraction = (words[top] as number) % 2 ** format.fraction;
    const sign = (choice >>> 5) % 2 === 0 ? 0 : signBit;
    const exponent = format.bias - 2 + ((choice >>> 6) % 4);
    words[top] = sign + exponent * 2 ** format.fraction + fraction;
    if (choice % 32 < 30) continue;
    // A zero, or the largest exponent without a fraction: infinity where the dtype has one.
    words.fill(0, i * width, top);
    words[top] = choice % 32 === 30 ? sign : signBit - 2 ** format.fraction + sign;
  }
  return array;
}
