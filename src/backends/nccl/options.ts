/** What `nccl()` takes. */

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
  /** In-switch reduction, whose bits cannot be predicted; off unless asked for. */
  readonly nvls?: boolean;
}
