/* Stands in for libnccl and libcudart: every function writes down what arrived, as a C compiler sees it. */
#include <pthread.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

typedef struct ncclComm *ncclComm_t;
typedef struct ncclWindow *ncclWindow_t;
typedef struct CUstream *cudaStream_t;
typedef struct CUevent *cudaEvent_t;
typedef struct CUgraph *cudaGraph_t;
typedef struct CUgraphExec *cudaGraphExec_t;
typedef struct { char internal[128]; } ncclUniqueId;
typedef int ncclResult_t, ncclDataType_t, ncclRedOp_t, ncclScalarResidence_t, cudaError_t, CUresult, CUdevice;

typedef struct {
  size_t size;
  unsigned int magic;
  unsigned int version;
  int blocking;
  int cgaClusterSize;
  int minCTAs;
  int maxCTAs;
  const char *netName;
  int splitShare;
  int trafficClass;
  const char *commName;
  int collnetEnable;
  int CTAPolicy;
  int shrinkShare;
  int nvlsCTAs;
  int nChannelsPerNetPeer;
  int nvlinkCentricSched;
} ncclConfig_t;

typedef struct {
  size_t size;
  unsigned int magic;
  unsigned int version;
  float estimatedTime;
} ncclSimInfo_t;

/* What the test chose, what arrived last, and all that arrived, a line each. */
static struct {
  char text[4096];
  char lines[1 << 16];
  int status;
  int failing; /* which call has the status, or from which on if negative; 0 for all */
  uint64_t out[2];
  float real;
  const char *lastError;
  size_t deepBytes;
  pthread_t caller;
  int calls;
} echo;

void echo_begin(int status, uint64_t out0, uint64_t out1, double real, size_t deepBytes) {
  echo.text[0] = 0;
  echo.status = status;
  echo.out[0] = out0;
  echo.out[1] = out1;
  echo.real = (float)real;
  echo.deepBytes = deepBytes;
  echo.caller = pthread_self();
  echo.calls = 0;
  echo.lines[0] = 0;
  echo.failing = 0;
}
void echo_failing(int call) { echo.failing = call; }
void echo_last_error(int some) { echo.lastError = some ? "the other end hung up" : ""; }
const char *echo_text(void) { return echo.text; }
const char *echo_lines(void) { return echo.lines; }
int echo_calls(void) { return echo.calls; }

/* Calls on other threads wait while they are held; how many do. */
static volatile int held;
static int waiting;
void echo_hold(int hold) { held = hold; }
int echo_waiting(void) { return __atomic_load_n(&waiting, __ATOMIC_SEQ_CST); }
static void waitHeld(void) {
  __atomic_fetch_add(&waiting, 1, __ATOMIC_SEQ_CST);
  while (held) usleep(1000);
  __atomic_fetch_sub(&waiting, 1, __ATOMIC_SEQ_CST);
}

/*
 * A machine with that many GPUs, of which the first two cannot reach each other; 0 leaves all answers to the test. Each has
 * two links that are up: to NVSwitches, or of the last GPU to each of the first two, with their other link to a processor.
 */
static struct {
  unsigned int devices;
  int switched;
} machine;
void echo_machine(unsigned int devices, int switched) {
  machine.devices = devices;
  machine.switched = switched;
}

/* Uses that much stack, touching all of it. */
static int deep(size_t bytes) {
  volatile char frame[4096];
  frame[0] = (char)bytes;
  frame[4095] = frame[0];
  int below = bytes > sizeof frame ? deep(bytes - sizeof frame) : 0;
  return below + frame[4095] * 0;
}

#define SAY(...) say(snprintf(echo.text, sizeof echo.text, __VA_ARGS__))
static int say(int length) {
  (void)length;
  echo.calls++;
  if (!pthread_equal(pthread_self(), echo.caller)) {
    waitHeld();
    size_t at = strlen(echo.text);
    snprintf(echo.text + at, sizeof echo.text - at, " on another thread");
  }
  size_t before = strlen(echo.lines);
  snprintf(echo.lines + before, sizeof echo.lines - before, "%s\n", echo.text);
  int fails = echo.failing > 0 ? echo.calls == echo.failing : echo.calls >= -echo.failing;
  int status = fails ? echo.status : 0;
  return status + deep(echo.deepBytes);
}
#define P(pointer) ((unsigned long long)(uintptr_t)(pointer))

