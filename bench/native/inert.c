/*
 * libnccl and libcudart that do nothing, in one library: what a call costs over them is what twinccl and the foreign calls
 * cost. Handles and addresses are made up, nothing is ever copied, and every request is done at once.
 *
 * On request they leave the processor's caches as a driver does, without the caller's data, and report how long
 * that took.
 */
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#pragma GCC diagnostic ignored "-Wunused-parameter"

/* Devices of the machine, 9 at most. */
#ifndef DEVICES
#define DEVICES 8
#endif

typedef struct { char internal[128]; } ncclUniqueId;

static uintptr_t next_address = (uintptr_t)1 << 44;

static void *address(size_t bytes) {
  void *found = (void *)next_address;
  next_address += (bytes + 511) / 512 * 512;
  return found;
}

static int give(void **out) {
  *out = address(512);
  return 0;
}

#define EXPORT __attribute__((visibility("default")))
#define NOTHING(name, ...) \
  EXPORT int name(__VA_ARGS__) { return 0; }
#define DRIVER(name, ...) \
  EXPORT int name(__VA_ARGS__) { return emptied(); }

static unsigned char *read_through;
static size_t read_bytes;
static double emptying_us;
static int groups_open;

static double now_us(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return 1e6 * (double)now.tv_sec + 1e-3 * (double)now.tv_nsec;
}

/* What is launched runs a driver: a call outside of a group, and the end of the outermost group. */
static int emptied(void) {
  static volatile unsigned sink;
  if (read_bytes == 0 || groups_open > 0) return 0;
  double began = now_us();
  unsigned sum = 0;
  for (size_t at = 0; at < read_bytes; at += 64) sum += read_through[at];
  sink = sum;
  (void)sink;
  emptying_us += now_us() - began;
  return 0;
}

/* From now on every launch reads so much memory. */
EXPORT int inert_empty_caches(size_t bytes) {
  free(read_through);
  read_bytes = 0;
  read_through = malloc(bytes);
  if (read_through == NULL) return 1;
  memset(read_through, 1, bytes);
  read_bytes = bytes;
  return 0;
}

/* Microseconds that this took so far. */
EXPORT double inert_emptying_us(void) { return emptying_us; }

/* CUDA runtime */
EXPORT int cudaRuntimeGetVersion(int *version) { *version = 12080; return 0; }
EXPORT int cudaDriverGetVersion(int *version) { *version = 12080; return 0; }
/* The devices of the machine, and those of them that CUDA_VISIBLE_DEVICES shows, listed by number. */
static int visible_devices(int *shown) {
  const char *list = getenv("CUDA_VISIBLE_DEVICES");
  int count = 0;
  if (list == NULL) {
    for (; count < DEVICES; count++) shown[count] = count;
    return count;
  }
  while (count < DEVICES) {
    char *end;
    long device = strtol(list, &end, 10);
    if (end == list || device < 0 || device >= DEVICES) break;
    shown[count++] = (int)device;
    if (*end != ',') break;
    list = end + 1;
  }
  return count;
}

EXPORT int cudaGetDeviceCount(int *count) {
  int shown[DEVICES];
  *count = visible_devices(shown);
  return *count > 0 ? 0 : 100;
}
EXPORT int cudaDeviceGetAttribute(int *value, int attribute, int device) {
  (void)device;
  *value = attribute == 75 ? 9 : 0;
  return 0;
}
EXPORT int cudaDeviceGetPCIBusId(char *id, int length, int device) {
  int shown[DEVICES];
  if (device >= visible_devices(shown)) return 101;
  strncpy(id, "0000:00:00.0", (size_t)length);
  id[6] = (char)('0' + shown[device]);
  return 0;
}
EXPORT int cudaDeviceCanAccessPeer(int *can, int device, int peer) {
  *can = device != peer;
  return 0;
}
EXPORT const char *cudaGetErrorName(int error) { (void)error; return "inert"; }
EXPORT const char *cudaGetErrorString(int error) { (void)error; return "inert"; }
EXPORT int cudaMalloc(void **out, size_t bytes) { *out = address(bytes); return 0; }
EXPORT int cudaHostAlloc(void **out, size_t bytes, unsigned flags) {
  static char host[1 << 20];
  (void)flags;
  *out = host;
  return bytes <= sizeof host ? 0 : 2;
}
EXPORT int cudaMemGetInfo(size_t *free_bytes, size_t *total) {
  *free_bytes = *total = (size_t)1 << 37;
  return 0;
}
EXPORT int cudaStreamCreateWithFlags(void **out, unsigned flags) { (void)flags; return give(out); }
EXPORT int cudaEventCreateWithFlags(void **out, unsigned flags) { (void)flags; return give(out); }
EXPORT int cudaEventElapsedTime(float *ms, void *start, void *end) {
  (void)start, (void)end;
  *ms = 0;
  return 0;
}
EXPORT int cudaStreamEndCapture(void *stream, void **out) { (void)stream; return give(out); }
EXPORT int cudaGraphInstantiateWithFlags(void **out, void *graph, unsigned long long flags) {
  (void)graph, (void)flags;
  return give(out);
}
EXPORT int cudaPointerGetAttributes(void *attributes, const void *ptr) {
  (void)attributes, (void)ptr;
  return 1;
}
NOTHING(cudaSetDevice, int device)
NOTHING(cudaGetLastError, void)
NOTHING(cudaFree, void *ptr)
NOTHING(cudaFreeHost, void *ptr)
NOTHING(cudaMemcpyAsync, void *to, const void *from, size_t bytes, int kind, void *stream)
NOTHING(cudaMemsetAsync, void *to, int value, size_t bytes, void *stream)
NOTHING(cudaStreamDestroy, void *stream)
NOTHING(cudaStreamSynchronize, void *stream)
NOTHING(cudaStreamQuery, void *stream)
NOTHING(cudaStreamWaitEvent, void *stream, void *event, unsigned int flags)
NOTHING(cudaEventDestroy, void *event)
NOTHING(cudaEventRecord, void *event, void *stream)
NOTHING(cudaEventQuery, void *event)
NOTHING(cudaStreamBeginCapture, void *stream, int mode)
DRIVER(cudaGraphLaunch, void *graph, void *stream)
NOTHING(cudaGraphExecDestroy, void *graph)
NOTHING(cudaGraphDestroy, void *graph)

