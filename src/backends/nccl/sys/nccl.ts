/**
 * The functions of libnccl. Sizes are elements unless a parameter says bytes; handles and addresses are bigints.
 *
 * @see https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/api.html
 */
import { prototype } from "./prototype.ts";

type Ptr = bigint;
type Status = number;
/** Arguments of a collective, with those of its own. */
type Collective<Own extends readonly number[]> = (
  ...args: [send: Ptr, recv: Ptr, count: number, type: number, ...own: Own, comm: Ptr, stream: Ptr]
) => Status;
type Message = (
  ...args: [buffer: Ptr, count: number, type: number, peer: number, comm: Ptr, stream: Ptr]
) => Status;
/** `ncclUniqueId`, by value. */
export interface UniqueIdValue {
  readonly internal: Uint8Array;
}

/** Functions that move or reduce data. */
export const ncclDataTable = {
  allReduce: prototype<Collective<[op: number]>>(
    "ncclResult_t ncclAllReduce(const void* sendbuff, void* recvbuff, size_t count, ncclDataType_t datatype, ncclRedOp_t op, ncclComm_t comm, cudaStream_t stream)",
    "2.0",
  ),
  reduce: prototype<Collective<[op: number, root: number]>>(
    "ncclResult_t ncclReduce(const void* sendbuff, void* recvbuff, size_t count, ncclDataType_t datatype, ncclRedOp_t op, int root, ncclComm_t comm, cudaStream_t stream)",
    "2.0",
  ),
  reduceScatter: prototype<Collective<[op: number]>>(
    "ncclResult_t ncclReduceScatter(const void* sendbuff, void* recvbuff, size_t recvcount, ncclDataType_t datatype, ncclRedOp_t op, ncclComm_t comm, cudaStream_t stream)",
    "2.0",
  ),
  allGather: prototype<Collective<[]>>(
    "ncclResult_t ncclAllGather(const void* sendbuff, void* recvbuff, size_t sendcount, ncclDataType_t datatype, ncclComm_t comm, cudaStream_t stream)",
    "2.0",
  ),
  broadcast: prototype<Collective<[root: number]>>(
    "ncclResult_t ncclBroadcast(const void* sendbuff, void* recvbuff, size_t count, ncclDataType_t datatype, int root, ncclComm_t comm, cudaStream_t stream)",
    "2.2",
  ),
  send: prototype<Message>(
    "ncclResult_t ncclSend(const void* sendbuff, size_t count, ncclDataType_t datatype, int peer, ncclComm_t comm, cudaStream_t stream)",
    "2.7",
  ),
  recv: prototype<Message>(
    "ncclResult_t ncclRecv(void* recvbuff, size_t count, ncclDataType_t datatype, int peer, ncclComm_t comm, cudaStream_t stream)",
    "2.7",
  ),
  alltoAll: prototype<Collective<[]>>(
    "ncclResult_t ncclAlltoAll(const void* sendbuff, void* recvbuff, size_t count, ncclDataType_t datatype, ncclComm_t comm, cudaStream_t stream)",
    "2.28",
  ),
} as const;

export const ncclTable = {
  ...ncclDataTable,
  getVersion: prototype<(version: Int32Array) => Status>(
    "ncclResult_t ncclGetVersion(int* version)",
    "2.3",
  ),
  getUniqueId: prototype<(id: Uint8Array) => Status>(
    "ncclResult_t ncclGetUniqueId(ncclUniqueId* uniqueId)",
    "2.0",
  ),
  commInitRankConfig: prototype<
    (
      comm: BigUint64Array,
      size: number,
      id: UniqueIdValue,
      rank: number,
      config: Uint8Array,
    ) => Status
  >(
    "ncclResult_t ncclCommInitRankConfig(ncclComm_t* comm, int nranks, ncclUniqueId commId, int rank, ncclConfig_t* config)",
    "2.14",
  ),
  commSplit: prototype<
    (comm: Ptr, color: number, key: number, child: BigUint64Array, config: Uint8Array) => Status
  >(
    "ncclResult_t ncclCommSplit(ncclComm_t comm, int color, int key, ncclComm_t* newcomm, ncclConfig_t* config)",
    "2.18",
  ),
  commAbort: prototype<(comm: Ptr) => Status>("ncclResult_t ncclCommAbort(ncclComm_t comm)", "2.4"),
  commGetAsyncError: prototype<(comm: Ptr, status: Int32Array) => Status>(
    "ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t* asyncError)",
    "2.4",
  ),
  getErrorString: prototype<(status: Status) => string>(
    "const char* ncclGetErrorString(ncclResult_t result)",
    "2.0",
  ),
  getLastError: prototype<(comm: Ptr | null) => string>(
    "const char* ncclGetLastError(ncclComm_t comm)",
    "2.13",
  ),
  groupStart: prototype<() => Status>("ncclResult_t ncclGroupStart(void)", "2.0"),
  groupEnd: prototype<() => Status>("ncclResult_t ncclGroupEnd(void)", "2.0"),
  groupSimulateEnd: prototype<(info: Uint8Array) => Status>(
    "ncclResult_t ncclGroupSimulateEnd(ncclSimInfo_t* simInfo)",
    "2.22",
  ),
  redOpCreatePreMulSum: prototype<
    (op: Int32Array, scalar: Uint8Array, type: number, residence: number, comm: Ptr) => Status
  >(
    "ncclResult_t ncclRedOpCreatePreMulSum(ncclRedOp_t* op, void* scalar, ncclDataType_t datatype, ncclScalarResidence_t residence, ncclComm_t comm)",
    "2.11",
  ),
  redOpDestroy: prototype<(op: number, comm: Ptr) => Status>(
    "ncclResult_t ncclRedOpDestroy(ncclRedOp_t op, ncclComm_t comm)",
    "2.11",
  ),
  memAlloc: prototype<(ptr: BigUint64Array, bytes: number) => Status>(
    "ncclResult_t ncclMemAlloc(void** ptr, size_t size)",
    "2.19",
  ),
  memFree: prototype<(ptr: Ptr) => Status>("ncclResult_t ncclMemFree(void* ptr)", "2.19"),
  commWindowRegister: prototype<
    (comm: Ptr, ptr: Ptr, bytes: number, window: BigUint64Array, flags: number) => Status
  >(
    "ncclResult_t ncclCommWindowRegister(ncclComm_t comm, void* buff, size_t size, ncclWindow_t* win, int winFlags)",
    "2.27",
  ),
  commWindowDeregister: prototype<(comm: Ptr, window: Ptr) => Status>(
    "ncclResult_t ncclCommWindowDeregister(ncclComm_t comm, ncclWindow_t win)",
    "2.27",
  ),
} as const;
