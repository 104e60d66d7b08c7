/** The options of `nccl()`. */
import type { NcclPin } from "../../algorithms/index.ts";
import type { OptionKinds } from "../../api/option-kinds.ts";

/** Options of `nccl`. */
export interface NcclOptions {
  /**
   * CUDA devices among those that are visible, by rank; 0..size-1 when left out. For `connect` one for this process, or one
   * for each local rank; left out, that of the local rank, or the only one that the process sees.
   */
  readonly devices?: readonly number[] | undefined;
  /** The stream of the caller on which this process's only rank works; `comm.stream` in any case. Short for `streams`. */
  readonly stream?: bigint | undefined;
  /**
   * The caller's own streams, by rank of this process: handles of live streams on the ranks' devices that are no default
   * streams of CUDA. Everything that a rank does takes place there, in call order, and so in order with what the caller
   * queues there. They are used until the world is closed, and never destroyed.
   */
  readonly streams?: readonly bigint[] | undefined;
  /**
   * `copy` has calls take TypedArrays: they are copied to device memory of the library when the call is submitted, and what
   * it wrote is back in them when it settles. A convenience: every call then costs copies between host and device. Left out,
   * TypedArrays are refused.
   */
  readonly staging?: "copy" | undefined;
  /** Path of libnccl; else `TWINCCL_NCCL_LIBRARY`, the loader's path, CUDA's folders, Python's wheels. */
  readonly ncclLibrary?: string | undefined;
  /** Path of libcudart; else `TWINCCL_CUDART_LIBRARY` and the same places. */
  readonly cudartLibrary?: string | undefined;
  /** Deadline of a call that gives none, in milliseconds. */
  readonly timeoutMs?: number | undefined;
  /**
   * Pins NCCL's plans for the communicators of this backend: `{ algorithm: "Ring", protocol: "LL", channels: 4 }`. The
   * same object as `plan` of `sim({ like: "nccl-2.28", plan })` gives the same bits there. Algorithm, protocol and rings
   * are set by variables while NCCL starts a communicator and put back afterwards; buffer sizes hold
   * for the whole process, so that another size later is refused. Rings are those of the world: a split has NCCL's own.
   */
  readonly plan?: NcclPin | undefined;
  /**
   * Has NCCL log the plans it takes, for `NcclBackend.plans`. NCCL reads its log settings once per process: a process
   * that used NCCL without is refused. Its log goes to a private file, also where NCCL_DEBUG_FILE says otherwise.
   */
  readonly readPlan?: boolean | undefined;
  /**
   * Comparison of calls among the ranks of several processes before NCCL sees them: `once` for every new kind of call of
   * a communicator, `always`, or not at all (`off`, the default). Each comparison is a round trip through the job's store.
   * A difference is a `CollectiveMismatchError` on every rank, and nothing has run; with `once`, a call of a new kind that
   * the others do not make is reported on its own rank alone, and kinds that were agreed on are not compared again. Messages,
   * and communicators of some of the ranks, are not compared. Calls of ranks in one process are always compared.
   */
  readonly compareCalls?: "off" | "once" | "always" | undefined;
  /**
   * In-switch reduction, with bits that cannot be predicted: nothing is claimed of them then. Off by default, also where
   * NCCL_NVLS_ENABLE has another value. Turning it on leaves that variable as it is; a process that was started with it
   * at 0 is refused. Settled for the process by its first world.
   */
  readonly nvls?: boolean | undefined;
}

/** All of them. */
export const ncclOptionKinds: OptionKinds<NcclOptions> = {
  ...{ devices: true, stream: true, streams: true, staging: true, timeoutMs: true, plan: "object" },
  ...{ ncclLibrary: "string", cudartLibrary: "string", compareCalls: true },
  ...{ readPlan: "boolean", nvls: "boolean" },
};