static void sayHex(char *into, const char *bytes, size_t length) {
  for (size_t i = 0; i < length; i++) snprintf(into + 2 * i, 3, "%02x", (unsigned char)bytes[i]);
}
static const char *configText(const ncclConfig_t *c) {
  static char text[1024];
  snprintf(text, sizeof text,
           "{size %zu magic %x version %u blocking %d cgaClusterSize %d minCTAs %d maxCTAs %d netName %llu "
           "splitShare %d trafficClass %d commName %llu collnetEnable %d CTAPolicy %d shrinkShare %d nvlsCTAs %d "
           "nChannelsPerNetPeer %d nvlinkCentricSched %d}",
           c->size, c->magic, c->version, c->blocking, c->cgaClusterSize, c->minCTAs, c->maxCTAs, P(c->netName),
           c->splitShare, c->trafficClass, P(c->commName), c->collnetEnable, c->CTAPolicy, c->shrinkShare, c->nvlsCTAs,
           c->nChannelsPerNetPeer, c->nvlinkCentricSched);
  return text;
}

/* Sizes and offsets as the compiler lays them out. */
const char *echo_layouts(void) {
  static char text[1024];
#define AT(field) (unsigned)offsetof(ncclConfig_t, field)
  snprintf(text, sizeof text,
           "uniqueId %u config %u blocking %u cgaClusterSize %u minCTAs %u maxCTAs %u netName %u splitShare %u "
           "trafficClass %u commName %u collnetEnable %u CTAPolicy %u shrinkShare %u nvlsCTAs %u "
           "nChannelsPerNetPeer %u nvlinkCentricSched %u simInfo %u estimatedTime %u",
           (unsigned)sizeof(ncclUniqueId), (unsigned)sizeof(ncclConfig_t), AT(blocking), AT(cgaClusterSize), AT(minCTAs),
           AT(maxCTAs), AT(netName), AT(splitShare), AT(trafficClass), AT(commName), AT(collnetEnable), AT(CTAPolicy),
           AT(shrinkShare), AT(nvlsCTAs), AT(nChannelsPerNetPeer), AT(nvlinkCentricSched),
           (unsigned)sizeof(ncclSimInfo_t), (unsigned)offsetof(ncclSimInfo_t, estimatedTime));
  return text;
}

/* NCCL */
#ifndef VERSION
#define VERSION 22809
#endif

