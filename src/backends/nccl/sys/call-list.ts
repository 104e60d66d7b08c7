/**
 * Lists of C calls with their arguments, each list made by one foreign call without arguments. A foreign call costs more the
 * more arguments it has: starting a list costs less than a foreign call of NCCL, however many calls it holds.
 */
import { type MachineCode, mapCode, pageBytes } from "./code-memory.ts";
import { koffi } from "./koffi.ts";

/** A C function by its address, with its arguments. */
export interface ListedCall {
  readonly address: bigint;
  /** Integers and pointers. */
  readonly args: readonly (bigint | number)[];
}

/** The parts of lists: the code, ready to run. */
export interface ListRunner {
  /** Makes the calls of the list in the mailbox; gives the status of the one that it ended at, or 0. */
  readonly run: () => number;
  /** One word: the list that is to run, and then where it ended. */
  readonly mailbox: BigUint64Array;
  /** Where lists are written. */
  readonly memory: ListMemory;
}

let mapped: Promise<ListRunner | string> | undefined;

/** The parts of this thread's lists; or the reason why there are none, which is not fatal. */
export function listRunner(env: NodeJS.ProcessEnv = process.env): Promise<ListRunner | string> {
  if (env["TWINCCL_CALL_LISTS"] === "0") return Promise.resolve("TWINCCL_CALL_LISTS=0");
  mapped ??= mapRunner();
  return mapped;
}

/** The code has its mailbox in the page behind it. */
async function mapRunner(): Promise<ListRunner | string> {
  const pages = await mapCode(listCode);
  if (typeof pages === "string") return pages;
  const { address, decode, proto } = await koffi();
  return {
    run: decode(pages.address, proto("int ()")) as () => number,
    mailbox: new BigUint64Array(pages.buffer, pageBytes, 1),
    memory: new ListMemory(address),
  };
}

/** C calls that are made together, as often as wanted. */
export class CallList {
  /** Native code reads it: its words live as long as the list. */
  readonly #place: ListPlace;
  readonly #mailbox: BigUint64Array;
  readonly #runner: () => number;

  constructor({ run, mailbox, memory }: ListRunner, calls: readonly ListedCall[]) {
    this.#place = memory.take(wordsPerCall * calls.length + 1);
    this.#mailbox = mailbox;
    this.#runner = run;
    const { words } = this.#place;
    for (const [at, { address, args }] of calls.entries()) {
      if (args.length > mostArguments) throw new RangeError(`${args.length} arguments in a list`);
      let word = wordsPerCall * at;
      words[word] = address;
      for (const each of args) words[++word] = BigInt(each);
    }
  }

  /** Makes the calls in their order, up to one that gives another status than 0; gives that status, or 0. */
  run(): number {
    this.#mailbox[0] = this.#place.address;
    return this.#runner();
  }

  /** The index of the call at which the last `make` ended; the list's length where it made all of them. */
  endedAt(): number {
    const ended = this.#mailbox[0] as bigint;
    return Number(ended - this.#place.address) / (8 * wordsPerCall);
  }
}

/** Arguments that a call of a list can have. */
const mostArguments = 8;
/** The words of a call: its function and its arguments. */
const wordsPerCall = 1 + mostArguments;

/** @internal */
export const listCode: MachineCode = [
  ["endbr64", "f3 0f 1e fa"],
  ["push %rbx", "53"],
  ["mov mailbox(%rip), %rbx", "48 8b 1d f4 0f 00 00"],
  ["next: mov (%rbx), %rax", "48 8b 03"],
  ["test %rax, %rax", "48 85 c0"],
  ["je end", "74 2e"],
  // Two words more keep the stack where calls want it: at a multiple of 16.
  ["push 64(%rbx)", "ff 73 40"],
  ["push 56(%rbx)", "ff 73 38"],
  ["mov 8(%rbx), %rdi", "48 8b 7b 08"],
  ["mov 16(%rbx), %rsi", "48 8b 73 10"],
  ["mov 24(%rbx), %rdx", "48 8b 53 18"],
  ["mov 32(%rbx), %rcx", "48 8b 4b 20"],
  ["mov 40(%rbx), %r8", "4c 8b 43 28"],
  ["mov 48(%rbx), %r9", "4c 8b 4b 30"],
  ["call *%rax", "ff d0"],
  ["add $16, %rsp", "48 83 c4 10"],
  // The next call comes when this one's status is 0; at the end of the list `rax` is the null that ended it.
  ["test %eax, %eax", "85 c0"],
  ["jne end", "75 06"],
  ["add $72, %rbx", "48 83 c3 48"],
  ["jmp next", "eb ca"],
  ["end: mov %rbx, mailbox(%rip)", "48 89 1d b7 0f 00 00"],
  ["pop %rbx", "5b"],
  ["ret", "c3"],
];

/** Words of a list that stay in place as long as they are referenced, all zero at first. */
export interface ListPlace {
  readonly words: BigUint64Array;
  readonly address: bigint;
}

/**
 * Lists of a few calls come a hundred to a piece, and one that stays keeps no more than this from being given back.
 *
 * @internal
 */
export const pieceWords = 1024;
/** Longer lists have memory of their own, and leave the piece to others. */
const mostShared = pieceWords / 4;
const wordBytes = 8;

/** Gives places out of pieces; a piece but the newest goes when none of its places is held any more. */
export class ListMemory {
  readonly #addressOf: (memory: ArrayBuffer) => bigint;
  #piece = new ArrayBuffer(0);
  #address = 0n;
  #usedBytes = 0;

  constructor(addressOf: (memory: ArrayBuffer) => bigint) {
    this.#addressOf = addressOf;
  }

  /** A place that was never used. */
  take(words: number): ListPlace {
    // Buffers as such: the words of a small array may lie in memory that moves.
    const bytes = words * wordBytes;
    if (words > mostShared) {
      const own = new ArrayBuffer(bytes);
      return { words: new BigUint64Array(own), address: this.#addressOf(own) };
    }
    if (this.#usedBytes + bytes > this.#piece.byteLength) {
      const piece = new ArrayBuffer(pieceWords * wordBytes);
      this.#address = this.#addressOf(piece);
      this.#piece = piece;
      this.#usedBytes = 0;
    }
    const at = this.#usedBytes;
    this.#usedBytes += bytes;
    return {
      words: new BigUint64Array(this.#piece, at, words),
      address: this.#address + BigInt(at),
    };
  }
}
