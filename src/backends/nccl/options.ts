/** What `nccl()` takes. */
import type { NcclPin } from "../../algorithms/index.ts";

/** Options of `nccl`. */
export interface NcclOptions {
  /** CUDA devices, by rank; 0..size-1 when left out. */
  readonly devices?: readonly number[];
  /** Path of libnccl; else `TWINCCL_NCCL_LIBRARY`, the loader's path, CUDA's folders, Python's wheels. */
  readonly ncclLibrary?: string;
  /** Path of libcudart; else `TWINCCL_CUDART_LIBRARY` and the same places. */
  readonly cudartLibrary?: string;
  /** Deadline of a call that gives none, in milliseconds. */
  readonly timeoutMs?: number;
  /**
   * Pins NCCL's plans for the communicators of this backend: `{ algorithm: "Ring", protocol: "LL", channels: 4 }`. The
   * same object as `nccl` of `sim({ like: "nccl-2.28", nccl })` gives the same bits there. Algorithm, protocol and rings
   * are told to NCCL by variables that are set while it starts a communicator and put back afterwards; buffer sizes hold
   * for the whole process, so that another size later is refused. Rings are those of the world: a split has NCCL's own.
   */
  readonly plan?: NcclPin;
  /**
   * Has NCCL log the plans it takes, for `NcclBackend.plans`. NCCL reads its log settings once per process: a process
   * that used NCCL without is refused. Its log goes to a private file, also where NCCL_DEBUG_FILE says otherwise.
   */
  readonly readPlan?: boolean;
  /**
   * Whether the ranks of several processes compare their calls before NCCL sees them: `once` for every new kind of call of
   * a communicator, `always`, or not at all (`off`, the default). Each comparison is a round trip through the job's store.
   * Calls of ranks in one process are always compared.
   */
  readonly checks?: "off" | "once" | "always";
  /** In-switch reduction, whose bits cannot be predicted; off unless asked for. */
  readonly nvls?: boolean;
}