ncclResult_t ncclGetVersion(int *version) {
  *version = echo.out[0] ? (int)echo.out[0] : VERSION;
  return SAY("ncclGetVersion");
}
ncclResult_t ncclGetUniqueId(ncclUniqueId *id) {
  for (int i = 0; i < 128; i++) id->internal[i] = (char)(255 - i);
  return SAY("ncclGetUniqueId");
}
ncclResult_t ncclCommInitRankConfig(ncclComm_t *comm, int nranks, ncclUniqueId id, int rank, ncclConfig_t *config) {
  char hex[257];
  sayHex(hex, id.internal, 128);
  *comm = (ncclComm_t)(uintptr_t)echo.out[0];
  return SAY("ncclCommInitRankConfig nranks %d id %s rank %d config %s", nranks, hex, rank, configText(config));
}
ncclResult_t ncclCommFinalize(ncclComm_t comm) { return SAY("ncclCommFinalize comm %llu", P(comm)); }
ncclResult_t ncclCommAbort(ncclComm_t comm) { return SAY("ncclCommAbort comm %llu", P(comm)); }
ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t *asyncError) {
  *asyncError = (int)echo.out[0];
  return SAY("ncclCommGetAsyncError comm %llu", P(comm));
}
const char *ncclGetErrorString(ncclResult_t result) {
  static char text[64];
  snprintf(text, sizeof text, "the text of %d", result);
  return text;
}
const char *ncclGetLastError(ncclComm_t comm) {
  static char text[128];
  if (echo.lastError == NULL || echo.lastError[0] == 0) return "";
  snprintf(text, sizeof text, "%s (comm %llu)", echo.lastError, P(comm));
  return text;
}
ncclResult_t ncclGroupStart(void) { return SAY("ncclGroupStart"); }
ncclResult_t ncclGroupEnd(void) { return SAY("ncclGroupEnd"); }
ncclResult_t ncclAllReduce(const void *send, void *recv, size_t count, ncclDataType_t type, ncclRedOp_t op,
                           ncclComm_t comm, cudaStream_t stream) {
  return SAY("ncclAllReduce send %llu recv %llu count %zu type %d op %d comm %llu stream %llu", P(send), P(recv), count,
             type, op, P(comm), P(stream));
}
ncclResult_t ncclReduce(const void *send, void *recv, size_t count, ncclDataType_t type, ncclRedOp_t op, int root,
                        ncclComm_t comm, cudaStream_t stream) {
  return SAY("ncclReduce send %llu recv %llu count %zu type %d op %d root %d comm %llu stream %llu", P(send), P(recv),
             count, type, op, root, P(comm), P(stream));
}
ncclResult_t ncclReduceScatter(const void *send, void *recv, size_t count, ncclDataType_t type, ncclRedOp_t op,
                               ncclComm_t comm, cudaStream_t stream) {
  return SAY("ncclReduceScatter send %llu recv %llu count %zu type %d op %d comm %llu stream %llu", P(send), P(recv),
             count, type, op, P(comm), P(stream));
}
ncclResult_t ncclAllGather(const void *send, void *recv, size_t count, ncclDataType_t type, ncclComm_t comm,
                           cudaStream_t stream) {
  return SAY("ncclAllGather send %llu recv %llu count %zu type %d comm %llu stream %llu", P(send), P(recv), count, type,
             P(comm), P(stream));
}
ncclResult_t ncclBroadcast(const void *send, void *recv, size_t count, ncclDataType_t type, int root, ncclComm_t comm,
                           cudaStream_t stream) {
  return SAY("ncclBroadcast send %llu recv %llu count %zu type %d root %d comm %llu stream %llu", P(send), P(recv),
             count, type, root, P(comm), P(stream));
}
ncclResult_t ncclSend(const void *buffer, size_t count, ncclDataType_t type, int peer, ncclComm_t comm,
                      cudaStream_t stream) {
  return SAY("ncclSend buffer %llu count %zu type %d peer %d comm %llu stream %llu", P(buffer), count, type, peer,
             P(comm), P(stream));
}
ncclResult_t ncclRecv(void *buffer, size_t count, ncclDataType_t type, int peer, ncclComm_t comm, cudaStream_t stream) {
  return SAY("ncclRecv buffer %llu count %zu type %d peer %d comm %llu stream %llu", P(buffer), count, type, peer,
             P(comm), P(stream));
}
ncclResult_t ncclRedOpCreatePreMulSum(ncclRedOp_t *op, void *scalar, ncclDataType_t type, ncclScalarResidence_t residence,
                                      ncclComm_t comm) {
  char hex[17];
  sayHex(hex, scalar, 8);
  *op = (int)echo.out[0];
  return SAY("ncclRedOpCreatePreMulSum scalar %s type %d residence %d comm %llu", hex, type, residence, P(comm));
}
ncclResult_t ncclRedOpDestroy(ncclRedOp_t op, ncclComm_t comm) {
  return SAY("ncclRedOpDestroy op %d comm %llu", op, P(comm));
}
#if VERSION >= 21800
ncclResult_t ncclCommSplit(ncclComm_t comm, int color, int key, ncclComm_t *newcomm, ncclConfig_t *config) {
  *newcomm = (ncclComm_t)(uintptr_t)echo.out[0];
  return SAY("ncclCommSplit comm %llu color %d key %d config %s", P(comm), color, key, configText(config));
}
#endif
#if VERSION >= 22200
ncclResult_t ncclMemAlloc(void **ptr, size_t size) {
  *ptr = (void *)(uintptr_t)echo.out[0];
  return SAY("ncclMemAlloc size %zu", size);
}
ncclResult_t ncclMemFree(void *ptr) { return SAY("ncclMemFree ptr %llu", P(ptr)); }
ncclResult_t ncclGroupSimulateEnd(ncclSimInfo_t *info) {
  int status = SAY("ncclGroupSimulateEnd size %zu magic %x version %u estimatedTime %g", info->size, info->magic,
                   info->version, info->estimatedTime);
  info->estimatedTime = echo.real;
  return status;
}
#endif
#if VERSION >= 22700
ncclResult_t ncclCommWindowRegister(ncclComm_t comm, void *buffer, size_t size, ncclWindow_t *window, int flags) {
  *window = (ncclWindow_t)(uintptr_t)echo.out[0];
  return SAY("ncclCommWindowRegister comm %llu buffer %llu size %zu flags %d", P(comm), P(buffer), size, flags);
}
ncclResult_t ncclCommWindowDeregister(ncclComm_t comm, ncclWindow_t window) {
  return SAY("ncclCommWindowDeregister comm %llu window %llu", P(comm), P(window));
}
#endif
#if VERSION >= 22800
ncclResult_t ncclAlltoAll(const void *send, void *recv, size_t count, ncclDataType_t type, ncclComm_t comm,
                          cudaStream_t stream) {
  return SAY("ncclAlltoAll send %llu recv %llu count %zu type %d comm %llu stream %llu", P(send), P(recv), count, type,
             P(comm), P(stream));
}
#endif

