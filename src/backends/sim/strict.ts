/**
 * Strict lending: proves that nobody wrote a buffer between the call and the moment it was served.
 *
 * A checksum of every lent range is taken when the call is made and compared before the data moves.
 */
import {
  type CallSet,
  type DeviceBuffer,
  InvalidArgumentError,
  type RankCall,
} from "../../api/index.ts";
import type { HostMemory } from "./memory.ts";

/** Checksums of the ranges that calls were lent. */
export class StrictLending {
  readonly #sums = new WeakMap<RankCall, number>();

  lend(call: RankCall): void {
    this.#sums.set(call, checksum(call.send));
  }

  /** Throws when a rank's `send` changed since it made the call. */
  check({ calls, comm, number }: CallSet): void {
    for (const call of calls) {
      const before = this.#sums.get(call);
      if (before === undefined || before === checksum(call.send)) continue;
      throw new InvalidArgumentError(
        {
          headline: `${call.collective}: send: rank ${call.rank} wrote it while it was lent, needs it untouched until the call settles`,
          hint: "await the operation before writing its buffers",
        },
        {
          rank: call.rank,
          size: calls.length,
          comm: comm.name,
          collective: call.collective,
          call: number,
          ranks: [call.rank],
          field: "send",
        },
      );
    }
  }
}

/** FNV-1a over the bytes of a range. */
function checksum(buffer: DeviceBuffer | undefined): number {
  if (buffer === undefined || buffer.length === 0) return 0;
  const { allocation, byteOffset, byteLength } = buffer;
  const bytes = new Uint8Array((allocation.memory as HostMemory).buffer, byteOffset, byteLength);
  let hash = 0x811c9dc5;
  for (let i = 0; i < byteLength; i++) hash = Math.imul(hash ^ (bytes[i] as number), 0x01000193);
  return hash;
}
