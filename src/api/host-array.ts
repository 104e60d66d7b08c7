/**
 * Host memory given in place of a buffer: which TypedArrays are accepted, and as which dtype.
 *
 * A TypedArray of a class that names one dtype is taken as that dtype, a `Float16Array` as float16. Arrays of bits
 * (`Uint16Array`) name none, so the caller names it with `asDType`.
 */
import {
  type DType,
  dtypeInfo,
  dtypes,
  type HostArray,
  type HostArrays,
  isDType,
} from "./dtype.ts";
import { withArticle } from "./error-text.ts";
import { textOf } from "./option-kinds.ts";
import { type ArrayBytes, bytesOfArray, typedArrayClass } from "./typed-array.ts";

/** A `Float16Array`, of the runtimes that have it: the language has it since ES2025, and types that are older do not. */
export interface Float16Host extends ArrayBufferView {
  readonly BYTES_PER_ELEMENT: number;
  readonly length: number;
  readonly [Symbol.toStringTag]: "Float16Array";
  [index: number]: number;
}

/** The TypedArray class that alone names a dtype; there is none for dtypes that travel as bits, but `Float16Array`. */
export interface NamedArrays
  extends Omit<HostArrays, "float16" | "bfloat16" | "float8e4m3" | "float8e5m2"> {
  readonly float16: Float16Host;
  readonly bfloat16: never;
  readonly float8e4m3: never;
  readonly float8e5m2: never;
}

/** A TypedArray together with the dtype its memory holds. */
export interface TypedHost<D extends DType = DType> {
  readonly dtype: D;
  readonly array: HostArray<D>;
}

/** The dtype that a class of TypedArrays alone names. */
const byClass: ReadonlyMap<string, DType> = new Map([
  ...dtypes.filter((dtype) => !dtypeInfo[dtype].bits).map((d) => [dtypeInfo[d].host, d] as const),
  ["Float16Array", "float16"],
]);

/** True when a class of TypedArrays carries a dtype: its own, or the one that it names (`Float16Array`). */
export function carries(found: string | undefined, dtype: DType): boolean {
  if (found === undefined) return false;
  return found === dtypeInfo[dtype].host || byClass.get(found) === dtype;
}

/**
 * Says which dtype the bits of a TypedArray are, for the dtypes that JavaScript has no array for:
 * `asDType(new Uint16Array(8), "bfloat16")`.
 */
export function asDType<D extends DType>(array: HostArray<D>, dtype: D): TypedHost<D> {
  return { dtype, array };
}

/** Host memory given to a call, and the dtype it holds. */
export interface HostBytes extends ArrayBytes {
  readonly dtype: DType;
}

/** The reason why an argument is no host memory. */
export interface HostFault {
  readonly fault: string;
  readonly hint?: string | undefined;
}

/** The host memory behind an argument, or the reason why it is none. */
export function hostBytes(value: unknown): HostBytes | HostFault {
  // Read once: a getter may give something else the next time.
  if (isTypedHost(value)) return namedBytes({ dtype: value.dtype, array: value.array });
  const found = typedArrayClass(value);
  if (found === undefined) {
    if (isForeignBuffer(value)) {
      const hint = "import twinccl from one place; npm ls twinccl lists its copies";
      return { fault: "it is a buffer of another copy of twinccl", hint };
    }
    const hint = Array.isArray(value)
      ? "make a TypedArray of it: Float32Array.from(array)"
      : undefined;
    return { fault: `${describe(value)} is neither a buffer nor a TypedArray`, hint };
  }
  const dtype = byClass.get(found);
  if (dtype === undefined) {
    const hint = 'say which dtype an array of bits holds: asDType(new Uint16Array(8), "bfloat16")';
    return { fault: `${withArticle(found)} does not name its dtype`, hint };
  }
  return usableBytes(dtype, value as HostArray);
}

function namedBytes({ dtype, array }: TypedHost): HostBytes | HostFault {
  if (!isDType(dtype)) return { fault: `${textOf(dtype)} is no dtype` };
  const found = typedArrayClass(array);
  if (carries(found, dtype)) return usableBytes(dtype, array);
  return { fault: `${dtype} needs ${withArticle(dtypeInfo[dtype].host)}, found ${found}` };
}

function isTypedHost(value: unknown): value is TypedHost {
  return typeof value === "object" && value !== null && "array" in value && "dtype" in value;
}

/** True for a buffer whose class another copy of this package has. */
function isForeignBuffer(value: unknown): boolean {
  return typeof value === "object" && value !== null && "allocation" in value && "toHost" in value;
}

function usableBytes(dtype: DType, array: HostArray): HostBytes | HostFault {
  const bytes = bytesOfArray(array);
  const memory = bytes.buffer as ArrayBuffer & {
    readonly resizable?: boolean;
    readonly growable?: boolean;
  };
  const hint = "pass a copy, whose length is fixed: array.slice()";
  if (memory.resizable === true) return { fault: "its ArrayBuffer is resizable", hint };
  if (memory.growable === true) return { fault: "its SharedArrayBuffer is growable", hint };
  try {
    const { byteLength } = new Uint8Array(memory);
    if (byteLength !== memory.byteLength) {
      const found = `its ArrayBuffer of ${byteLength} bytes says that it has ${memory.byteLength}`;
      return { fault: found };
    }
  } catch {
    const { byteLength } = memory;
    return byteLength === 0
      ? { fault: "its ArrayBuffer was transferred away" }
      : {
          fault: `its ArrayBuffer of ${byteLength} bytes is larger than this runtime's arrays of bytes`,
        };
  }
  return { dtype, ...bytes };
}

function describe(value: unknown): string {
  if (value === null) return "null";
  return Array.isArray(value) ? "a plain array" : `${typeof value}`;
}
