/**
 * The native helper, `native/helper.c`: runs C calls that are written to memory, as a list by one foreign call, or on a detached
 * thread. Without it, koffi makes every call.
 */
import { existsSync } from "node:fs";
import { fileURLToPath } from "node:url";
import { firstLine } from "../../../api/error-text.ts";
import { koffi, stackBytes } from "./koffi.ts";
import { addressOf, bind, type NativeFunction, prototype } from "./prototype.ts";

/** Version of the functions and of the layout, as in the C file. */
const helperVersion = 1;

const table = {
  version: prototype<() => number>("int twinccl_version(void)", "1"),
  mailbox: prototype<() => bigint>("void* twinccl_mailbox(void)", "1"),
  run: prototype<() => number>("int twinccl_run(void)", "1"),
  allocate: prototype<(bytes: number) => bigint | undefined>(
    "void* twinccl_allocate(size_t bytes)",
    "1",
  ),
  free: prototype<(memory: bigint) => undefined>("void twinccl_free(void* memory)", "1"),
  start: prototype<(list: bigint, stackBytes: number) => number>(
    "int twinccl_start(void* list, size_t stackBytes)",
    "1",
  ),
  commInit: prototype<() => number>("int twinccl_comm_init(void)", "1"),
} as const;

/** A C function with its arguments: integers and pointers. */
export interface BoundCall<A = bigint | number> {
  readonly call: NativeFunction;
  readonly args: readonly A[];
}

/** The loaded helper. */
export interface Helper {
  readonly path: string;
  /** One word: the address of the list that `run` runs. */
  readonly mailbox: BigUint64Array;
  /** Runs the calls of a list up to the first status other than 0; returns that status, or 0. */
  readonly run: () => number;
  /** Memory of zeros until `free`; `undefined` if there is none. */
  allocate(bytes: number): { readonly address: bigint; readonly buffer: ArrayBuffer } | undefined;
  readonly free: (address: bigint) => void;
  /** Address of memory of JavaScript, which stays there while it is referenced. */
  readonly addressOf: (memory: ArrayBuffer) => bigint;
  /** Runs a list on a detached thread; false if no thread can be started. */
  start(address: bigint): boolean;
  /** Function that makes its first argument's call with the third argument by value. */
  readonly commInit: NativeFunction;
}

let loading: Promise<Helper | string> | undefined;

/** The helper of this thread, or the reason for its absence, which is not fatal. */
export function helper(env: NodeJS.ProcessEnv = process.env): Promise<Helper | string> {
  if (env["TWINCCL_NATIVE_HELPER"] === "0") return Promise.resolve("TWINCCL_NATIVE_HELPER=0");
  loading ??= loadOwn();
  return loading;
}

/** The helper of the package. A module that a bundler has put into a CommonJS file has no address. */
async function loadOwn(): Promise<Helper | string> {
  // Its place in a checkout and in the package, the same from `src` and from `dist`.
  const place = `../../../../native/${process.platform}-${process.arch}/helper.so`;
  let path: string;
  try {
    path = fileURLToPath(new URL(place, import.meta.url));
  } catch (error) {
    return `its place is not known in this bundle: ${firstLine(error)}`;
  }
  return loadHelper(path);
}

/**
 * Loads a build of the helper, or returns why it cannot be used.
 *
 * @internal
 */
export async function loadHelper(path: string): Promise<Helper | string> {
  if (!existsSync(path)) {
    return `there is no ${path}: npm run build builds it on Linux where there is a C compiler`;
  }
  try {
    const { address: addressOf, view } = await koffi();
    const bound = await bind(path, table);
    const version = bound.version?.() ?? "unknown";
    const { mailbox, run, allocate, free, start, commInit } = bound;
    if (version !== helperVersion || !(mailbox && run && allocate && free && start && commInit)) {
      return `${path} is of version ${version}, needs ${helperVersion}: npm run build builds it`;
    }
    return {
      path,
      mailbox: new BigUint64Array(view(mailbox(), wordBytes)),
      run,
      allocate(bytes) {
        const address = allocate(bytes) ?? undefined;
        return address === undefined ? undefined : { address, buffer: view(address, bytes) };
      },
      free,
      addressOf,
      start: (address) => start(address, stackBytes) === 0,
      commInit,
    };
  } catch (error) {
    return `${path} cannot be loaded: ${firstLine(error)}`;
  }
}

/** Bytes of a word. */
export const wordBytes = 8;
/** Words before the calls of a list: the status with a flag, and the index of the call that failed. */
export const headWords = 2;
/** Most arguments of a call. */
const maxArguments = 8;
const wordsPerCall = 1 + maxArguments;

/** Words of a list, with the null word that terminates it. */
export function listWords(calls: number): number {
  return headWords + wordsPerCall * calls + 1;
}

/** Writes calls to the memory of a list. */
export function writeCalls(words: BigUint64Array, calls: readonly BoundCall[]): void {
  for (const [at, { call, args }] of calls.entries()) {
    if (args.length > maxArguments) throw new RangeError(`${args.length} arguments in a list`);
    let word = headWords + wordsPerCall * at;
    words[word] = addressOf(call);
    for (const each of args) words[++word] = BigInt(each);
  }
  words[listWords(calls.length) - 1] = 0n;
}
