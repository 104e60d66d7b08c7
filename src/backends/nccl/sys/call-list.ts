/**
 * Lists of C calls with their arguments, each list made by one foreign call without arguments. A foreign call costs more the
 * more arguments it has: starting a list costs less than a foreign call of NCCL, however many calls it holds.
 */
import { firstLine, koffi } from "./koffi.ts";
import { listCode, mostArguments, pageBytes, wordsPerCall } from "./list-code.ts";
import { ListMemory, type ListPlace } from "./list-memory.ts";

/** A C function by its address, with its arguments. */
export interface ListedCall {
  readonly address: bigint;
  /** Integers and pointers. */
  readonly args: readonly (bigint | number)[];
}

/** What lists are made with: the code, ready to run. */
export interface ListRunner {
  /** Makes the calls of the list in the mailbox; gives the status of the one that it ended at, or 0. */
  readonly run: () => number;
  /** One word: the list that is to run, and then where it ended. */
  readonly mailbox: BigUint64Array;
  /** Where lists are written. */
  readonly memory: ListMemory;
}

let mapped: Promise<ListRunner | string> | undefined;

/** What this thread makes lists with; or why it makes none, which nothing depends on. */
export function listRunner(env: NodeJS.ProcessEnv = process.env): Promise<ListRunner | string> {
  if (env["TWINCCL_CALL_LISTS"] === "0") return Promise.resolve("TWINCCL_CALL_LISTS=0");
  mapped ??= mapCode().catch((error: unknown) => `no memory for code: ${firstLine(error)}`);
  return mapped;
}

const [readable, writable, executable] = [1, 2, 4];
const privateAnonymous = 0x22;
const failed = 2n ** 64n - 1n;

/** Puts the code into memory of its own, which stays, with the mailbox in the page behind it; or tells why that cannot be. */
async function mapCode(): Promise<ListRunner | string> {
  const { arch, platform } = process;
  if (platform !== "linux" || arch !== "x64") return `there is no code for ${platform} on ${arch}`;
  const { address, decode, load, proto, view } = await koffi();
  const libc = load("libc.so.6");
  const mmap = libc.func("void* mmap(void* at, size_t bytes, int may, int flags, int fd, long of)");
  const mprotect = libc.func("int mprotect(void* at, size_t bytes, int may)");
  const memory = mmap(null, 2 * pageBytes, readable | writable, privateAnonymous, -1, 0);
  const start = address(memory);
  if (BigInt.asUintN(64, start) === failed) return "the system gives no memory for code";
  new Uint8Array(view(memory, pageBytes)).set(codeBytes());
  if (mprotect(memory, pageBytes, readable | executable) !== 0) {
    return "the system runs no code that a process has written";
  }
  return {
    run: decode(memory, proto("int ()")) as () => number,
    mailbox: new BigUint64Array(view(start + BigInt(pageBytes), 8)),
    memory: new ListMemory(address),
  };
}

function codeBytes(): Uint8Array {
  const digits = listCode.flatMap(([, bytes]) => bytes.split(" "));
  return Uint8Array.from(digits, (byte) => Number.parseInt(byte, 16));
}

/** C calls that are made together, as often as wanted. */
export class CallList {
  /** Native code reads it: its words live as long as the list. */
  readonly #place: ListPlace;
  readonly #mailbox: BigUint64Array;
  readonly #run: () => number;

  constructor({ run, mailbox, memory }: ListRunner, calls: readonly ListedCall[]) {
    this.#place = memory.take(wordsPerCall * calls.length + 1);
    this.#mailbox = mailbox;
    this.#run = run;
    const { words } = this.#place;
    for (const [at, { address, args }] of calls.entries()) {
      if (args.length > mostArguments) throw new RangeError(`${args.length} arguments in a list`);
      let word = wordsPerCall * at;
      words[word] = address;
      for (const each of args) words[++word] = BigInt(each);
    }
  }

  /** Makes the calls in their order, up to one that gives another status than 0; gives that status, or 0. */
  make(): number {
    this.#mailbox[0] = this.#place.address;
    return this.#run();
  }

  /** Which call the last `make` ended at; the list's length where it made all of them. */
  endedAt(): number {
    const ended = this.#mailbox[0] as bigint;
    return Number(ended - this.#place.address) / (8 * wordsPerCall);
  }
}
