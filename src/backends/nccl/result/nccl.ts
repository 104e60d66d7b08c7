/**
 * NCCL as functions that return their result or throw `NcclError`. Calls that move data are made one by one or as one list of C
 * calls. Counts are elements; types and operators are NCCL's own numbers.
 */

import {
  allInBackground,
  type BoundCall,
  inBackground,
  type ThreadDevice,
} from "../sys/background.ts";
import { CallList, type ListedCall, type ListRunner } from "../sys/call-list.ts";
import {
  type ConfigFields,
  estimatedTimeUs,
  ncclConfig,
  ncclSimInfo,
  uniqueIdBytes,
} from "../sys/layouts.ts";
import { ncclTable } from "../sys/nccl.ts";
import { addressOf, type Bound, need } from "../sys/prototype.ts";
import { NcclError } from "./errors.ts";

/** The NCCL calls that this backend makes; a fake can stand in for tests of what lies above. */
export interface NcclCalls
  extends NcclCommunicatorCalls,
    NcclCollectiveCalls,
    NcclBackgroundCalls,
    NcclListCalls,
    NcclWindowCalls {}

/** Wraps a bound libnccl; `runner`, if available, runs lists of its calls. */
export function ncclCalls(bound: BoundNccl, runner?: ListRunner): NcclCalls {
  const library = ncclLibrary(bound);
  return {
    ...communicatorCalls(library),
    ...collectiveCalls(library),
    ...backgroundCalls(library),
    ...listCalls(library, runner),
    ...windowCalls(library),
  };
}

const success = 0;

/** `ncclInProgress`: neither done nor wrong. */
const inProgress = 7;

/** Names of `ncclResult_t`, by value. */
const statusNames = [
  "ncclSuccess",
  "ncclUnhandledCudaError",
  "ncclSystemError",
  "ncclInternalError",
  "ncclInvalidArgument",
  "ncclInvalidUsage",
  "ncclRemoteError",
  "ncclInProgress",
  "ncclTimeout",
];

/** A bound libnccl. */
type BoundNccl = Bound<typeof ncclTable>;

/** The parts of every NCCL call. */
interface NcclLibrary {
  /** A function that must be there; throws by name when the library lacks it. */
  get<K extends keyof typeof ncclTable>(name: K): NonNullable<BoundNccl[K]>;
  /** Throws unless the status is success. */
  check(status: number, cCall: string, comm?: bigint): void;
  has(name: keyof typeof ncclTable): boolean;
}

/** Wraps a bound libnccl for its callers. */
export function ncclLibrary(bound: BoundNccl): NcclLibrary {
  const get = <K extends keyof typeof ncclTable>(name: K) => need(ncclTable, bound, name);
  return {
    get,
    has: (name) => bound[name] !== undefined,
    check(status, cCall, comm) {
      if (status === success) return;
      const statusName = statusNames[status] ?? `status ${status}`;
      const last = bound.getLastError?.(comm ?? null) ?? "";
      const detail = last === "" ? get("getErrorString")(status) : last;
      throw new NcclError({ cCall, status, statusName, detail });
    },
  };
}

const hostImmediate = 1;

/** C names of the functions that move and reduce data. The last two arguments of each are the communicator and the stream. */
const dataFunctions = {
  allReduce: "ncclAllReduce",
  reduce: "ncclReduce",
  reduceScatter: "ncclReduceScatter",
  allGather: "ncclAllGather",
  broadcast: "ncclBroadcast",
  alltoAll: "ncclAlltoAll",
  send: "ncclSend",
  recv: "ncclRecv",
} as const;

type DataFunction = keyof typeof dataFunctions;
type DataArgs<K extends DataFunction> = Parameters<NonNullable<BoundNccl[K]>>;

/** Collectives, sends and receives. */
export type NcclDataCalls = {
  readonly [K in DataFunction]: (...args: DataArgs<K>) => void;
};

/** A call with its arguments, to be made any number of times. */
export type RecordedCall = {
  readonly [K in DataFunction]: { readonly name: K; readonly args: DataArgs<K> };
}[DataFunction];

/** Calls that are made as one group of NCCL. */
export type CallGroup = readonly RecordedCall[];

