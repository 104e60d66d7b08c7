/** NCCL's all-to-all: the sends and receives of each rank, in one group. */
import { bytesOf, type DType } from "twinccl";
import type { DataFunctions } from "./nccl.ts";

/** The calls that it consists of. */
export interface Parts extends Pick<DataFunctions, "send" | "recv"> {
  readonly dtypes: readonly DType[];
  /** The number of ranks of a communicator. */
  sizeOf(comm: bigint): number;
  group(calls: () => void): void;
}

/** The call. */
export function allToAllCall(parts: Parts): DataFunctions["alltoAll"] {
  const { dtypes, sizeOf, group, send, recv } = parts;
  return (from, into, count, type, comm, stream) => {
    if (count === 0) return;
    const bytes = count * bytesOf(dtypes[type] as DType);
    group(() => {
      for (let peer = 0; peer < sizeOf(comm); peer++) {
        const start = BigInt(peer * bytes);
        send(from + start, count, type, peer, comm, stream);
        recv(into + start, count, type, peer, comm, stream);
      }
    });
  };
}
