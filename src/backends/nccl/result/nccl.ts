/**
 * NCCL as functions that return their result or throw `NcclError`. Calls that move data are sequences, made any number
 * of times. Counts are elements; types and operators are NCCL's own numbers.
 */

import { allInBackground, inBackground, type ThreadDevice } from "../sys/background.ts";
import { CallList, type CallSequence } from "../sys/call-list.ts";
import type { BoundCall, Helper } from "../sys/helper.ts";
import {
  type ConfigFields,
  estimatedTimeUs,
  ncclConfig,
  ncclSimInfo,
  uniqueIdBytes,
} from "../sys/layouts.ts";
import { type ncclDataTable, ncclTable } from "../sys/nccl.ts";
import { type Bound, need } from "../sys/prototype.ts";
import { NcclError } from "./errors.ts";
import { type ArgsOf, type NativeLibrary, nativeLibrary } from "./library.ts";

/** The NCCL calls that this backend makes; a fake can stand in for tests of what lies above. */
export interface NcclCalls
  extends NcclCommunicatorCalls,
    NcclDataCalls,
    NcclBackgroundCalls,
    NcclWindowCalls {}

/** Wraps a bound libnccl. With the helper, calls that are made often are lists. */
export function ncclCalls(bound: BoundNccl, helper?: Helper): NcclCalls {
  const library = ncclLibrary(bound);
  return {
    ...communicatorCalls(library),
    ...dataCalls(library, helper),
    ...backgroundCalls(library),
    ...windowCalls(library),
  };
}

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

type NcclLibrary = NativeLibrary<typeof ncclTable>;

/** Wraps a bound libnccl for its callers. */
export function ncclLibrary(bound: BoundNccl): NcclLibrary {
  return nativeLibrary(ncclTable, bound, (status, cCall, comm) => {
    const statusName = statusNames[status] ?? `status ${status}`;
    const last = bound.getLastError?.(comm ?? null) ?? "";
    const detail = last === "" ? need(ncclTable, bound, "getErrorString")(status) : last;
    throw new NcclError({ cCall, status, statusName, detail });
  });
}

/** The last two arguments of each are the communicator and the stream. */
type DataFunction = keyof typeof ncclDataTable;

/** A call that moves or reduces data, with its arguments. */
export type DataCall = {
  readonly [K in DataFunction]: {
    readonly name: K;
    readonly args: ArgsOf<NonNullable<BoundNccl[K]>>;
  };
}[DataFunction];

/** Calls that are made as one group of NCCL; a call alone needs no group. */
export type CallGroup = readonly DataCall[];

/** Collectives, sends and receives, operators. */
export interface NcclDataCalls {
  /** True when the library has `alltoAll`; else it is sends and receives. */
  readonly hasAllToAll: boolean;
  /**
   * Groups, to be made one after another. If a call fails, an `NcclError` names it, the calls behind it are not made, and its
   * group is closed.
   */
  sequence(groups: readonly CallGroup[]): CallSequence;
  /** An operator that multiplies by a scalar of the dtype before it sums. */
  preMulSum(scalar: Uint8Array, type: number, comm: bigint): number;
  destroyOp(op: number, comm: bigint): void;
}

const hostImmediate = 1;

/** Wraps these calls. */
function dataCalls(library: NcclLibrary, helper: Helper | undefined): NcclDataCalls {
  const { get, check, call, has } = library;
  const groupEnd = get("groupEnd");
  const fail = (status: number, { name, comm, isGrouped }: NcclCall): void => {
    try {
      check(status, name, comm);
    } finally {
      // Its own status would hide what went wrong inside of it.
      if (isGrouped) groupEnd();
    }
  };
  return {
    hasAllToAll: has("alltoAll"),
    sequence(groups) {
      const calls = groups.flatMap((group) => callsOf(library, group));
      return new CallList(calls, helper, fail);
    },
    preMulSum(scalar, type, comm) {
      const op = new Int32Array(1);
      call("redOpCreatePreMulSum", [op, scalar, type, hostImmediate, comm], comm);
      return op[0] as number;
    },
    destroyOp: (op, comm) => call("redOpDestroy", [op, comm], comm),
  };
}

/** A C call with the facts of its error. */
interface NcclCall extends BoundCall {
  readonly name: DataFunction | "groupStart" | "groupEnd";
  readonly comm?: bigint;
  /** True when a group is open during the call. */
  readonly isGrouped: boolean;
}

/** The C calls of a group. */
function callsOf({ get }: NcclLibrary, group: CallGroup): readonly NcclCall[] {
  const isGrouped = group.length > 1;
  const calls = group.map(({ name, args }): NcclCall => {
    return { call: get(name), args, name, comm: args.at(-2) as bigint, isGrouped };
  });
  if (!isGrouped) return calls;
  const around = (name: "groupStart" | "groupEnd"): NcclCall => {
    return { call: get(name), args: [], name, isGrouped: false };
  };
  return [around("groupStart"), ...calls, around("groupEnd")];
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
  /** Throws what went wrong on a communicator since it was made. */
  checkAsync(comm: bigint): void;
}

