/**
 * Lists of C calls with their arguments; one foreign call without arguments runs a whole list. The cost of a foreign call grows
 * with its arguments. Starting a list of any length is cheaper than one foreign call of NCCL.
 */
import { type MachineCode, mapCode, pageBytes } from "./code-memory.ts";
import { koffi } from "./koffi.ts";

/** A C function by its address, with its arguments. */
export interface ListedCall {
  readonly address: bigint;
  /** Integers and pointers. */
  readonly args: readonly (bigint | number)[];
}

/** The executable code of lists, with its mailbox and memory. */
export interface ListRunner {
  /** Runs the list in the mailbox; returns the status of the call that stopped it, or 0. */
  readonly run: () => number;
  /** One word: the address of the list to run; afterwards, the address at which it ended. */
  readonly mailbox: BigUint64Array;
  /** Memory for lists. */
  readonly memory: ListMemory;
}

let mapped: Promise<ListRunner | string> | undefined;

/** The runner of this thread's lists, or the reason for its absence, which is not fatal. */
export function listRunner(env: NodeJS.ProcessEnv = process.env): Promise<ListRunner | string> {
  if (env["TWINCCL_CALL_LISTS"] === "0") return Promise.resolve("TWINCCL_CALL_LISTS=0");
  mapped ??= mapRunner();
  return mapped;
}

/** The mailbox of the code lies in the page after it. */
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

/** C calls that one foreign call runs, any number of times. */
export class CallList {
  /** Read by native code; its words live as long as the list. */
  readonly #place: ListPlace;
  readonly #mailbox: BigUint64Array;
  readonly #runner: () => number;

  constructor({ run, mailbox, memory }: ListRunner, calls: readonly ListedCall[]) {
    this.#place = memory.take(wordsPerCall * calls.length + 1);
    this.#mailbox = mailbox;
    this.#runner = run;
    const { words } = this.#place;
    for (const [at, { address, args }] of calls.entries()) {
      if (args.length > maxArguments) throw new RangeError(`${args.length} arguments in a list`);
      let word = wordsPerCall * at;
      words[word] = address;
      for (const each of args) words[++word] = BigInt(each);
    }
  }

  /** Runs the calls in order, up to the first status other than 0; returns that status, or 0. */
  run(): number {
    this.#mailbox[0] = this.#place.address;
    return this.#runner();
  }

  /** Index of the call that stopped the last `run`; the list's length if all calls ran. */
  endedAt(): number {
    const ended = this.#mailbox[0] as bigint;
    return Number(ended - this.#place.address) / (8 * wordsPerCall);
  }
}

/** Most arguments of a call in a list. */
const maxArguments = 8;
/** Words of a call: its function and its arguments. */
const wordsPerCall = 1 + maxArguments;

/** @internal */
export const listCode: MachineCode = [
  ["endbr64", "f3 0f 1e fa"],
  ["push %rbx", "53"],
  ["mov mailbox(%rip), %rbx", "48 8b 1d f4 0f 00 00"],
  ["next: mov (%rbx), %rax", "48 8b 03"],
  ["test %rax, %rax", "48 85 c0"],
  ["je end", "74 2e"],
  // Two more words keep the stack aligned to 16 bytes, as calls require.
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
  // A status of 0 continues with the next call; at the end of the list `rax` is its terminating null.
  ["test %eax, %eax", "85 c0"],
  ["jne end", "75 06"],
  ["add $72, %rbx", "48 83 c3 48"],
  ["jmp next", "eb ca"],
  ["end: mov %rbx, mailbox(%rip)", "48 89 1d b7 0f 00 00"],
  ["pop %rbx", "5b"],
  ["ret", "c3"],
];

/** Words of a list at a fixed address while they are referenced, initially zero. */
export interface ListPlace {
  readonly words: BigUint64Array;
  readonly address: bigint;
}

/**
 * Words of one piece of memory, shared by about a hundred short lists. A live list keeps at most one piece in memory.
 *
 * @internal
 */
export const pieceWords = 1024;
/** Longer lists have separate memory. */
const maxShared = pieceWords / 4;
const wordBytes = 8;

/** Allocates places from pieces; an older piece is collected once no list references it. */
export class ListMemory {
  readonly #addressOf: (memory: ArrayBuffer) => bigint;
  #piece = new ArrayBuffer(0);
  #address = 0n;
  #usedBytes = 0;

  constructor(addressOf: (memory: ArrayBuffer) => bigint) {
    this.#addressOf = addressOf;
  }

  /** Allocates a new place. */
  take(words: number): ListPlace {
    // An explicit ArrayBuffer has a fixed address; the words of a small array may move.
    const bytes = words * wordBytes;
    if (words > maxShared) {
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