/* CUDA */
static int clearings;
int echo_clearings(void) { return clearings; }

cudaError_t cudaRuntimeGetVersion(int *version) {
  *version = (int)echo.out[0];
  return SAY("cudaRuntimeGetVersion");
}
cudaError_t cudaDriverGetVersion(int *version) {
  *version = (int)echo.out[0];
  return SAY("cudaDriverGetVersion");
}
cudaError_t cudaGetDeviceCount(int *count) {
  *count = machine.devices > 0 ? (int)machine.devices : (int)echo.out[0];
  return SAY("cudaGetDeviceCount");
}
cudaError_t cudaSetDevice(int device) { return SAY("cudaSetDevice device %d", device); }
cudaError_t cudaDeviceGetAttribute(int *value, int attribute, int device) {
  *value = machine.devices > 0 ? (attribute == 75 ? 9 : 0) : (int)echo.out[0];
  return SAY("cudaDeviceGetAttribute attribute %d device %d", attribute, device);
}
cudaError_t cudaDeviceGetPCIBusId(char *id, int length, int device) {
  snprintf(id, (size_t)length, "0000:%02X:00.0", machine.devices > 0 ? device + 16 : (int)echo.out[0]);
  return SAY("cudaDeviceGetPCIBusId length %d device %d", length, device);
}
cudaError_t cudaDeviceCanAccessPeer(int *can, int device, int peer) {
  *can = machine.devices > 0 ? device + peer > 1 : (int)echo.out[0];
  return SAY("cudaDeviceCanAccessPeer device %d peer %d", device, peer);
}
const char *cudaGetErrorName(cudaError_t error) {
  static char text[64];
  snprintf(text, sizeof text, "cudaErrorNumber%d", error);
  return text;
}
const char *cudaGetErrorString(cudaError_t error) {
  static char text[64];
  snprintf(text, sizeof text, "what CUDA says of %d", error);
  return text;
}
cudaError_t cudaGetLastError(void) {
  clearings++;
  return echo.status;
}
cudaError_t cudaMalloc(void **ptr, size_t size) {
  *ptr = (void *)(uintptr_t)echo.out[0];
  return SAY("cudaMalloc size %zu", size);
}
cudaError_t cudaFree(void *ptr) { return SAY("cudaFree ptr %llu", P(ptr)); }
cudaError_t cudaMemGetInfo(size_t *freeBytes, size_t *total) {
  *freeBytes = echo.out[0];
  *total = echo.out[1];
  return SAY("cudaMemGetInfo");
}
cudaError_t cudaHostAlloc(void **ptr, size_t size, unsigned int flags) {
  *ptr = (void *)(uintptr_t)echo.out[0];
  return SAY("cudaHostAlloc size %zu flags %u", size, flags);
}
cudaError_t cudaFreeHost(void *ptr) { return SAY("cudaFreeHost ptr %llu", P(ptr)); }
/* As in cuda_runtime_api.h of CUDA 13. */
struct cudaPointerAttributes {
  int type;
  int device;
  void *devicePointer;
  void *hostPointer;
  long reserved[8];
};
cudaError_t cudaPointerGetAttributes(struct cudaPointerAttributes *attributes, const void *ptr) {
  memset(attributes, 0x5a, sizeof *attributes);
  attributes->type = (int)echo.out[0];
  attributes->device = (int)echo.out[1];
  return SAY("cudaPointerGetAttributes ptr %llu", P(ptr));
}
cudaError_t cudaMemcpyAsync(void *target, const void *source, size_t count, int kind, cudaStream_t stream) {
  if (echo.real == 1) memcpy(target, source, count);
  return SAY("cudaMemcpyAsync target %llu source %llu count %zu kind %d stream %llu", P(target), P(source), count, kind,
             P(stream));
}
cudaError_t cudaMemsetAsync(void *ptr, int value, size_t count, cudaStream_t stream) {
  return SAY("cudaMemsetAsync ptr %llu value %d count %zu stream %llu", P(ptr), value, count, P(stream));
}
cudaError_t cudaStreamCreateWithFlags(cudaStream_t *stream, unsigned int flags) {
  *stream = (cudaStream_t)(uintptr_t)echo.out[0];
  return SAY("cudaStreamCreateWithFlags flags %u", flags);
}
cudaError_t cudaStreamDestroy(cudaStream_t stream) { return SAY("cudaStreamDestroy stream %llu", P(stream)); }
cudaError_t cudaStreamSynchronize(cudaStream_t stream) { return SAY("cudaStreamSynchronize stream %llu", P(stream)); }
cudaError_t cudaStreamQuery(cudaStream_t stream) { return SAY("cudaStreamQuery stream %llu", P(stream)); }
cudaError_t cudaEventCreateWithFlags(cudaEvent_t *event, unsigned int flags) {
  *event = (cudaEvent_t)(uintptr_t)echo.out[0];
  return SAY("cudaEventCreateWithFlags flags %u", flags);
}
cudaError_t cudaEventDestroy(cudaEvent_t event) { return SAY("cudaEventDestroy event %llu", P(event)); }
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
  return SAY("cudaEventRecord event %llu stream %llu", P(event), P(stream));
}
cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned int flags) {
  return SAY("cudaStreamWaitEvent stream %llu event %llu flags %u", P(stream), P(event), flags);
}
cudaError_t cudaEventQuery(cudaEvent_t event) { return SAY("cudaEventQuery event %llu", P(event)); }
cudaError_t cudaStreamIsCapturing(cudaStream_t stream, int *status) {
  *status = (int)echo.out[0];
  return SAY("cudaStreamIsCapturing stream %llu", P(stream));
}
cudaError_t cudaStreamBeginCapture(cudaStream_t stream, int mode) {
  return SAY("cudaStreamBeginCapture stream %llu mode %d", P(stream), mode);
}
cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t *graph) {
  *graph = (cudaGraph_t)(uintptr_t)echo.out[0];
  return SAY("cudaStreamEndCapture stream %llu", P(stream));
}
cudaError_t cudaGraphInstantiateWithFlags(cudaGraphExec_t *exec, cudaGraph_t graph, unsigned long long flags) {
  *exec = (cudaGraphExec_t)(uintptr_t)echo.out[0];
  return SAY("cudaGraphInstantiateWithFlags graph %llu flags %llu", P(graph), flags);
}
cudaError_t cudaGraphLaunch(cudaGraphExec_t exec, cudaStream_t stream) {
  return SAY("cudaGraphLaunch exec %llu stream %llu", P(exec), P(stream));
}
cudaError_t cudaGraphExecDestroy(cudaGraphExec_t exec) { return SAY("cudaGraphExecDestroy exec %llu", P(exec)); }
cudaError_t cudaGraphDestroy(cudaGraph_t graph) { return SAY("cudaGraphDestroy graph %llu", P(graph)); }

