/** NCCL calls that come again with the same arguments: written down as one list of C calls. */
import { CallList, type ListedCall, type ListRunner } from "../sys/call-list.ts";
import { addressOf } from "../sys/prototype.ts";
import type { NcclDataCalls } from "./nccl-collectives.ts";
import type { NcclLibrary } from "./nccl-status.ts";

/** A call with its arguments, to be made on any communicator. */
export type NotedCall = (nccl: NcclDataCalls) => void;

/** Calls that are made again and again. */
export interface NcclList {
  /** @throws NcclError naming the call that failed; those behind it are not made, and the group that it is in is closed. */
  make(): void;
}

/** Writes lists. */
export interface NcclListCalls {
  /** One list of groups, which follow each other; a call alone needs no group. `undefined` where there are no lists. */
  listed(groups: readonly (readonly NotedCall[])[]): NcclList | undefined;
}

/** A C call of a list, with what an error says of it. */
interface WrittenCall extends ListedCall {
  readonly cCall: string;
  readonly comm?: bigint;
  /** True when a group is open while it is made. */
  readonly grouped: boolean;
}

/** Writes lists of this library's calls, where there is what makes them. */
export function listCalls(library: NcclLibrary, runner: ListRunner | undefined): NcclListCalls {
  return {
    listed: (groups) => runner && new WrittenList(library, runner, written(library, groups)),
  };
}

class WrittenList implements NcclList {
  readonly #library: NcclLibrary;
  readonly #calls: readonly WrittenCall[];
  readonly #list: CallList;

  constructor(library: NcclLibrary, runner: ListRunner, calls: readonly WrittenCall[]) {
    this.#library = library;
    this.#calls = calls;
    this.#list = new CallList(runner, calls);
  }

  make(): void {
    const status = this.#list.make();
    if (status !== 0) this.#fail(status);
  }

  #fail(status: number): void {
    const { get, check } = this.#library;
    const { cCall, comm, grouped } = this.#calls[this.#list.endedAt()] as WrittenCall;
    try {
      check(status, cCall, comm);
    } finally {
      // Its own status would hide what went wrong inside of it.
      if (grouped) get("groupEnd")();
    }
  }
}

/** The C calls of groups. */
function written(
  { get }: NcclLibrary,
  groups: readonly (readonly NotedCall[])[],
): readonly WrittenCall[] {
  const calls: WrittenCall[] = [];
  const around = (name: "groupStart" | "groupEnd", cCall: string): void => {
    calls.push({ address: addressOf(get(name)), args: [], cCall, grouped: false });
  };
  for (const group of groups) {
    const grouped = group.length > 1;
    const writing = writer(get, grouped, calls);
    if (grouped) around("groupStart", "ncclGroupStart");
    for (const call of group) call(writing);
    if (grouped) around("groupEnd", "ncclGroupEnd");
  }
  return calls;
}

/** Writes calls down instead of making them. All of them end with the communicator and the stream. */
function writer(get: NcclLibrary["get"], grouped: boolean, calls: WrittenCall[]): NcclDataCalls {
  const writes =
    (name: Parameters<NcclLibrary["get"]>[0], cCall: string) =>
    (...args: readonly (bigint | number)[]): void => {
      const comm = args.at(-2) as bigint;
      calls.push({ address: addressOf(get(name)), args, cCall, comm, grouped });
    };
  return {
    allReduce: writes("allReduce", "ncclAllReduce"),
    reduce: writes("reduce", "ncclReduce"),
    reduceScatter: writes("reduceScatter", "ncclReduceScatter"),
    allGather: writes("allGather", "ncclAllGather"),
    broadcast: writes("broadcast", "ncclBroadcast"),
    allToAll: writes("alltoAll", "ncclAlltoAll"),
    send: writes("send", "ncclSend"),
    recv: writes("recv", "ncclRecv"),
  };
}
