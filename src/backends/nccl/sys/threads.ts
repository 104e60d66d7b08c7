/**
 * C calls on detached threads, which do not keep the process alive.
 *
 * Node.js has four threads for blocking calls, and cannot exit during such a call, not even by `process.exit`. NCCL's start
 * waits forever for a lost rank. A detached thread blocks neither the exit nor other calls.
 */

import { firstLine } from "../../../api/error-text.ts";
import { type MachineCode, mapCode, type PageCalls, pageBytes, pageCalls } from "./code-memory.ts";
import { koffi, stackBytes } from "./koffi.ts";

/**
 * Runs calls on a detached thread, up to the first status other than 0; `undefined` if no thread can be started. The promise
 * does not keep the process alive either; its users must, while they wait.
 */
export type OwnThreads = (calls: readonly ThreadedCall[]) => Promise<Outcome> | undefined;

let prepared: Promise<OwnThreads | string> | undefined;

/** The starter of detached threads, or the reason for its absence. */
export function ownThreads(): Promise<OwnThreads | string> {
  prepared ??= prepare().catch((error: unknown) => `no threads: ${firstLine(error)}`);
  return prepared;
}

async function prepare(): Promise<OwnThreads | string> {
  const code = await mapCode(threadCode);
  if (typeof code === "string") return code;
  const [pages, start] = await Promise.all([pageCalls(), threadStarter(code.address)]);
  /** Records that no thread writes to. */
  const idle: ThreadRecord[] = [];
  return (calls) => {
    const bytes = ThreadRecord.bytesOf(calls);
    const fitting = idle.findIndex(({ byteLength }) => byteLength >= bytes);
    const [record = ThreadRecord.of(pages, bytes)] = fitting < 0 ? [] : idle.splice(fitting, 1);
    if (record === undefined) return undefined;
    record.write(calls);
    const outcome = start(record.address) ? record.done() : undefined;
    if (outcome === undefined) idle.push(record);
    return outcome?.finally(() => idle.push(record));
  };
}

/** Starts threads at an address, with one word as argument; false if no thread can be started. */
async function threadStarter(begin: bigint): Promise<(word: bigint) => boolean> {
  const { load } = await koffi();
  const libc = threadsLibrary(load);
  const initialise = libc.func("int pthread_attr_init(void* attributes)");
  const setStack = libc.func("int pthread_attr_setstacksize(void* attributes, size_t bytes)");
  const setDetached = libc.func("int pthread_attr_setdetachstate(void* attributes, int state)");
  const create = libc.func(
    "int pthread_create(_Out_ uint64_t* thread, void* attributes, void* begin, void* word)",
  );
  const attributes = new Uint8Array(attributeBytes);
  initialise(attributes);
  setStack(attributes, stackBytes);
  setDetached(attributes, detached);
  const thread = new BigUint64Array(1);
  return (word) => create(thread, attributes, begin, word) === 0;
}

/** At least the size of a `pthread_attr_t`. */
const attributeBytes = 64;
/** `PTHREAD_CREATE_DETACHED`: no thread is joined. */
const detached = 1;

type Load = Awaited<ReturnType<typeof koffi>>["load"];

/** Older C libraries have threads in a separate library. */
function threadsLibrary(load: Load): ReturnType<Load> {
  try {
    const libc = load("libc.so.6");
    libc.symbol("pthread_attr_setstacksize");
    return libc;
  } catch {
    return load("libpthread.so.0");
  }
}

/** A structure passed by value. */
export interface Value {
  readonly internal: Uint8Array;
}

/** An argument of a call. Memory is passed as the address of a copy, which is copied back after the calls. */
export type Argument = bigint | number | ArrayBufferView | Value;

/** A C function by its address, with its arguments. */
export interface ThreadedCall {
  readonly address: bigint;
  readonly args: readonly Argument[];
}

/** Result of successive calls, up to the first status other than 0. */
export interface Outcome {
  /** Status of the last call. */
  readonly status: number;
  /** Number of calls before the failed one; the number of all calls if none failed. */
  readonly endedAt: number;
}

const wordBytes = 8;

/** Rounds bytes up to whole words. */
function inWords(bytes: number): number {
  return Math.ceil(bytes / wordBytes) * wordBytes;
}

/** Bytes of a record before the memory of its calls: the outcome, the calls, and the terminating null. */
function bytesBefore(calls: readonly ThreadedCall[]): number {
  return (outcomeWords + wordsPerCall * calls.length + 1) * wordBytes;
}

const [firstPollMs, longestPollMs] = [1, 100];
/** Ratio of the interval between checks to the time so far; it limits the relative delay of an outcome. */
const pollFraction = 1 / 16;

/** Pages that are never freed, because a thread that never returns may still write to them. */
class ThreadRecord {
  readonly address: bigint;
  readonly byteLength: number;
  readonly #words: BigUint64Array;
  readonly #bytes: Uint8Array;
  /** First word of the outcome: the status, and a flag that it is set. */
  readonly #status: Int32Array;
  #copies: (() => void)[] = [];

  private constructor(address: bigint, buffer: ArrayBuffer) {
    this.address = address;
    this.byteLength = buffer.byteLength;
    this.#words = new BigUint64Array(buffer);
    this.#bytes = new Uint8Array(buffer);
    this.#status = new Int32Array(buffer, 0, 2);
  }

