/** The calls of a sweep: which there are, and a rank's data and output of one. */
import {
  bytesOf,
  type CollectiveName,
  type Communicator,
  type DType,
  dtypeInfo,
  type HostArray,
  type NamedReduceOp,
  type Question,
} from "../../api/index.ts";
import {
  type CallShape,
  findCollective,
  type MeasuredCollective,
  questionOf,
} from "../../bench/collectives.ts";
import { bitsOfArray, encodeBits, hostArray } from "../../bench/encode.ts";
import { Oracle } from "../../bench/oracle.ts";
import { buffersOf } from "../../bench/trial.ts";
import { mixedBits } from "../../bench/values.ts";
import { canonicalForm } from "../../golden/outputs.ts";

/** One call as data, from which every process makes the same one. */
export interface CallKey {
  readonly collective: CollectiveName;
  /** In the benchmark's notation. */
  readonly elements: number;
  readonly ranks: number;
  readonly dtype: DType;
  readonly op: NamedReduceOp;
  readonly seed: number;
}

/** A call with its contents. */
export interface CaseKey extends CallKey {
  readonly inPlace: boolean;
  readonly payload: Payload;
}

/** The sent numbers: `exact` ones are never rounded. */
type Payload = "exact" | "bits";

/** One call that both backends make. */
export interface Case extends CaseKey {
  readonly row: MeasuredCollective;
  readonly shape: CallShape;
  readonly input: (rank: number) => HostArray;
}

/** Output of a rank; `undefined` if the backend does not support the call. */
export type Output = HostArray | undefined;

/** The calls of a collective on so many ranks: every dtype, operator and number of elements. */
export function callsOf(
  row: MeasuredCollective,
  ranks: number,
  { dtypes, ops, elements, seed }: CallRange,
): CallKey[] {
  const { collective } = row;
  const counts = row.moves ? (elements ?? edges(ranks)) : [0];
  return (row.moves ? dtypes : (["uint8"] as const)).flatMap((dtype) =>
    (row.reduces ? ops : (["sum"] as const)).flatMap((op) =>
      counts.map((elements) => ({ collective, elements, ranks, dtype, op, seed })),
    ),
  );
}

/** The calls of a sweep on each number of ranks. */
export interface CallRange {
  readonly dtypes: readonly DType[];
  readonly ops: readonly NamedReduceOp[];
  /** Elements of a call; by default around the edges of chunks. */
  readonly elements: readonly number[] | undefined;
  readonly seed: number;
}

/** Sizes at which blocks and chunks become empty, even, or one longer than others. */
function edges(ranks: number): readonly number[] {
  const square = ranks * ranks;
  const sizes = [0, 1, ranks - 1, ranks, ranks + 1, square - 1, square, square + 1, 67 * ranks + 5];
  return [...new Set(sizes)].sort((x, y) => x - y);
}

/** The question of a call to a backend. */
export function questionOfCall(key: CallKey): Question {
  const { row, shape } = callOf(key);
  return questionOf(row, shape, key.dtype, key.op);
}

function callOf({ collective, elements, ranks, seed }: CallKey): Pick<Case, "row" | "shape"> {
  const row = findCollective(collective) as MeasuredCollective;
  const root = row.rooted ? elements % ranks : -1;
  return { row, shape: { ...row.shape(elements, ranks, { spread: 0.5, seed }), ranks, root } };
}

/** The call of a key. */
export function caseOf(key: CaseKey): Case {
  const { row, shape } = callOf(key);
  return { ...key, row, shape, input: inputOf(row, shape, key) };
}

/** Bytes of all outputs of a call, about. */
export function heldBytes({ shape, dtype }: Case): number {
  return shape.ranks * shape.sizeElements * bytesOf(dtype);
}

function inputOf(
  row: MeasuredCollective,
  shape: CallShape,
  { dtype, op, payload, seed }: CaseKey,
): Case["input"] {
  const oracle = new Oracle(row, shape, dtype, op, seed);
  // The oracle's inputs of collectives that copy are arbitrary bits already.
  if (payload === "exact" || !row.reduces) return (rank) => oracle.input(rank);
  return (rank) => arbitraryBits(dtype, row.sendLength(shape, rank), seed, rank);
}

/** This rank's outputs of cases. All calls are made before the first one is awaited: ranks wait for each other once. */
export function outputsOf(comm: Communicator, cases: readonly Case[]): Promise<Output[]> {
  return Promise.all(cases.map((each) => outputOf(comm, each)));
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
  const unit = 2 ** format.fraction;
  for (let i = 0; i < length; i++) {
    const choice = mixedBits(~seed, rank, i);
    if (choice % 32 < 11) continue;
    const top = i * width + width - 1;
    const fraction = (words[top] as number) % unit;
    const sign = (choice >>> 5) % 2 === 0 ? 0 : signBit;
    const exponent = format.bias - 2 + ((choice >>> 6) % 4);
    words[top] = sign + exponent * unit + fraction;
    if (choice % 32 < 30) continue;
    // A zero, or the largest exponent without a fraction: infinity where the dtype has one.
    words.fill(0, i * width, top);
    words[top] = choice % 32 === 30 ? sign : signBit - unit + sign;
  }
  return array;
}
