/** Errors of native calls: which C function, on which device, what it returned and what the library said about it. */
import { CommError, type CommErrorFacts } from "../../../api/index.ts";

/** Facts of a failed native call. */
export interface NativeFailure {
  /** The C function, such as `ncclAllReduce`. */
  readonly cCall: string;
  readonly status: number;
  /** The symbolic name of the status, such as `ncclUnhandledCudaError`. */
  readonly statusName: string;
  /** The library's own words. */
  readonly detail: string;
}

/** NCCL returned a status other than success. */
export class NcclError extends CommError {
  readonly code = "ERR_COMM_NCCL";
  readonly cCall: string;
  readonly status: number;
  readonly statusName: string;
  readonly detail: string;

  constructor(failure: NativeFailure, facts: CommErrorFacts = {}) {
    super(failureText(failure, ncclHints[failure.statusName]), facts);
    this.cCall = failure.cCall;
    this.status = failure.status;
    this.statusName = failure.statusName;
    this.detail = failure.detail;
  }
}

/** The CUDA runtime returned a status other than success. */
export class CudaError extends CommError {
  readonly code = "ERR_COMM_CUDA";
  readonly cCall: string;
  readonly status: number;
  readonly statusName: string;
  readonly detail: string;

  constructor(failure: NativeFailure, facts: CommErrorFacts = {}) {
    super(failureText(failure, cudaHints[failure.statusName]), facts);
    this.cCall = failure.cCall;
    this.status = failure.status;
    this.statusName = failure.statusName;
    this.detail = failure.detail;
  }
}

const ncclHints: Readonly<Record<string, string>> = {
  ncclUnhandledCudaError: "a CUDA call inside NCCL failed; NCCL_DEBUG=WARN names it",
  ncclSystemError: "a system call or the network failed; NCCL_DEBUG=WARN names it",
  ncclRemoteError:
    "another process of the job ended or lost its connection; close this world and rebuild",
  ncclInvalidUsage: "the calls do not fit together; NCCL_DEBUG=WARN says why",
};

const cudaHints: Readonly<Record<string, string>> = {
  cudaErrorMemoryAllocation:
    "the device has no such block free; dispose of buffers, or allocate less",
  cudaErrorInvalidDevice: "there is no such device; twinccl doctor lists those that are visible",
  cudaErrorNoDevice: "no GPU is visible; look at CUDA_VISIBLE_DEVICES and the driver",
  cudaErrorInsufficientDriver:
    "the driver is older than the CUDA runtime; twinccl doctor shows both versions",
};

function failureText(failure: NativeFailure, hint: string | undefined) {
  const { cCall, status, statusName, detail } = failure;
  const headline = `${cCall}: ${statusName} (${status})${detail === "" ? "" : `: ${detail}`}`;
  return hint === undefined ? { headline } : { headline, hint };
}