  /** A new record of at least `bytes` bytes; `undefined` if the system gives no memory. */
  static of(pages: PageCalls, bytes: number): ThreadRecord | undefined {
    const taken = pages.take(Math.ceil(bytes / pageBytes));
    return taken && new ThreadRecord(taken.address, taken.buffer);
  }

  /** Bytes that calls need. */
  static bytesOf(calls: readonly ThreadedCall[]): number {
    const memory = calls.flatMap(({ args }) => args.filter(ArrayBuffer.isView));
    return memory.reduce(
      (bytes, { byteLength }) => bytes + inWords(byteLength),
      bytesBefore(calls),
    );
  }

  /** Writes calls, which must fit into the record. */
  write(calls: readonly ThreadedCall[]): void {
    this.#words.fill(0n);
    this.#copies = [];
    let data = bytesBefore(calls);
    /** Copies memory to the space after the calls, and back when they are done; returns its address. */
    const lend = ({ buffer, byteOffset, byteLength }: ArrayBufferView): bigint => {
      const at = data;
      data += inWords(byteLength);
      const given = new Uint8Array(buffer, byteOffset, byteLength);
      this.#bytes.set(given, at);
      this.#copies.push(() => given.set(this.#bytes.subarray(at, at + byteLength)));
      return this.address + BigInt(at);
    };
    for (const [number, { address, args }] of calls.entries()) {
      const call = outcomeWords + wordsPerCall * number;
      let [register, stack] = [call + 1, call + 1 + registerWords];
      const [registersEnd, stackEnd] = [stack, stack + stackWords];
      // A null address terminates the calls.
      if (address === 0n) throw new TypeError("a call on a thread has no function");
      this.#words[call] = address;
      for (const given of args) {
        if (typeof given === "object" && "internal" in given) {
          this.#bytes.set(given.internal, stack * wordBytes);
          stack += Math.ceil(given.internal.length / wordBytes);
        } else {
          this.#words[register++] = typeof given === "object" ? lend(given) : BigInt(given);
        }
      }
      if (register > registersEnd || stack > stackEnd) {
        throw new RangeError("a call on a thread has too many arguments");
      }
    }
  }

  /** Resolves when the thread is done, if ever. Its timers do not keep the process alive. */
  done(): Promise<Outcome> {
    const began = performance.now();
    return new Promise((resolve) => {
      const look = (): void => {
        if (this.#status[1] !== 0) {
          resolve(this.#read());
          return;
        }
        const pauseMs = (performance.now() - began) * pollFraction;
        setTimeout(look, Math.min(longestPollMs, Math.max(firstPollMs, pauseMs))).unref();
      };
      look();
    });
  }

  #read(): Outcome {
    for (const copy of this.#copies) copy();
    this.#copies = [];
    const endedWord = Number((this.#words[1] as bigint) - this.address) / wordBytes;
    return {
      status: this.#status[0] as number,
      endedAt: (endedWord - outcomeWords) / wordsPerCall,
    };
  }
}

/** Words before the calls: the outcome. */
const outcomeWords = 2;
/** Arguments passed in registers. */
const registerWords = 6;
/** Words passed on the stack. */
const stackWords = 16;
/** Words of a call. */
const wordsPerCall = 1 + registerWords + stackWords;

/** @internal */
export const threadCode: MachineCode = [
  ["endbr64", "f3 0f 1e fa"],
  ["push %rbx", "53"],
  ["push %r12", "41 54"],
  // One extra word keeps the stack aligned to 16 bytes, as calls require.
  ["sub $136, %rsp", "48 81 ec 88 00 00 00"],
  ["mov %rdi, %r12", "49 89 fc"],
  ["lea 16(%rdi), %rbx", "48 8d 5f 10"],
  ["next: mov (%rbx), %rax", "48 8b 03"],
  ["test %rax, %rax", "48 85 c0"],
  ["je end", "74 36"],
  ["lea 56(%rbx), %rsi", "48 8d 73 38"],
  ["mov %rsp, %rdi", "48 89 e7"],
  ["mov $16, %ecx", "b9 10 00 00 00"],
  ["rep movsq", "f3 48 a5"],
  ["mov 8(%rbx), %rdi", "48 8b 7b 08"],
  ["mov 16(%rbx), %rsi", "48 8b 73 10"],
  ["mov 24(%rbx), %rdx", "48 8b 53 18"],
  ["mov 32(%rbx), %rcx", "48 8b 4b 20"],
  ["mov 40(%rbx), %r8", "4c 8b 43 28"],
  ["mov 48(%rbx), %r9", "4c 8b 4b 30"],
  ["call *%rax", "ff d0"],
  // A status of 0 continues with the next call; after the last one `rax` is the terminating null.
  ["test %eax, %eax", "85 c0"],
  ["jne end", "75 09"],
  ["add $184, %rbx", "48 81 c3 b8 00 00 00"],
  ["jmp next", "eb c2"],
  ["end: mov %rbx, 8(%r12)", "49 89 5c 24 08"],
  ["mov %eax, %eax", "89 c0"],
  ["bts $32, %rax", "48 0f ba e8 20"],
  ["mov %rax, (%r12)", "49 89 04 24"],
  ["add $136, %rsp", "48 81 c4 88 00 00 00"],
  ["pop %r12", "41 5c"],
  ["pop %rbx", "5b"],
  ["xor %eax, %eax", "31 c0"],
  ["ret", "c3"],
];
