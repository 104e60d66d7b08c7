/**
 * The twelve element types a buffer can hold, in one table.
 *
 * The dtype stands on the buffer and is never guessed from a byte size. Types that JavaScript has no number
 * for (16-bit and 8-bit floats) travel as their bits in an unsigned TypedArray of the same width.
 */
import { InvalidArgumentError } from "./errors.ts";
import { textOf } from "./option-kinds.ts";

/** Name of an element type, as in NCCL without its prefix. */
export type DType =
  | "int8"
  | "uint8"
  | "int32"
  | "uint32"
  | "int64"
  | "uint64"
  | "float16"
  | "bfloat16"
  | "float32"
  | "float64"
  | "float8e4m3"
  | "float8e5m2";

/** The TypedArray that carries a dtype on the host. */
export interface HostArrays {
  readonly int8: Int8Array;
  readonly uint8: Uint8Array;
  readonly int32: Int32Array;
  readonly uint32: Uint32Array;
  readonly int64: BigInt64Array;
  readonly uint64: BigUint64Array;
  readonly float16: Uint16Array;
  readonly bfloat16: Uint16Array;
  readonly float32: Float32Array;
  readonly float64: Float64Array;
  readonly float8e4m3: Uint8Array;
  readonly float8e5m2: Uint8Array;
}

/** The TypedArray of one dtype: `HostArray<"float32">` is `Float32Array`. */
export type HostArray<D extends DType = DType> = HostArrays[D];

/** The properties of one dtype: its width, its number kind and its host array. */
export interface DTypeInfo {
  /** Width of one element. */
  readonly bytes: 1 | 2 | 4 | 8;
  readonly kind: "signed" | "unsigned" | "float";
  /** True when the host array holds bit patterns instead of values. */
  readonly bits: boolean;
  /** Makes the host array over existing memory. */
  readonly view: (memory: ArrayBufferLike, byteOffset: number, length: number) => HostArray;
  /** Name of the host array's constructor, for messages. */
  readonly host: string;
}

/** Every dtype with its facts, narrowest integers first. */
export const dtypeInfo: { readonly [D in DType]: DTypeInfo } = {
  int8: row(1, "signed", false, "Int8Array", (m, o, n) => new Int8Array(m, o, n)),
  uint8: row(1, "unsigned", false, "Uint8Array", (m, o, n) => new Uint8Array(m, o, n)),
  int32: row(4, "signed", false, "Int32Array", (m, o, n) => new Int32Array(m, o, n)),
  uint32: row(4, "unsigned", false, "Uint32Array", (m, o, n) => new Uint32Array(m, o, n)),
  int64: row(8, "signed", false, "BigInt64Array", (m, o, n) => new BigInt64Array(m, o, n)),
  uint64: row(8, "unsigned", false, "BigUint64Array", (m, o, n) => new BigUint64Array(m, o, n)),
  float16: row(2, "float", true, "Uint16Array", (m, o, n) => new Uint16Array(m, o, n)),
  bfloat16: row(2, "float", true, "Uint16Array", (m, o, n) => new Uint16Array(m, o, n)),
  float32: row(4, "float", false, "Float32Array", (m, o, n) => new Float32Array(m, o, n)),
  float64: row(8, "float", false, "Float64Array", (m, o, n) => new Float64Array(m, o, n)),
  float8e4m3: row(1, "float", true, "Uint8Array", (m, o, n) => new Uint8Array(m, o, n)),
  float8e5m2: row(1, "float", true, "Uint8Array", (m, o, n) => new Uint8Array(m, o, n)),
};

/** All dtypes, in the table's order. */
export const dtypes: readonly DType[] = Object.keys(dtypeInfo) as DType[];

/** True when `value` is the name of a dtype. */
export function isDType(value: unknown): value is DType {
  return typeof value === "string" && Object.hasOwn(dtypeInfo, value);
}

/**
 * Width of one element of `dtype` in bytes.
 *
 * @throws InvalidArgumentError for what is no dtype.
 */
export function bytesOf(dtype: DType): number {
  const bytes = typeof dtype === "string" ? dtypeInfo[dtype]?.bytes : undefined;
  if (bytes === undefined) throw noDType("bytesOf", dtype);
  return bytes;
}

/** The error for what is no dtype. */
export function noDType(subject: string, found: unknown): InvalidArgumentError {
  const headline = `${subject}: ${textOf(found)} is no dtype`;
  const hint = `dtypes are ${dtypes.join(", ")}`;
  return new InvalidArgumentError({ headline, hint }, { field: "dtype" });
}

function row(
  bytes: DTypeInfo["bytes"],
  kind: DTypeInfo["kind"],
  bits: boolean,
  host: string,
  view: DTypeInfo["view"],
): DTypeInfo {
  return { bytes, kind, bits, host, view };
}
