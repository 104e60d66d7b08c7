/** The NCCL calls that make, group and end communicators. */
import {
  type ConfigFields,
  estimatedTimeUs,
  ncclConfig,
  ncclSimInfo,
  uniqueIdBytes,
} from "../sys/layouts.ts";
import { inProgress, type NcclLibrary } from "./nccl-status.ts";

/** `NCCL_SPLIT_NOCOLOR`. */
export const noColor = -1;

/** Communicators and groups. */
export interface NcclCommunicatorCalls {
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
