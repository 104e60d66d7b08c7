/** The memory of a thread of C calls: the calls with all arguments, and their results. */
import { type PageCalls, pageBytes } from "./code-memory.ts";
import { outcomeWords, registerWords, stackWords, wordsPerCall } from "./thread-code.ts";

/** A structure that goes by value. */
export interface Value {
  readonly internal: Uint8Array;
}

/** An argument of a call; memory is passed as the address of a copy, which is copied back when the calls are done. */
export type Argument = bigint | number | ArrayBufferView | Value;

/** A C function by its address, with its arguments. */
export interface ThreadedCall {
  readonly address: bigint;
  readonly args: readonly Argument[];
}

/** Calls that were made one after another, up to one that gave another status than 0. */
export interface Outcome {
  /** That of the last call. */
  readonly status: number;
  /** Number of calls before the one that failed; all where none did. */
  readonly endedAt: number;
}

const wordBytes = 8;

/** Bytes up to the end of the word that they end in. */
function inWords(bytes: number): number {
  return Math.ceil(bytes / wordBytes) * wordBytes;
}

/** Bytes of a record before the memory that its calls are given: the outcome, the calls, and the null that ends them. */
function bytesBefore(calls: readonly ThreadedCall[]): number {
  return (outcomeWords + wordsPerCall * calls.length + 1) * wordBytes;
}

const [firstLookMs, lastLookMs] = [1, 100];
/** Looking more seldom the longer it takes delays no outcome by more than this part of its time. */
const lookEvery = 1 / 16;

/** Pages that stay: a thread that is never heard of again may still write to them. */
export class ThreadRecord {
  readonly address: bigint;
  readonly byteLength: number;
  readonly #words: BigUint64Array;
  readonly #bytes: Uint8Array;
  /** Of the outcome's first word: the status, and whether it is there. */
  readonly #told: Int32Array;
  #copies: (() => void)[] = [];

  private constructor(address: bigint, buffer: ArrayBuffer) {
    this.address = address;
    this.byteLength = buffer.byteLength;
    this.#words = new BigUint64Array(buffer);
    this.#bytes = new Uint8Array(buffer);
    this.#told = new Int32Array(buffer, 0, 2);
  }

  /** One more with room for so much; `undefined` where the system gives no memory. */
  static of(pages: PageCalls, bytes: number): ThreadRecord | undefined {
    const taken = pages.take(Math.ceil(bytes / pageBytes));
    return taken && new ThreadRecord(taken.address, taken.buffer);
  }

  /** The room that calls need. */
  static bytesOf(calls: readonly ThreadedCall[]): number {
    const memory = calls.flatMap(({ args }) => args.filter(ArrayBuffer.isView));
    return memory.reduce(
      (bytes, { byteLength }) => bytes + inWords(byteLength),
      bytesBefore(calls),
    );
  }

  /** Writes calls down, for which there is room. */
  write(calls: readonly ThreadedCall[]): void {
    this.#words.fill(0n);
    this.#copies = [];
    let data = bytesBefore(calls);
    /** Copies memory behind the calls, and back when they are done; gives its address. */
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
      // Null ends the calls.
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

  /** Resolves when the thread is through, if ever. Looking keeps no process. */
  done(): Promise<Outcome> {
    const began = performance.now();
    return new Promise((resolve) => {
      const look = (): void => {
        if (this.#told[1] !== 0) {
          resolve(this.#read());
          return;
        }
        const wishedMs = (performance.now() - began) * lookEvery;
        setTimeout(look, Math.min(lastLookMs, Math.max(firstLookMs, wishedMs))).unref();
      };
      look();
    });
  }

  #read(): Outcome {
    for (const copy of this.#copies) copy();
    this.#copies = [];
    const endedWord = Number((this.#words[1] as bigint) - this.address) / wordBytes;
    return {
      status: this.#told[0] as number,
      endedAt: (endedWord - outcomeWords) / wordsPerCall,
    };
  }
}
