/** Remedies for the statuses of NCCL and CUDA. */

const enableDebugLog = "start again with NCCL_DEBUG=WARN";
const restart = "this process can use its GPU no more: end it and start another";
const survivors = "rebuild() continues with the survivors";

const ncclHints: Readonly<Record<string, string>> = {
  ncclUnhandledCudaError: `a CUDA call inside NCCL failed; ${enableDebugLog}, which names it`,
  ncclSystemError: `a system call or the network failed; ${enableDebugLog}, which names it (the size of /dev/shm, open files, NCCL_SOCKET_IFNAME)`,
  ncclInternalError: `NCCL met what it did not expect, mostly after another failure: look at the other ranks' errors; ${enableDebugLog}`,
  ncclInvalidArgument: `NCCL refused an argument of the call, or of a communicator that is over; ${enableDebugLog}, which names it`,
  ncclInvalidUsage: `the calls do not fit together, or two ranks share a GPU; ${enableDebugLog}, which says why`,
  ncclRemoteError: `another process of the job ended or lost its connection: look at the other ranks' logs; ${survivors}`,
  ncclInProgress:
    "NCCL is set not to wait for its calls: unset NCCL_COMM_BLOCKING, in nccl.conf too",
  ncclTimeout: `ranks did not come together in time: look at the logs of all; ${survivors}`,
};

/** For statuses of later versions. */
const ncclOther = `${enableDebugLog}, which says why; this status is newer than twinccl's list`;

const stream = "another stream or library disturbed a recording: record again, with nothing beside";
const lostDevice = `a kernel failed, and the CUDA context with it; ${restart} (compute-sanitizer names the kernel)`;
const hardware = `the hardware failed: look for Xid in dmesg and at nvidia-smi -q; ${restart}`;

const cudaHints: Readonly<Record<string, string>> = {
  cudaErrorInvalidValue:
    "CUDA refused an argument: adopted memory and given streams must live until the world is closed",
  cudaErrorMemoryAllocation:
    "the device has no such block free; dispose of buffers, or allocate less",
  cudaErrorInitializationError:
    "CUDA could not start here: start ranks as processes of their own, not by a fork after CUDA was used; twinccl doctor shows more",
  cudaErrorCudartUnloading: "the process is ending; close worlds before that",
  cudaErrorInsufficientDriver:
    "the driver is older than the CUDA runtime; twinccl doctor shows both versions",
  cudaErrorDevicesUnavailable:
    "another process has the GPU for itself (nvidia-smi shows it and the compute mode); end that one or choose another GPU",
  cudaErrorNoDevice: "no GPU is visible; look at CUDA_VISIBLE_DEVICES and the driver",
  cudaErrorInvalidDevice: "there is no such device; twinccl doctor lists those that are visible",
  cudaErrorInvalidResourceHandle:
    "a stream or event is over or of another device: given streams must live until the world is closed",
  cudaErrorNoKernelImageForDevice:
    "the library has no code for this GPU; twinccl doctor shows its compute capability",
  cudaErrorPeerAccessUnsupported:
    "the GPUs cannot reach each other's memory; nvidia-smi topo -m shows which can",
  cudaErrorSystemNotReady:
    "the GPUs' fabric is not started: systemctl status nvidia-fabricmanager shows why",
  cudaErrorSystemDriverMismatch:
    "driver and kernel module differ in version: reload the module, or reboot",
  cudaErrorCompatNotSupportedOnDevice:
    "forward compatibility does not hold on this GPU: take the driver that the CUDA runtime needs",
  cudaErrorOperatingSystem: "the system refused a call of CUDA: look at dmesg and the limits",
  cudaErrorNotPermitted: "CUDA refuses this now: no stream may be recording meanwhile",
  cudaErrorNotSupported: "this GPU or driver cannot do it; twinccl doctor shows both",
  cudaErrorIllegalAddress: lostDevice,
  cudaErrorIllegalInstruction: lostDevice,
  cudaErrorMisalignedAddress: lostDevice,
  cudaErrorInvalidAddressSpace: lostDevice,
  cudaErrorInvalidPc: lostDevice,
  cudaErrorLaunchFailure: lostDevice,
  cudaErrorLaunchTimeout: lostDevice,
  cudaErrorAssert: lostDevice,
  cudaErrorECCUncorrectable: hardware,
  cudaErrorNvlinkUncorrectable: hardware,
  cudaErrorHardwareStackError: hardware,
  cudaErrorExternalDevice: hardware,
  cudaErrorContained: hardware,
  cudaErrorStreamCaptureUnsupported: stream,
  cudaErrorStreamCaptureInvalidated: stream,
  cudaErrorStreamCaptureMerge: stream,
  cudaErrorStreamCaptureUnmatched: stream,
  cudaErrorStreamCaptureUnjoined: stream,
  cudaErrorStreamCaptureIsolation: stream,
  cudaErrorStreamCaptureImplicit: stream,
  cudaErrorStreamCaptureWrongThread: stream,
  cudaErrorCapturedEvent: stream,
};

const cudaOther =
  "look the status up in CUDA's list of cudaError_t; twinccl doctor shows driver and runtime, dmesg what the driver says (Xid)";

/** The remedy for a status of NCCL. */
export function ncclHint(statusName: string): string {
  return ncclHints[statusName] ?? ncclOther;
}

/** The remedy for a status of CUDA. */
export function cudaHint(statusName: string): string {
  return cudaHints[statusName] ?? cudaOther;
}
