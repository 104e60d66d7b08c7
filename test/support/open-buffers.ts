/** Counts what a rank holds, to see that something gives back what it took. */
import type { Communicator } from "twinccl";

/** Gives the number of buffers that were made by this communicator from now on and not given back. */
export function openBuffers(comm: Communicator): () => number {
  const buffers: { readonly disposed: boolean }[] = [];
  const alloc = comm.alloc.bind(comm);
  comm.alloc = (dtype, length) => {
    const buffer = alloc(dtype, length);
    buffers.push(buffer);
    return buffer;
  };
  return () => buffers.filter(({ disposed }) => !disposed).length;
}
