/** What NCCL makes of an exchange of blocks of one length: the sends and receives of each rank, in one group. */
import { bytesOf, type DType } from "twinccl";
import type { NcclCalls } from "../../../src/backends/nccl/result/nccl.ts";

type Exchange = Pick<NcclCalls, "allToAll" | "gather" | "scatter">;

/** What the exchange is made of. */
export interface Parts extends Pick<NcclCalls, "send" | "recv"> {
  readonly dtypes: readonly DType[];
  /** The rank of an end, and how many ranks there are. */
  place(comm: bigint): { readonly rank: number; readonly size: number };
  group(calls: () => void): void;
}

/** The three calls. */
export function blockCalls({ dtypes, place, group, send, recv }: Parts): Exchange {
  const exchange = (
    comm: bigint,
    stream: bigint,
    type: number,
    count: number,
    blocks: (rank: number, peer: number) => { readonly to?: bigint; readonly from?: bigint },
  ): void => {
    if (count === 0) return;
    const { rank, size } = place(comm);
    group(() => {
      for (let peer = 0; peer < size; peer++) {
        const { to, from } = blocks(rank, peer);
        if (to !== undefined) send(to, count, type, peer, comm, stream);
        if (from !== undefined) recv(from, count, type, peer, comm, stream);
      }
    });
  };
  const block = (ptr: bigint, at: number, count: number, type: number): bigint =>
    ptr + BigInt(at * count * bytesOf(dtypes[type] as DType));
  return {
    allToAll: (into, out, count, type, comm, stream) =>
      exchange(comm, stream, type, count, (_, peer) => ({
        to: block(into, peer, count, type),
        from: block(out, peer, count, type),
      })),
    gather: (into, out, count, type, root, comm, stream) =>
      exchange(comm, stream, type, count, (rank, peer) => ({
        ...(peer === root && { to: into }),
        ...(rank === root && { from: block(out, peer, count, type) }),
      })),
    scatter: (into, out, count, type, root, comm, stream) =>
      exchange(comm, stream, type, count, (rank, peer) => ({
        ...(rank === root && { to: block(into, peer, count, type) }),
        ...(peer === root && { from: out }),
      })),
  };
}
