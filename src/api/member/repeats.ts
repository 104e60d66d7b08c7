/**
 * Calls that a rank makes again with the same arguments, as loops do: they were checked then, and what was made of them is
 * taken again.
 *
 * A buffer remembers the call that was last made with it. Only calls are remembered whose arguments are buffers, a root, an
 * operator with a name, which stay what they are, and lists of counts and offsets, which are compared with what they were.
 * What may have changed besides is whether the buffers live: that is asked anew.
 */
import { DeviceBuffer } from "../buffer.ts";
import type { CollectiveName } from "../collectives/spec.ts";
import type { Books, Tally } from "./books.ts";
import { type Channels, channelsOf } from "./diagnostics.ts";
import type { Prepared } from "./prepared.ts";

/** Lengths and places of the blocks of a v-form. */
interface Lists {
  readonly sendCounts?: unknown;
  readonly sendOffsets?: unknown;
  readonly recvCounts?: unknown;
  readonly recvOffsets?: unknown;
}

/** All arguments of a call that can be remembered. */
interface Arguments extends Lists {
  readonly send?: unknown;
  readonly recv?: unknown;
  readonly op?: unknown;
  readonly root?: unknown;
}

/** A call that was checked, as it is made again. */
export interface Remembered extends Omit<Arguments, keyof Lists> {
  /** Who made it: a buffer may be used on several communicators. */
  readonly by: Repeats;
  readonly collective: CollectiveName;
  readonly prepared: Prepared<unknown>;
  /** What the lists held; `undefined` for a call without any. */
  readonly lists: Lists | undefined;
  /** Where it is counted, and what is sent with it. */
  readonly tally: Tally;
  readonly sendBytes: number;
  /** Where somebody may listen to it. */
  readonly channels: Channels | undefined;
}

/** Collectives that take no other arguments. */
const repeatable: ReadonlySet<CollectiveName> = new Set([
  "allReduce",
  "reduce",
  "broadcast",
  "allGather",
  "reduceScatter",
  "allToAll",
  "barrier",
  "allGatherv",
  "reduceScatterv",
  "allToAllv",
  "gather",
  "scatter",
]);

/** The calls of one rank on one communicator. */
export class Repeats {
  readonly #books: Books;
  #barrier: Remembered | undefined;

  constructor(books: Books) {
    this.#books = books;
  }

  /** The same call as it was made before; `undefined` when it has to be checked. */
  find(collective: CollectiveName, args: object | undefined): Remembered | undefined {
    if (collective === "barrier") return isObject(args) ? this.#barrier : undefined;
    const given = (args ?? none) as Arguments;
    const { send, recv, op, root } = given;
    const buffer = send ?? recv;
    if (!(buffer instanceof DeviceBuffer)) return undefined;
    const last = buffer.lastCall as Remembered | undefined;
    if (last === undefined || last.by !== this || last.collective !== collective) return undefined;
    if (last.send !== send || last.recv !== recv || last.op !== op || last.root !== root) {
      return undefined;
    }
    if (last.lists === undefined ? hasLists(given) : !sameLists(last.lists, given))
      return undefined;
    const { call } = last.prepared;
    return call.send?.disposed === true || call.recv?.disposed === true ? undefined : last;
  }

  /** Remembers a call that was checked. */
  note(collective: CollectiveName, args: object | undefined, prepared: Prepared<unknown>): void {
    if (!repeatable.has(collective)) return;
    if (collective === "barrier") {
      this.#barrier = this.#remembered(collective, none, prepared);
      return;
    }
    const given = (args ?? none) as Arguments;
    const { send, recv, op } = given;
    const buffer = send ?? recv;
    if (!(buffer instanceof DeviceBuffer) || typeof op === "object") return;
    if (recv !== undefined && !(recv instanceof DeviceBuffer)) return;
    buffer.lastCall = this.#remembered(collective, given, prepared);
  }

  #remembered(
    collective: CollectiveName,
    given: Arguments,
    prepared: Prepared<unknown>,
  ): Remembered {
    const { send, recv, op, root } = given;
    return {
      by: this,
      ...{ collective, send, recv, op, root, prepared },
      lists: hasLists(given) ? listsOf(given) : undefined,
      tally: this.#books.of(collective),
      sendBytes: prepared.call.send?.byteLength ?? 0,
      channels: channelsOf(collective),
    };
  }
}

const none: Arguments = {};

function isObject(args: unknown): boolean {
  return typeof args === "object" && args !== null;
}

function hasLists({ sendCounts, sendOffsets, recvCounts, recvOffsets }: Lists): boolean {
  return (sendCounts ?? sendOffsets ?? recvCounts ?? recvOffsets) !== undefined;
}

/** Copies: the caller may write its lists. */
function listsOf({ sendCounts, sendOffsets, recvCounts, recvOffsets }: Lists): Lists {
  return {
    sendCounts: copyOf(sendCounts),
    sendOffsets: copyOf(sendOffsets),
    recvCounts: copyOf(recvCounts),
    recvOffsets: copyOf(recvOffsets),
  };
}

function copyOf(list: unknown): unknown {
  return Array.isArray(list) ? [...list] : list;
}

function sameLists(a: Lists, b: Lists): boolean {
  return (
    sameList(a.sendCounts, b.sendCounts) &&
    sameList(a.sendOffsets, b.sendOffsets) &&
    sameList(a.recvCounts, b.recvCounts) &&
    sameList(a.recvOffsets, b.recvOffsets)
  );
}

function sameList(a: unknown, b: unknown): boolean {
  if (!Array.isArray(a) || !Array.isArray(b)) return a === undefined && b === undefined;
  if (a.length !== b.length) return false;
  for (let i = 0; i < a.length; i++) {
    if (a[i] !== b[i]) return false;
  }
  return true;
}
