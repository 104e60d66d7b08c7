/** Tables of C functions: each row holds the C declaration and its TypeScript type. */
import { BackendUnavailableError } from "../../../api/index.ts";
import { inPlainTypes, koffi } from "./koffi.ts";

/** A C function: its declaration, and the library version that introduced it. */
export interface Prototype<F extends NativeFunction> {
  readonly c: string;
  readonly since: string;
  /** Never set: carries the type of the function. */
  readonly type?: F;
}

/** A function of a native library, bound by koffi. */
// biome-ignore lint/suspicious/noExplicitAny: a row's parameters are its own.
export type NativeFunction = (...args: any[]) => number | bigint | string | undefined;

/** A table of functions by the name that TypeScript code uses. */
export type PrototypeTable = Readonly<Record<string, Prototype<NativeFunction>>>;

/** The functions of a table, bound to a loaded library; missing functions are `undefined`. */
export type Bound<T extends PrototypeTable> = {
  readonly [K in keyof T]: T[K] extends Prototype<infer F> ? F | undefined : never;
};

/** One row. */
export function prototype<F extends NativeFunction>(c: string, since: string): Prototype<F> {
  return { c, since };
}

/** Addresses of bound functions, for calls by address. */
const addresses = new WeakMap<NativeFunction, bigint>();

/** The address of a bound function. */
export function addressOf(bound: NativeFunction): bigint {
  const address = addresses.get(bound);
  if (address === undefined) throw new TypeError("the function is not bound");
  return address;
}

/** The C name of a row. */
export function symbolOf({ c }: Prototype<NativeFunction>): string {
  return /(\w+)\s*\(/.exec(c)?.[1] ?? c;
}

/**
 * Loads a library from one path and binds its functions of a table.
 *
 * @throws Error with the loader's message if the path cannot be loaded.
 */
export async function bind<T extends PrototypeTable>(path: string, table: T): Promise<Bound<T>> {
  const { address, load } = await koffi();
  const library = load(path);
  await keepLoaded(path);
  const entries = Object.entries(table).map(([name, row]) => {
    try {
      const bound = library.func(inPlainTypes(row.c)) as NativeFunction;
      addresses.set(bound, address(library.symbol(symbolOf(row))));
      return [name, bound];
    } catch (error) {
      if (/cannot find function/i.test(String(error))) return [name, undefined];
      throw error;
    }
  });
  return Object.fromEntries(entries) as Bound<T>;
}

/**
 * Returns a function that the library must have.
 *
 * @throws BackendUnavailableError with the function and the version that introduced it.
 */
export function need<T extends PrototypeTable, K extends keyof T & string>(
  table: T,
  bound: Bound<T>,
  name: K,
): NonNullable<Bound<T>[K]> {
  const found = bound[name];
  if (found !== undefined) return found as NonNullable<Bound<T>[K]>;
  const row = table[name] as Prototype<NativeFunction>;
  throw new BackendUnavailableError({
    headline: `the loaded library has no function ${symbolOf(row)}`,
    hint: `it exists since version ${row.since}: install a newer library, or leave out what needs it`,
  });
}

/** Flags of `dlopen` on Linux: resolve now, and never unload. */
const now = 0x2;
const neverUnload = 0x1000;

type Dlopen = (path: string, flags: number) => bigint | null;

let dlopen: Promise<Dlopen | undefined> | undefined;

/** Loads the library again so that it is never unloaded; without effect if `dlopen` is missing. */
async function keepLoaded(path: string): Promise<void> {
  if (process.platform !== "linux") return;
  dlopen ??= findDlopen();
  (await dlopen)?.(path, now | neverUnload);
}

async function findDlopen(): Promise<Dlopen | undefined> {
  const { load } = await koffi();
  // Older C libraries have `dlopen` in a separate library.
  for (const name of ["libc.so.6", "libdl.so.2"]) {
    try {
      return load(name).func("void* dlopen(const char* path, int flags)") as unknown as Dlopen;
    } catch {
      // The next library may have it.
    }
  }
  return undefined;
}