/** Makes groups, one after another; a call alone needs no group. */
export function makeGroups(nccl: NcclCalls, groups: readonly CallGroup[]): void {
  for (const group of groups) {
    if (group.length === 1) makeCall(nccl, group[0] as RecordedCall);
    else
      nccl.group(() => {
        for (const call of group) makeCall(nccl, call);
      });
  }
}

/** Makes a recorded call. Its arguments are passed one by one: a spread costs 10 ns more. */
export function makeCall(nccl: NcclDataCalls, { name, args }: RecordedCall): void {
  const call = nccl[name] as (...args: readonly (bigint | number)[]) => void;
  if (args.length === 6) call(args[0], args[1], args[2], args[3], args[4], args[5]);
  else if (args.length === 7) call(args[0], args[1], args[2], args[3], args[4], args[5], args[6]);
  else call(args[0], args[1], args[2], args[3], args[4], args[5], args[6], args[7]);
}

/** Collectives, sends and receives, operators. */
export interface NcclCollectiveCalls extends NcclDataCalls {
  /** True when the library has `alltoAll`; else it is sends and receives. */
  readonly hasAllToAll: boolean;
  /** An operator that multiplies by a scalar of the dtype before it sums. */
  preMulSum(scalar: Uint8Array, type: number, comm: bigint): number;
  destroyOp(op: number, comm: bigint): void;
}