/** Wraps these calls. */
export function communicatorCalls({ get, check, call, int }: NcclLibrary): NcclCommunicatorCalls {
  const groupEnd = get("groupEnd");
  const asyncStatus = new Int32Array(1);
  return {
    version: () => int("getVersion"),
    uniqueId() {
      const id = new Uint8Array(uniqueIdBytes);
      call("getUniqueId", [id]);
      return id;
    },
    group(calls) {
      call("groupStart", []);
      try {
        calls();
      } catch (error) {
        // The group's own status would hide what went wrong inside of it.
        groupEnd();
        throw error;
      }
      call("groupEnd", []);
    },
    estimateUs(calls) {
      const simulateEnd = get("groupSimulateEnd");
      const info = ncclSimInfo();
      call("groupStart", []);
      let failure: { readonly error: unknown } | undefined;
      try {
        calls();
      } catch (error) {
        failure = { error };
      }
      const status = simulateEnd(info);
      if (failure !== undefined) throw failure.error;
      check(status, "groupSimulateEnd");
      return estimatedTimeUs(info);
    },
    initRank: (comm, size, id, rank, config) =>
      call("commInitRankConfig", [comm, size, { internal: id }, rank, ncclConfig(config)]),
    split: (comm, color, key, child, config) =>
      call("commSplit", [comm, color ?? noColor, key, child, ncclConfig(config)], comm),
    checkAsync(comm) {
      call("commGetAsyncError", [comm, asyncStatus], comm);
      const status = asyncStatus[0] as number;
      if (status !== inProgress) check(status, "commGetAsyncError", comm);
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
  /** Ends one rank's handle. NCCL frees those of one process with the last of them. */
  abortInBackground(comm: bigint): Promise<void>;
}

/** Wraps these calls. */
function backgroundCalls(library: NcclLibrary): NcclBackgroundCalls {
  const { get, check } = library;
  /** Makes a call on another thread; throws unless its status is success. */
  const call = async <K extends BackgroundFunction>(
    device: ThreadDevice | undefined,
    name: K,
    args: ArgsOf<NonNullable<BoundNccl[K]>>,
    comm?: bigint,
  ): Promise<void> => check(await inBackground(device, { call: get(name), args }), name, comm);
  return {
    async initRankInBackground(device, size, id, rank, config) {
      const comm = new BigUint64Array(1);
      const args = [comm, size, { internal: id }, rank, ncclConfig(config)] as const;
      await call(device, "commInitRankConfig", [...args]);
      return comm[0] as bigint;
    },
    async splitInBackground(device, comm, color, key, config) {
      const child = new BigUint64Array(1);
      const args = [comm, color ?? noColor, key, child, ncclConfig(config)] as const;
      await call(device, "commSplit", [...args], comm);
      return child[0] as bigint;
    },
    connectInBackground: (device, room, ends) => connect(library, device, room, ends),
    async registerWindowInBackground(device, comm, ptr, bytes) {
      const window = new BigUint64Array(1);
      await call(device, "commWindowRegister", [comm, ptr, bytes, window, symmetricWindow], comm);
      return window[0] as bigint;
    },
    abortInBackground: (comm) => call(undefined, "commAbort", [comm]),
  };
}

/** Functions that may wait for other ranks. */
type BackgroundFunction = "commInitRankConfig" | "commSplit" | "commWindowRegister" | "commAbort";

/** A byte, as messages count and type it. */
const oneByte = [1, 1] as const;

async function connect(
  library: NcclLibrary,
  device: ThreadDevice,
  { comm, stream, from, into }: ConnectBuffers,
  ends: readonly ConnectEnd[],
): Promise<void> {
  const messages = ends.map(
    ({ direction, peer }): DataCall => ({
      name: direction,
      args: [direction === "send" ? from : into, ...oneByte, peer, comm, stream],
    }),
  );
  const calls = callsOf(library, messages);
  const { status, endedAt } = await allInBackground(device, calls);
  library.check(status, calls[endedAt]?.name ?? "groupEnd", comm);
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
function windowCalls({ call, handle, has }: NcclLibrary): NcclWindowCalls {
  return {
    hasWindows: has("commWindowRegister") && has("memAlloc"),
    memAlloc: (bytes) => handle("memAlloc", bytes),
    memFree: (ptr) => call("memFree", [ptr]),
    registerWindow: (comm, ptr, bytes, window) =>
      call("commWindowRegister", [comm, ptr, bytes, window, symmetricWindow], comm),
    deregisterWindow: (comm, window) => call("commWindowDeregister", [comm, window], comm),
  };
}