/* The driver */
CUresult cuDeviceGet(CUdevice *device, int ordinal) {
  *device = machine.devices > 0 ? ordinal + 100 : (int)echo.out[0];
  return SAY("cuDeviceGet ordinal %d", ordinal);
}
CUresult cuDeviceGetAttribute(int *value, int attribute, CUdevice device) {
  *value = machine.devices > 0 ? attribute == 132 && device >= 100 && machine.switched : (int)echo.out[0];
  return SAY("cuDeviceGetAttribute attribute %d device %d", attribute, device);
}

/* NVML */
typedef struct nvmlDevice *nvmlDevice_t;
typedef int nvmlReturn_t;

nvmlReturn_t nvmlInit_v2(void) { return SAY("nvmlInit_v2"); }
nvmlReturn_t nvmlShutdown(void) { return SAY("nvmlShutdown"); }
nvmlReturn_t nvmlSystemGetDriverVersion(char *version, unsigned int length) {
  snprintf(version, length, "999.88.%u", machine.devices);
  return SAY("nvmlSystemGetDriverVersion length %u", length);
}
nvmlReturn_t nvmlDeviceGetHandleByPciBusId_v2(const char *busId, nvmlDevice_t *device) {
  unsigned int bus = 0;
  sscanf(busId, "%*x:%x:", &bus);
  *device = (nvmlDevice_t)(uintptr_t)(machine.devices > 0 ? bus : echo.out[0]);
  return SAY("nvmlDeviceGetHandleByPciBusId_v2 busId %s", busId);
}
nvmlReturn_t nvmlDeviceGetName(nvmlDevice_t device, char *name, unsigned int length) {
  snprintf(name, length, "NVIDIA Echo");
  return SAY("nvmlDeviceGetName device %llu length %u", P(device), length);
}
nvmlReturn_t nvmlDeviceGetMemoryInfo(nvmlDevice_t device, uint64_t *memory) {
  memory[0] = 80ull << 30;
  memory[1] = 79ull << 30;
  memory[2] = 1ull << 30;
  return SAY("nvmlDeviceGetMemoryInfo device %llu", P(device));
}
nvmlReturn_t nvmlDeviceGetNvLinkState(nvmlDevice_t device, unsigned int link, int *active) {
  *active = link % 2 == 0;
  int status = SAY("nvmlDeviceGetNvLinkState device %llu link %u", P(device), link);
  return machine.devices > 0 && link >= 4 ? 3 : status;
}
/* As in nvml.h. */
typedef enum {
  NVML_NVLINK_DEVICE_TYPE_GPU = 0x00,
  NVML_NVLINK_DEVICE_TYPE_IBMNPU = 0x01,
  NVML_NVLINK_DEVICE_TYPE_SWITCH = 0x02,
  NVML_NVLINK_DEVICE_TYPE_UNKNOWN = 0xFF
} nvmlIntNvLinkDeviceType_t;
typedef enum {
  NVML_TOPOLOGY_INTERNAL = 0,
  NVML_TOPOLOGY_SINGLE = 10,
  NVML_TOPOLOGY_MULTIPLE = 20,
  NVML_TOPOLOGY_HOSTBRIDGE = 30,
  NVML_TOPOLOGY_NODE = 40,
  NVML_TOPOLOGY_SYSTEM = 50
} nvmlGpuTopologyLevel_t;
typedef struct {
  char busIdLegacy[16];
  unsigned int domain;
  unsigned int bus;
  unsigned int device;
  unsigned int pciDeviceId;
  unsigned int pciSubSystemId;
  char busId[32];
} nvmlPciInfo_t;

