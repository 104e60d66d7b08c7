/**
 * The functions of libcudart (CUDA runtime) and libcuda (CUDA driver). Handles and addresses are bigints; `size_t` parameters
 * are bytes.
 *
 * @see https://docs.nvidia.com/cuda/cuda-runtime-api/
 * @see https://docs.nvidia.com/cuda/cuda-driver-api/
 */
import { prototype } from "./prototype.ts";

type Ptr = bigint;
type Status = number;

export const cudaTable = {
  runtimeGetVersion: prototype<(version: Int32Array) => Status>(
    "cudaError_t cudaRuntimeGetVersion(int* runtimeVersion)",
    "7.0",
  ),
  driverGetVersion: prototype<(version: Int32Array) => Status>(
    "cudaError_t cudaDriverGetVersion(int* driverVersion)",
    "7.0",
  ),
  getDeviceCount: prototype<(count: Int32Array) => Status>(
    "cudaError_t cudaGetDeviceCount(int* count)",
    "7.0",
  ),
  setDevice: prototype<(device: number) => Status>("cudaError_t cudaSetDevice(int device)", "7.0"),
  deviceGetAttribute: prototype<(value: Int32Array, attribute: number, device: number) => Status>(
    "cudaError_t cudaDeviceGetAttribute(int* value, int attr, int device)",
    "7.0",
  ),
  deviceGetPCIBusId: prototype<(id: Uint8Array, length: number, device: number) => Status>(
    "cudaError_t cudaDeviceGetPCIBusId(char* pciBusId, int len, int device)",
    "7.0",
  ),
  deviceCanAccessPeer: prototype<(can: Int32Array, device: number, peer: number) => Status>(
    "cudaError_t cudaDeviceCanAccessPeer(int* canAccessPeer, int device, int peerDevice)",
    "7.0",
  ),
  getErrorName: prototype<(status: Status) => string>(
    "const char* cudaGetErrorName(cudaError_t error)",
    "7.0",
  ),
  getErrorString: prototype<(status: Status) => string>(
    "const char* cudaGetErrorString(cudaError_t error)",
    "7.0",
  ),
  getLastError: prototype<() => Status>("cudaError_t cudaGetLastError(void)", "7.0"),
  malloc: prototype<(ptr: BigUint64Array, bytes: number) => Status>(
    "cudaError_t cudaMalloc(void** devPtr, size_t size)",
    "7.0",
  ),
  free: prototype<(ptr: Ptr) => Status>("cudaError_t cudaFree(void* devPtr)", "7.0"),
  memGetInfo: prototype<(free: BigUint64Array, total: BigUint64Array) => Status>(
    "cudaError_t cudaMemGetInfo(size_t* free, size_t* total)",
    "7.0",
  ),
  hostAlloc: prototype<(ptr: BigUint64Array, bytes: number, flags: number) => Status>(
    "cudaError_t cudaHostAlloc(void** pHost, size_t size, unsigned int flags)",
    "7.0",
  ),
  freeHost: prototype<(ptr: Ptr) => Status>("cudaError_t cudaFreeHost(void* ptr)", "7.0"),
  pointerGetAttributes: prototype<(attributes: Int32Array, ptr: Ptr) => Status>(
    "cudaError_t cudaPointerGetAttributes(void* attributes, const void* ptr)",
    "11.0",
  ),
  memcpyAsync: prototype<
    (
      target: Ptr | Uint8Array,
      source: Ptr | Uint8Array,
      bytes: number,
      kind: number,
      stream: Ptr,
    ) => Status
  >(
    "cudaError_t cudaMemcpyAsync(void* dst, const void* src, size_t count, int kind, cudaStream_t stream)",
    "7.0",
  ),
  memsetAsync: prototype<(ptr: Ptr, value: number, bytes: number, stream: Ptr) => Status>(
    "cudaError_t cudaMemsetAsync(void* devPtr, int value, size_t count, cudaStream_t stream)",
    "7.0",
  ),
  streamCreateWithFlags: prototype<(stream: BigUint64Array, flags: number) => Status>(
    "cudaError_t cudaStreamCreateWithFlags(cudaStream_t* pStream, unsigned int flags)",
    "7.0",
  ),
  streamDestroy: prototype<(stream: Ptr) => Status>(
    "cudaError_t cudaStreamDestroy(cudaStream_t stream)",
    "7.0",
  ),
  streamSynchronize: prototype<(stream: Ptr) => Status>(
    "cudaError_t cudaStreamSynchronize(cudaStream_t stream)",
    "7.0",
  ),
  streamQuery: prototype<(stream: Ptr) => Status>(
    "cudaError_t cudaStreamQuery(cudaStream_t stream)",
    "7.0",
  ),
  streamWaitEvent: prototype<(stream: Ptr, event: Ptr, flags: number) => Status>(
    "cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned int flags)",
    "7.0",
  ),
  eventCreateWithFlags: prototype<(event: BigUint64Array, flags: number) => Status>(
    "cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned int flags)",
    "7.0",
  ),
  eventDestroy: prototype<(event: Ptr) => Status>(
    "cudaError_t cudaEventDestroy(cudaEvent_t event)",
    "7.0",
  ),
  eventRecord: prototype<(event: Ptr, stream: Ptr) => Status>(
    "cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream)",
    "7.0",
  ),
  eventQuery: prototype<(event: Ptr) => Status>(
    "cudaError_t cudaEventQuery(cudaEvent_t event)",
    "7.0",
  ),
  streamIsCapturing: prototype<(stream: Ptr, status: Int32Array) => Status>(
    "cudaError_t cudaStreamIsCapturing(cudaStream_t stream, int* pCaptureStatus)",
    "10.0",
  ),
  streamBeginCapture: prototype<(stream: Ptr, mode: number) => Status>(
    "cudaError_t cudaStreamBeginCapture(cudaStream_t stream, int mode)",
    "10.1",
  ),
  streamEndCapture: prototype<(stream: Ptr, graph: BigUint64Array) => Status>(
    "cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t* pGraph)",
    "10.0",
  ),
  graphInstantiateWithFlags: prototype<(exec: BigUint64Array, graph: Ptr, flags: number) => Status>(
    "cudaError_t cudaGraphInstantiateWithFlags(cudaGraphExec_t* pGraphExec, cudaGraph_t graph, unsigned long long flags)",
    "11.4",
  ),
  graphLaunch: prototype<(exec: Ptr, stream: Ptr) => Status>(
    "cudaError_t cudaGraphLaunch(cudaGraphExec_t graphExec, cudaStream_t stream)",
    "10.0",
  ),
  graphExecDestroy: prototype<(exec: Ptr) => Status>(
    "cudaError_t cudaGraphExecDestroy(cudaGraphExec_t graphExec)",
    "10.0",
  ),
  graphDestroy: prototype<(graph: Ptr) => Status>(
    "cudaError_t cudaGraphDestroy(cudaGraph_t graph)",
    "10.0",
  ),
} as const;

export const cudaDriverTable = {
  /** The driver's `CUdevice` of a runtime device. */
  deviceGet: prototype<(device: Int32Array, ordinal: number) => Status>(
    "CUresult cuDeviceGet(CUdevice* device, int ordinal)",
    "2.0",
  ),
  deviceGetAttribute: prototype<(value: Int32Array, attribute: number, device: number) => Status>(
    "CUresult cuDeviceGetAttribute(int* pi, int attrib, CUdevice dev)",
    "2.0",
  ),
} as const;
