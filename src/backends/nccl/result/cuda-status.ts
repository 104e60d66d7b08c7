/** The lookup of a call of the CUDA runtime, and the error of its status. */
import { cudaTable } from "../sys/cuda.ts";
import { type Bound, need } from "../sys/prototype.ts";
import { CudaError } from "./errors.ts";

const success = 0;

/** A bound libcudart. */
export type BoundCuda = Bound<typeof cudaTable>;

/** The parts of every CUDA call. */
export interface CudaLibrary {
  /** A function that must be there; throws by name when the library lacks it. */
  get<K extends keyof typeof cudaTable>(name: K): NonNullable<BoundCuda[K]>;
  /** Throws unless the status is success. */
  check(status: number, cCall: string): void;
  /** The int that a call writes. */
  int(cCall: string, call: (out: Int32Array) => number): number;
  /** The handle or address that a call writes. */
  handle(cCall: string, call: (out: BigUint64Array) => number): bigint;
}

/** Wraps a bound libcudart for its callers. */
export function cudaLibrary(bound: BoundCuda): CudaLibrary {
  const get = <K extends keyof typeof cudaTable>(name: K) => need(cudaTable, bound, name);
  const [nameOf, textOf, clear] = [get("getErrorName"), get("getErrorString"), get("getLastError")];
  const check = (status: number, cCall: string): void => {
    if (status === success) return;
    // Else the next call that asks for the last error would find this one.
    clear();
    throw new CudaError({ cCall, status, statusName: nameOf(status), detail: textOf(status) });
  };
  return {
    get,
    check,
    int(cCall, call) {
      const out = new Int32Array(1);
      check(call(out), cCall);
      return out[0] as number;
    },
    handle(cCall, call) {
      const out = new BigUint64Array(1);
      check(call(out), cCall);
      return out[0] as bigint;
    },
  };
}