/* On the machine a GPU's handle is its bus, from 16 on. */
static int isToProcessor(nvmlDevice_t device, unsigned int link) {
  return (uintptr_t)device - 16 + 1 < machine.devices && link == 2;
}
nvmlReturn_t nvmlDeviceGetNvLinkRemoteDeviceType(nvmlDevice_t device, unsigned int link,
                                                 nvmlIntNvLinkDeviceType_t *type) {
  if (machine.devices == 0) *type = (nvmlIntNvLinkDeviceType_t)echo.out[0];
  else if (machine.switched) *type = NVML_NVLINK_DEVICE_TYPE_SWITCH;
  else if (isToProcessor(device, link)) *type = NVML_NVLINK_DEVICE_TYPE_IBMNPU;
  else *type = NVML_NVLINK_DEVICE_TYPE_GPU;
  return SAY("nvmlDeviceGetNvLinkRemoteDeviceType device %llu link %u", P(device), link);
}
nvmlReturn_t nvmlDeviceGetNvLinkRemotePciInfo_v2(nvmlDevice_t device, unsigned int link, nvmlPciInfo_t *pci) {
  memset(pci, 0x5a, sizeof *pci);
  unsigned int last = 16 + machine.devices - 1;
  pci->domain = machine.devices > 0 ? 0 : (unsigned int)(echo.out[0] >> 32);
  if (machine.devices == 0) pci->bus = (unsigned int)echo.out[0];
  else if (machine.switched) pci->bus = 192 + link;
  else if (isToProcessor(device, link)) pci->bus = 224;
  else pci->bus = (uintptr_t)device == last ? 16 + link / 2 : last;
  pci->device = machine.devices > 0 ? 0 : (unsigned int)echo.out[1];
  snprintf(pci->busId, sizeof pci->busId, "%08X:%02X:%02X.0", pci->domain, pci->bus, pci->device);
  return SAY("nvmlDeviceGetNvLinkRemotePciInfo_v2 device %llu link %u", P(device), link);
}
nvmlReturn_t nvmlDeviceGetTopologyCommonAncestor(nvmlDevice_t device1, nvmlDevice_t device2,
                                                 nvmlGpuTopologyLevel_t *level) {
  *level = machine.devices > 0 ? NVML_TOPOLOGY_NODE : (nvmlGpuTopologyLevel_t)echo.out[0];
  return SAY("nvmlDeviceGetTopologyCommonAncestor device1 %llu device2 %llu", P(device1), P(device2));
}
