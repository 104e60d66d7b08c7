/** A bound library whose functions return a status: their calls by the names of the table, checked. */
import {
  type Bound,
  type NativeFunction,
  need,
  type PrototypeTable,
  symbolOf,
} from "../sys/prototype.ts";

/** Arguments of a function. */
export type ArgsOf<F> = F extends (...args: infer A) => unknown ? A : never;
/** Arguments after the memory for the result. */
type RestOf<F> = F extends (out: never, ...rest: infer A) => unknown ? A : never;

type Name<T> = keyof T & string;
type FunctionOf<T extends PrototypeTable, K extends Name<T>> = NonNullable<Bound<T>[K]>;

/** The parts of every call. */
export interface NativeLibrary<T extends PrototypeTable> {
  /** A function that must be there; throws by name when the library lacks it. */
  get<K extends Name<T>>(name: K): FunctionOf<T, K>;
  has(name: Name<T>): boolean;
  /** Throws unless the status of a function is success; `comm` is the communicator that it was called for. */
  check(status: number, name: Name<T>, comm?: bigint): void;
  /** Makes a call; throws unless its status is success. */
  call<K extends Name<T>>(name: K, args: ArgsOf<FunctionOf<T, K>>, comm?: bigint): void;
  /** The int that a call writes to its first argument. */
  int<K extends Name<T>>(name: K, ...rest: RestOf<FunctionOf<T, K>>): number;
  /** The handle or address that a call writes to its first argument. */
  handle<K extends Name<T>>(name: K, ...rest: RestOf<FunctionOf<T, K>>): bigint;
}

/** Wraps a library; `fail` throws for a status other than success of a C function. */
export function nativeLibrary<T extends PrototypeTable>(
  table: T,
  bound: Bound<T>,
  fail: (status: number, cCall: string, comm?: bigint) => never,
): NativeLibrary<T> {
  const get = <K extends Name<T>>(name: K) => need(table, bound, name);
  const check = (status: number, name: Name<T>, comm?: bigint): void => {
    if (status !== 0) fail(status, symbolOf(table[name] as T[string]), comm);
  };
  const call = (name: Name<T>, args: readonly unknown[], comm?: bigint): void =>
    check((get(name) as NativeFunction)(...args) as number, name, comm);
  return {
    get,
    check,
    call,
    has: (name) => bound[name] !== undefined,
    int(name, ...rest) {
      const out = new Int32Array(1);
      call(name, [out, ...rest]);
      return out[0] as number;
    },
    handle(name, ...rest) {
      const out = new BigUint64Array(1);
      call(name, [out, ...rest]);
      return out[0] as bigint;
    },
  };
}