/* NCCL */
EXPORT int ncclGetVersion(int *version) { *version = 22809; return 0; }
EXPORT int ncclGetUniqueId(ncclUniqueId *id) { memset(id, 7, sizeof *id); return 0; }
EXPORT int ncclCommInitRank(void **out, int size, ncclUniqueId id, int rank) {
  (void)size; (void)id; (void)rank;
  return give(out);
}
EXPORT int ncclCommInitRankConfig(void **out, int size, ncclUniqueId id, int rank, void *config) {
  (void)size, (void)id, (void)rank, (void)config;
  return give(out);
}
EXPORT int ncclCommSplit(void *comm, int color, int key, void **out, void *config) {
  (void)comm, (void)color, (void)key, (void)config;
  return give(out);
}
EXPORT int ncclCommGetAsyncError(void *comm, int *status) { (void)comm; *status = 0; return 0; }
EXPORT const char *ncclGetErrorString(int status) { (void)status; return "inert"; }
EXPORT const char *ncclGetLastError(void *comm) { (void)comm; return ""; }
EXPORT int ncclGroupSimulateEnd(void *info) { (void)info; return 0; }
EXPORT int ncclRedOpCreatePreMulSum(int *op, void *scalar, int type, int residence, void *comm) {
  (void)scalar, (void)type, (void)residence, (void)comm;
  *op = 5;
  return 0;
}
EXPORT int ncclMemAlloc(void **out, size_t bytes) { *out = address(bytes); return 0; }
EXPORT int ncclCommWindowRegister(void *comm, void *ptr, size_t bytes, void **out, int flags) {
  (void)comm, (void)ptr, (void)bytes, (void)flags;
  return give(out);
}
NOTHING(ncclCommFinalize, void *comm)
NOTHING(ncclCommDestroy, void *comm)
NOTHING(ncclCommAbort, void *comm)
EXPORT int ncclGroupStart(void) {
  groups_open++;
  return 0;
}
EXPORT int ncclGroupEnd(void) {
  if (groups_open > 0) groups_open--;
  return emptied();
}
DRIVER(ncclAllReduce, const void *send, void *recv, size_t count, int type, int op, void *comm, void *stream)
DRIVER(ncclReduce, const void *send, void *recv, size_t count, int type, int op, int root, void *comm, void *stream)
DRIVER(ncclReduceScatter, const void *send, void *recv, size_t count, int type, int op, void *comm, void *stream)
DRIVER(ncclAllGather, const void *send, void *recv, size_t count, int type, void *comm, void *stream)
DRIVER(ncclBroadcast, const void *send, void *recv, size_t count, int type, int root, void *comm, void *stream)
DRIVER(ncclAlltoAll, const void *send, void *recv, size_t count, int type, void *comm, void *stream)
DRIVER(ncclSend, const void *send, size_t count, int type, int peer, void *comm, void *stream)
DRIVER(ncclRecv, void *recv, size_t count, int type, int peer, void *comm, void *stream)
NOTHING(ncclRedOpDestroy, int op, void *comm)
NOTHING(ncclMemFree, void *ptr)
NOTHING(ncclCommWindowDeregister, void *comm, void *window)
