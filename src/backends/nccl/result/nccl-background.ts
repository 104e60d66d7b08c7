/** The NCCL calls that wait for ranks of other processes: on threads other than JavaScript's. */
import {
  allInBackground,
  type BoundCall,
  inBackground,
  type ThreadDevice,
} from "../sys/background.ts";
import { type ConfigFields, ncclConfig } from "../sys/layouts.ts";
import { noColor } from "./nccl-communicators.ts";
import type { NcclLibrary } from "./nccl-status.ts";
import { symmetricWindow } from "./nccl-windows.ts";

/** One end of a byte's way: to another rank, or from it. */
export interface ByteEnd {
  readonly direction: "send" | "recv";
  readonly peer: number;
}

/** Where a rank sends bytes from and receives them. */
export interface ByteRoom {
  readonly comm: bigint;
  readonly stream: bigint;
  readonly from: bigint;
  readonly into: bigint;
}

/** Starts, connections and ends. */
export interface NcclBackgroundCalls {
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
    room: ByteRoom,
    ends: readonly ByteEnd[],
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
export function backgroundCalls(library: NcclLibrary): NcclBackgroundCalls {
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
      const wish = [color ?? noColor, key, child, ncclConfig(config)] as const;
      check(await inBackground(device, get("commSplit"), comm, ...wish), "ncclCommSplit", comm);
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
  { comm, stream, from, into }: ByteRoom,
  ends: readonly ByteEnd[],
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
