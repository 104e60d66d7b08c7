/** The NCCL calls that move and reduce data. Counts are elements; types and operators are NCCL's own numbers. */
import type { NcclLibrary } from "./nccl-status.ts";

const hostImmediate = 1;

/** Collectives, sends and receives. */
export interface NcclDataCalls {
  allReduce(
    send: bigint,
    recv: bigint,
    count: number,
    type: number,
    op: number,
    comm: bigint,
    stream: bigint,
  ): void;
  reduce(
    send: bigint,
    recv: bigint,
    count: number,
    type: number,
    op: number,
    root: number,
    comm: bigint,
    stream: bigint,
  ): void;
  reduceScatter(
    send: bigint,
    recv: bigint,
    count: number,
    type: number,
    op: number,
    comm: bigint,
    stream: bigint,
  ): void;
  allGather(
    send: bigint,
    recv: bigint,
    count: number,
    type: number,
    comm: bigint,
    stream: bigint,
  ): void;
  broadcast(
    send: bigint,
    recv: bigint,
    count: number,
    type: number,
    root: number,
    comm: bigint,
    stream: bigint,
  ): void;
  /** A block of `count` elements for and from every rank. */
  allToAll(
    send: bigint,
    recv: bigint,
    count: number,
    type: number,
    comm: bigint,
    stream: bigint,
  ): void;
  send(
    buffer: bigint,
    count: number,
    type: number,
    peer: number,
    comm: bigint,
    stream: bigint,
  ): void;
  recv(
    buffer: bigint,
    count: number,
    type: number,
    peer: number,
    comm: bigint,
    stream: bigint,
  ): void;
}

/** Collectives, sends and receives, operators. */
export interface NcclCollectiveCalls extends NcclDataCalls {
  /** True when the library has `allToAll`; else it is sends and receives. */
  readonly hasAllToAll: boolean;
  /** An operator that multiplies by a scalar of the dtype before it sums. */
  preMulSum(scalar: Uint8Array, type: number, comm: bigint): number;
  destroyOp(op: number, comm: bigint): void;
}

/** Wraps these calls. */
export function collectiveCalls({ get, check, has }: NcclLibrary): NcclCollectiveCalls {
  const [allReduce, reduce, reduceScatter] = [
    get("allReduce"),
    get("reduce"),
    get("reduceScatter"),
  ];
  const [allGather, broadcast] = [get("allGather"), get("broadcast")];
  const [send, recv] = [get("send"), get("recv")];
  const hasAllToAll = has("alltoAll");
  const allToAll = hasAllToAll ? get("alltoAll") : undefined;
  return {
    hasAllToAll,
    allReduce: (from, into, count, type, op, comm, stream) =>
      check(allReduce(from, into, count, type, op, comm, stream), "ncclAllReduce", comm),
    reduce: (from, into, count, type, op, root, comm, stream) =>
      check(reduce(from, into, count, type, op, root, comm, stream), "ncclReduce", comm),
    reduceScatter: (from, into, count, type, op, comm, stream) =>
      check(reduceScatter(from, into, count, type, op, comm, stream), "ncclReduceScatter", comm),
    allGather: (from, into, count, type, comm, stream) =>
      check(allGather(from, into, count, type, comm, stream), "ncclAllGather", comm),
    broadcast: (from, into, count, type, root, comm, stream) =>
      check(broadcast(from, into, count, type, root, comm, stream), "ncclBroadcast", comm),
    allToAll: (from, into, count, type, comm, stream) =>
      check(
        (allToAll ?? get("alltoAll"))(from, into, count, type, comm, stream),
        "ncclAlltoAll",
        comm,
      ),
    send: (buffer, count, type, peer, comm, stream) =>
      check(send(buffer, count, type, peer, comm, stream), "ncclSend", comm),
    recv: (buffer, count, type, peer, comm, stream) =>
      check(recv(buffer, count, type, peer, comm, stream), "ncclRecv", comm),
    preMulSum(scalar, type, comm) {
      const op = new Int32Array(1);
      const create = get("redOpCreatePreMulSum");
      check(create(op, scalar, type, hostImmediate, comm), "ncclRedOpCreatePreMulSum", comm);
      return op[0] as number;
    },
    destroyOp: (op, comm) => check(get("redOpDestroy")(op, comm), "ncclRedOpDestroy", comm),
  };
}
