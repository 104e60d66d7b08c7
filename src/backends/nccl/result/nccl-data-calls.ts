/**
 * The NCCL calls that move and reduce data, one by one or as one list of C calls. Counts are elements; types and operators
 * are NCCL's own numbers.
 */

import { CallList, type ListedCall, type ListRunner } from "../sys/call-list.ts";
import { addressOf } from "../sys/prototype.ts";
import type { NcclLibrary } from "./nccl-library.ts";

const hostImmediate = 1;

/** Collectives, sends and receives. */
export interface NcclDataCalls {
  allReduce(
    send: bigint,
    recv: bigint,
    count: number,
    type: number,
    op: number,
    comm: bigint,
    stream: bigint,
  ): void;
  reduce(
    send: bigint,
    recv: bigint,
    count: number,
    type: number,
    op: number,
    root: number,
    comm: bigint,
    stream: bigint,
  ): void;
  reduceScatter(
    send: bigint,
    recv: bigint,
    count: number,
    type: number,
    op: number,
    comm: bigint,
    stream: bigint,
  ): void;
  allGather(
    send: bigint,
    recv: bigint,
    count: number,
    type: number,
    comm: bigint,
    stream: bigint,
  ): void;
  broadcast(
    send: bigint,
    recv: bigint,
    count: number,
    type: number,
    root: number,
    comm: bigint,
    stream: bigint,
  ): void;
  /** A block of `count` elements for and from every rank. */
  allToAll(
    send: bigint,
    recv: bigint,
    count: number,
    type: number,
    comm: bigint,
    stream: bigint,
  ): void;
  send(
    buffer: bigint,
    count: number,
    type: number,
    peer: number,
    comm: bigint,
    stream: bigint,
  ): void;
  recv(
    buffer: bigint,
    count: number,
    type: number,
    peer: number,
    comm: bigint,
    stream: bigint,
  ): void;
}

/** Collectives, sends and receives, operators. */
export interface NcclCollectiveCalls extends NcclDataCalls {
  /** True when the library has `allToAll`; else it is sends and receives. */
  readonly hasAllToAll: boolean;
  /** An operator that multiplies by a scalar of the dtype before it sums. */
  preMulSum(scalar: Uint8Array, type: number, comm: bigint): number;
  destroyOp(op: number, comm: bigint): void;
}

/** Wraps these calls. */
export function collectiveCalls({ get, check, has }: NcclLibrary): NcclCollectiveCalls {
  const [allReduce, reduce, reduceScatter] = [
    get("allReduce"),
    get("reduce"),
    get("reduceScatter"),
  ];
  const [allGather, broadcast] = [get("allGather"), get("broadcast")];
  const [send, recv] = [get("send"), get("recv")];
  const hasAllToAll = has("alltoAll");
  const allToAll = hasAllToAll ? get("alltoAll") : undefined;
  return {
    hasAllToAll,
    allReduce: (from, into, count, type, op, comm, stream) =>
      check(allReduce(from, into, count, type, op, comm, stream), "ncclAllReduce", comm),
    reduce: (from, into, count, type, op, root, comm, stream) =>
      check(reduce(from, into, count, type, op, root, comm, stream), "ncclReduce", comm),
    reduceScatter: (from, into, count, type, op, comm, stream) =>
      check(reduceScatter(from, into, count, type, op, comm, stream), "ncclReduceScatter", comm),
    allGather: (from, into, count, type, comm, stream) =>
      check(allGather(from, into, count, type, comm, stream), "ncclAllGather", comm),
    broadcast: (from, into, count, type, root, comm, stream) =>
      check(broadcast(from, into, count, type, root, comm, stream), "ncclBroadcast", comm),
    allToAll: (from, into, count, type, comm, stream) =>
      check(
        (allToAll ?? get("alltoAll"))(from, into, count, type, comm, stream),
        "ncclAlltoAll",
        comm,
      ),
    send: (buffer, count, type, peer, comm, stream) =>
      check(send(buffer, count, type, peer, comm, stream), "ncclSend", comm),
    recv: (buffer, count, type, peer, comm, stream) =>
      check(recv(buffer, count, type, peer, comm, stream), "ncclRecv", comm),
    preMulSum(scalar, type, comm) {
      const op = new Int32Array(1);
      const create = get("redOpCreatePreMulSum");
      check(create(op, scalar, type, hostImmediate, comm), "ncclRedOpCreatePreMulSum", comm);
      return op[0] as number;
    },
    destroyOp: (op, comm) => check(get("redOpDestroy")(op, comm), "ncclRedOpDestroy", comm),
  };
}

/** A call with its arguments, to be made on any communicator. */
export type RecordedCall = (nccl: NcclDataCalls) => void;

/** A list of calls, to be run any number of times. */
export interface NcclList {
  /** @throws NcclError naming the call that failed; those behind it are not made, and the group that it is in is closed. */
  run(): void;
}

/** Writes lists. */
export interface NcclListCalls {
  /** One list of groups, which follow each other; a call alone needs no group. `undefined` where there are no lists. */
  listed(groups: readonly (readonly RecordedCall[])[]): NcclList | undefined;
}

/** A C call of a list, with the facts of its error. */
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

  run(): void {
    const status = this.#list.run();
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
  groups: readonly (readonly RecordedCall[])[],
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