/** Wraps these calls. */
function collectiveCalls({ get, check, has }: NcclLibrary): NcclCollectiveCalls {
  const [allReduce, reduce, reduceScatter] = [
    get("allReduce"),
    get("reduce"),
    get("reduceScatter"),
  ];
  const [allGather, broadcast] = [get("allGather"), get("broadcast")];
  const [send, recv] = [get("send"), get("recv")];
  const hasAllToAll = has("alltoAll");
  const alltoAll = hasAllToAll ? get("alltoAll") : undefined;
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
    alltoAll: (from, into, count, type, comm, stream) =>
      check(
        (alltoAll ?? get("alltoAll"))(from, into, count, type, comm, stream),
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

/** A list of calls, to be run any number of times. */
export interface NcclList {
  /** @throws NcclError naming the call that failed; those behind it are not made, and the group that it is in is closed. */
  run(): void;
}

/** Writes lists. */
export interface NcclListCalls {
  /** One list of groups, which follow each other; a call alone needs no group. `undefined` where there are no lists. */
  listed(groups: readonly CallGroup[]): NcclList | undefined;
}

/** A C call of a list, with the facts of its error. */
interface WrittenCall extends ListedCall {
  readonly cCall: string;
  readonly comm?: bigint;
  /** True when a group is open while it is made. */
  readonly grouped: boolean;
}

/** Writes lists of this library's calls, where there is what makes them. */
function listCalls(library: NcclLibrary, runner: ListRunner | undefined): NcclListCalls {
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
function written({ get }: NcclLibrary, groups: readonly CallGroup[]): readonly WrittenCall[] {
  const calls: WrittenCall[] = [];
  const around = (name: "groupStart" | "groupEnd", cCall: string): void => {
    calls.push({ address: addressOf(get(name)), args: [], cCall, grouped: false });
  };
  for (const group of groups) {
    const grouped = group.length > 1;
    if (grouped) around("groupStart", "ncclGroupStart");
    for (const { name, args } of group) {
      const comm = args.at(-2) as bigint;
      calls.push({
        address: addressOf(get(name)),
        args,
        cCall: dataFunctions[name],
        comm,
        grouped,
      });
    }
    if (grouped) around("groupEnd", "ncclGroupEnd");
  }
  return calls;
}

/** `NCCL_SPLIT_NOCOLOR`. */
const noColor = -1;

/** Communicators and groups. */
interface NcclCommunicatorCalls {
  /** Version code, such as 22809. */
  version(): number;
  uniqueId(): Uint8Array;
  /** Runs NCCL calls as one group, which is closed also when they throw. */
  group(calls: () => void): void;
  /** The time that NCCL expects the calls to take, in microseconds; nothing runs. */
  estimateUs(calls: () => void): number;
  /** The handle appears in `comm` when the call, or the group around it, is over. */
  initRank(
    comm: BigUint64Array,
    size: number,
    id: Uint8Array,
    rank: number,
    config: ConfigFields,
  ): void;
  /** The handle appears in `child`, 0 for no color, when the call, or the group around it, is over. */
  split(
    comm: bigint,
    color: number | undefined,
    key: number,
    child: BigUint64Array,
    config: ConfigFields,
  ): void;
  /** Ends one rank's handle, outside of groups. NCCL frees those of one process with the last of them. */
  destroy(comm: bigint): void;
  /** Throws what went wrong on a communicator since it was made. */
  checkAsync(comm: bigint): void;
}

/** Wraps these calls. */
export function communicatorCalls({ get, check }: NcclLibrary): NcclCommunicatorCalls {
  const [groupStart, groupEnd] = [get("groupStart"), get("groupEnd")];
  const asyncStatus = new Int32Array(1);
  return {
    version() {
      const out = new Int32Array(1);
      check(get("getVersion")(out), "ncclGetVersion");
      return out[0] as number;
    },
    uniqueId() {
      const id = new Uint8Array(uniqueIdBytes);
      check(get("getUniqueId")(id), "ncclGetUniqueId");
      return id;
    },
    group(calls) {
      check(groupStart(), "ncclGroupStart");
      try {
        calls();
      } catch (error) {
        // The group's own status would hide what went wrong inside of it.
        groupEnd();
        throw error;
      }
      check(groupEnd(), "ncclGroupEnd");
    },
    estimateUs(calls) {
      const simulateEnd = get("groupSimulateEnd");
      const info = ncclSimInfo();
      check(groupStart(), "ncclGroupStart");
      let failure: { readonly error: unknown } | undefined;
      try {
        calls();
      } catch (error) {
        failure = { error };
      }
      const status = simulateEnd(info);
      if (failure !== undefined) throw failure.error;
      check(status, "ncclGroupSimulateEnd");
      return estimatedTimeUs(info);
    },
    initRank: (comm, size, id, rank, config) =>
      check(
        get("commInitRankConfig")(comm, size, { internal: id }, rank, ncclConfig(config)),
        "ncclCommInitRankConfig",
      ),
    split: (comm, color, key, child, config) =>
      check(
        get("commSplit")(comm, color ?? noColor, key, child, ncclConfig(config)),
        "ncclCommSplit",
        comm,
      ),
    destroy(comm) {
      try {
        check(get("commDestroy")(comm), "ncclCommDestroy");
      } catch (error) {
        // NCCL 2.23 to 2.30 leaves a group open where it refuses: without its end nothing is launched from this thread any more.
        groupEnd();
        throw error;
      }
    },
    checkAsync(comm) {
      check(get("commGetAsyncError")(comm, asyncStatus), "ncclCommGetAsyncError", comm);
      const status = asyncStatus[0] as number;
      if (status !== inProgress) check(status, "ncclCommGetAsyncError", comm);
    },
  };
}

/** One end of a byte's way: to another rank, or from it. */
export interface ConnectEnd {
  readonly direction: "send" | "recv";
  readonly peer: number;
}

/** Where a rank sends bytes from and receives them. */
export interface ConnectBuffers {
  readonly comm: bigint;
  readonly stream: bigint;
  readonly from: bigint;
  readonly into: bigint;
}

/** Starts, connections and ends. */
interface NcclBackgroundCalls {
  initRankInBackground(
    device: ThreadDevice,
    size: number,
    id: Uint8Array,
    rank: number,
    config: ConfigFields,
  ): Promise<bigint>;
  /** 0 for no color. */
  splitInBackground(
    device: ThreadDevice,
    comm: bigint,
    color: number | undefined,
    key: number,
    config: ConfigFields,
  ): Promise<bigint>;
  /** Exchanges a byte with other ranks, which connects them. Resolves when the bytes are on the stream. */
  connectInBackground(
    device: ThreadDevice,
    room: ConnectBuffers,
    ends: readonly ConnectEnd[],
  ): Promise<void>;
  registerWindowInBackground(
    device: ThreadDevice,
    comm: bigint,
    ptr: bigint,
    bytes: number,
  ): Promise<bigint>;
  /** Has all ranks bring a communicator to its end. */
  finalizeInBackground(comm: bigint): Promise<void>;
  destroyInBackground(comm: bigint): Promise<void>;
  abortInBackground(comm: bigint): Promise<void>;
}

/** Wraps these calls. */
function backgroundCalls(library: NcclLibrary): NcclBackgroundCalls {
  const { get, check } = library;
  return {
    async initRankInBackground(device, size, id, rank, config) {
      const comm = new BigUint64Array(1);
      const given = [comm, size, { internal: id }, rank, ncclConfig(config)] as const;
      const status = await inBackground(device, get("commInitRankConfig"), ...given);
      check(status, "ncclCommInitRankConfig");
      return comm[0] as bigint;
    },
    async splitInBackground(device, comm, color, key, config) {
      const child = new BigUint64Array(1);
      const splitArgs = [color ?? noColor, key, child, ncclConfig(config)] as const;
      check(
        await inBackground(device, get("commSplit"), comm, ...splitArgs),
        "ncclCommSplit",
        comm,
      );
      return child[0] as bigint;
    },
    connectInBackground: (device, room, ends) => connect(library, device, room, ends),
    async registerWindowInBackground(device, comm, ptr, bytes) {
      const window = new BigUint64Array(1);
      const given = [comm, ptr, bytes, window, symmetricWindow] as const;
      const status = await inBackground(device, get("commWindowRegister"), ...given);
      check(status, "ncclCommWindowRegister", comm);
      return window[0] as bigint;
    },
    async finalizeInBackground(comm) {
      check(await inBackground(undefined, get("commFinalize"), comm), "ncclCommFinalize");
    },
    async destroyInBackground(comm) {
      check(await inBackground(undefined, get("commDestroy"), comm), "ncclCommDestroy");
    },
    async abortInBackground(comm) {
      check(await inBackground(undefined, get("commAbort"), comm), "ncclCommAbort");
    },
  };
}

/** A byte, as messages count and type it. */
const oneByte = [1, 1] as const;
const names = { send: "ncclSend", recv: "ncclRecv" } as const;

async function connect(
  { get, check }: NcclLibrary,
  device: ThreadDevice,
  { comm, stream, from, into }: ConnectBuffers,
  ends: readonly ConnectEnd[],
): Promise<void> {
  const messages = ends.map(({ direction, peer }): BoundCall => {
    const at = direction === "send" ? from : into;
    return { call: get(direction), args: [at, ...oneByte, peer, comm, stream] };
  });
  const { status, endedAt } = await allInBackground(device, [
    { call: get("groupStart"), args: [] },
    ...messages,
    { call: get("groupEnd"), args: [] },
  ]);
  const direction = ends[endedAt - 1]?.direction;
  const ofGroup = endedAt === 0 ? "ncclGroupStart" : "ncclGroupEnd";
  check(status, direction === undefined ? ofGroup : names[direction], comm);
}

/** `NCCL_WIN_COLL_SYMMETRIC`. */
const symmetricWindow = 1;

/** Memory that all ranks register as a window. */
interface NcclWindowCalls {
  /** True when the library has the functions of symmetric memory. */
  readonly hasWindows: boolean;
  /** Memory that can be registered as a window. */
  memAlloc(bytes: number): bigint;
  memFree(ptr: bigint): void;
  registerWindow(comm: bigint, ptr: bigint, bytes: number, window: BigUint64Array): void;
  deregisterWindow(comm: bigint, window: bigint): void;
}

/** Wraps these calls. */
function windowCalls({ get, check, has }: NcclLibrary): NcclWindowCalls {
  return {
    hasWindows: has("commWindowRegister") && has("memAlloc"),
    memAlloc(bytes) {
      const ptr = new BigUint64Array(1);
      check(get("memAlloc")(ptr, bytes), "ncclMemAlloc");
      return ptr[0] as bigint;
    },
    memFree: (ptr) => check(get("memFree")(ptr), "ncclMemFree"),
    registerWindow: (comm, ptr, bytes, window) =>
      check(
        get("commWindowRegister")(comm, ptr, bytes, window, symmetricWindow),
        "ncclCommWindowRegister",
        comm,
      ),
    deregisterWindow: (comm, window) =>
      check(get("commWindowDeregister")(comm, window), "ncclCommWindowDeregister", comm),
  };
}
