/**
 * Lists of C calls with their arguments, each list made by one foreign call without arguments. A foreign call costs more the
 * more arguments it has: starting a list costs less than a foreign call of NCCL, however many calls it holds.
 */
import { mapCode, pageBytes } from "./code-memory.ts";
import { koffi } from "./koffi.ts";
import { listCode, mostArguments, wordsPerCall } from "./list-code.ts";
import { ListMemory, type ListPlace } from "./list-memory.ts";

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

  /** The index of the call at which the last `make` ended; the list's length where it made all of them. */
  endedAt(): number {
    const ended = this.#mailbox[0] as bigint;
    return Number(ended - this.#place.address) / (8 * wordsPerCall);
  }
}
