/** The options of `nccl()`, and their checks. */
import type { NcclPin } from "../../algorithms/index.ts";
import type { InvalidArgumentError } from "../../api/index.ts";
import { invalid, type OptionKinds, oneOf, textOf } from "../../api/option-kinds.ts";
import { compareCallsRule } from "../../job/before-calls.ts";
import { timeoutRule } from "../../job/checks.ts";

/** Options of `nccl`. */
export interface NcclOptions {
  /**
   * CUDA devices among those that are visible, by rank; 0..size-1 when left out. For `connect`, one for this process, or one
   * for each local rank. By default the device of the local rank, or the only visible one.
   */
  readonly devices?: readonly number[] | undefined;
  /** The stream of the caller on which this process's only rank works; `comm.stream` in any case. Short for `streams`. */
  readonly stream?: bigint | undefined;
  /**
   * The caller's own streams, by rank of this process: handles of live streams on the ranks' devices that are no default
   * streams of CUDA. All work of a rank is queued there in call order, and so in order with the caller's own work. They are
   * used until the world is closed, and never destroyed.
   */
  readonly streams?: readonly bigint[] | undefined;
  /**
   * With `copy`, calls accept TypedArrays. They are copied to device memory of the library when the call is submitted, and hold
   * the results when it settles. A convenience: every call then costs copies between host and device. Left out, TypedArrays are
   * refused.
   */
  readonly staging?: "copy" | undefined;
  /** Path of libnccl; else `TWINCCL_NCCL_LIBRARY`, the loader's path, CUDA's folders, Python's wheels. */
  readonly ncclLibrary?: string | undefined;
  /** Path of libcudart; else `TWINCCL_CUDART_LIBRARY` and the same places. */
  readonly cudartLibrary?: string | undefined;
  /** Deadline of a call that gives none, in milliseconds. */
  readonly timeoutMs?: number | undefined;
  /**
   * Pins NCCL's plans for the communicators of this backend: `{ algorithm: "Ring", protocol: "LL", channels: 4 }`. The same
   * object as `plan` of `sim({ like: "nccl-2.28", plan })` gives the same bits there. Algorithm, protocol and rings are set by
   * variables during NCCL's start of a communicator, and restored afterwards. Buffer sizes and threads apply to the whole
   * process, so that a different number later is refused. Rings are those of the world: a split has NCCL's own. All ranks of a job pass
   * the same.
   */
  readonly plan?: NcclPin | undefined;
  /**
   * Has NCCL log the plans it takes, for `NcclBackend.plans`. NCCL reads its log settings once per process: a process
   * that used NCCL without is refused. Its log goes to a private file, also where NCCL_DEBUG_FILE says otherwise.
   */
  readonly readPlan?: boolean | undefined;
  /**
   * Comparison of calls among the ranks of several processes before they reach NCCL. `once` compares every new kind of call of
   * a communicator, `always` every call, and `off` (the default) none. Each comparison is a round trip through the job's store.
   * A difference is a `CollectiveMismatchError` on every rank, before any execution. With `once`, a new kind of call that the
   * others do not make is reported on its own rank alone. Kinds compared once are not compared again. Messages, and
   * communicators of some of the ranks, are not compared. Calls of ranks in one process, and captures, always are.
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
  ...{ devices: true, stream: true, streams: true, timeoutMs: timeoutRule, plan: "object" },
  ...{ ncclLibrary: "string", cudartLibrary: "string", compareCalls: compareCallsRule },
  staging: oneOf(["copy"], "leave it out to have TypedArrays refused in calls"),
  ...{ readPlan: "boolean", nvls: "boolean" },
};

/** Refuses lists of devices that are empty, name one twice, or hold an invalid device number. */
export function assertDevices(devices: readonly number[]): void {
  const seen = new Set<number>();
  const fault = (found: string): InvalidArgumentError =>
    invalid(
      "nccl",
      "devices",
      found,
      "different device numbers from 0 on",
      "leave it out for one device per rank from 0 on; CUDA_VISIBLE_DEVICES says which are seen",
    );
  if (!Array.isArray(devices) || devices.length === 0) throw fault(JSON.stringify(devices));
  for (const device of devices) {
    if (!Number.isSafeInteger(device) || device < 0) throw fault(textOf(device));
    if (seen.has(device)) throw fault(`${device} twice`);
    seen.add(device);
  }
}

/** CUDA's default streams by handle: they wait for other streams, and cannot be captured. */
const defaultStreams: readonly bigint[] = [0n, 1n, 2n];

/** The caller's streams, by rank of this process. */
export function streamsOf({ stream, streams }: NcclOptions): readonly bigint[] | undefined {
  return stream === undefined ? streams : [stream];
}

/** Refuses what are no streams of the caller: none, one twice, or a default stream of CUDA. */
export function assertStreams(options: NcclOptions): void {
  const field = options.stream === undefined ? "streams" : "stream";
  const fault = (found: string, needed: string, hint?: string): InvalidArgumentError =>
    invalid("nccl", field, found, needed, hint);
  const handles =
    field === "stream"
      ? "the handle of a CUDA stream, as a bigint"
      : "handles of CUDA streams, as bigints";
  if (options.stream !== undefined && options.streams !== undefined) {
    throw fault("stream and streams", "one of them", "stream: s is short for streams: [s]");
  }
  const streams: unknown = streamsOf(options);
  if (streams === undefined) return;
  if (!Array.isArray(streams)) throw fault(textOf(streams), handles);
  if (streams.length === 0) throw fault("none", handles);
  const seen = new Set<bigint>();
  for (const stream of streams as readonly unknown[]) {
    if (typeof stream !== "bigint" || stream < 0n || stream >= 2n ** 64n)
      throw fault(textOf(stream), handles);
    if (defaultStreams.includes(stream)) {
      throw fault(
        `the default stream ${stream}`,
        "one of the caller's own",
        "make it with cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking)",
      );
    }
    if (seen.has(stream)) throw fault(`${stream} twice`, "one for every rank");
    seen.add(stream);
  }
}
