/**
 * Strict lending: proves that no buffer was written between its call and the move of its data.
 *
 * A checksum of every lent range is taken when the call is made and compared before the data moves. The calls of one stream run
 * in call order, so a rank may lend memory that its earlier calls have yet to write. Before such a write the checksum is compared
 * once more, and afterwards it is renewed.
 */
import {
  type CommInfo,
  memoryOf,
  overlapBytes,
  type RankCall,
  type WriteFault,
} from "../../api/backend-entry.ts";
import { getOrCreate } from "../../api/get-or-create.ts";
import type { DeviceBuffer } from "../../api/index.ts";
import type { SimMemory } from "./executor.ts";

/** A range that a call was lent. */
interface Lent {
  readonly comm: CommInfo;
  readonly call: RankCall;
  readonly field: "send" | "recv";
  readonly buffer: DeviceBuffer;
  sum: number;
  /** True once a write was detected. */
  spoiled: boolean;
}

/** Checksums of the ranges that calls were lent. */
export class StrictLending {
  readonly #byCall = new Map<RankCall, Lent[]>();
  readonly #byMemory = new Map<object, Set<Lent>>();

  /** A rank posted a call. */
  acquire(comm: CommInfo, call: RankCall): void {
    const ranges: Lent[] = [];
    for (const [buffer, field] of buffersOf(call)) {
      const lent = { comm, call, field, buffer, sum: checksum(buffer), spoiled: false };
      ranges.push(lent);
      getOrCreate(this.#byMemory, memoryOf(buffer), () => new Set()).add(lent);
    }
    if (ranges.length > 0) this.#byCall.set(call, ranges);
  }

  /** A write to a lent buffer of these calls. */
  findWrite(calls: readonly RankCall[]): WriteFault | undefined {
    for (const call of calls) {
      for (const lent of this.#byCall.get(call) ?? []) {
        if (wasWritten(lent)) return { rank: call.rank, field: lent.field };
      }
    }
    return undefined;
  }

  /** The call has settled. */
  release(call: RankCall): void {
    for (const lent of this.#byCall.get(call) ?? []) {
      const memory = memoryOf(lent.buffer);
      const beside = this.#byMemory.get(memory);
      beside?.delete(lent);
      if (beside?.size === 0) this.#byMemory.delete(memory);
    }
    this.#byCall.delete(call);
  }

  /** Runs `write`, which writes the `recv` of these calls; later calls of the same ranks may have lent it already. */
  written(
    comm: CommInfo,
    calls: readonly RankCall[],
    write: () => void | Promise<void>,
  ): void | Promise<void> {
    const later = calls.flatMap((call) => this.#lentOutputs(comm, call));
    for (const lent of later) lent.spoiled = wasWritten(lent);
    const refreshChecksums = (): void => {
      for (const lent of later) lent.sum = checksum(lent.buffer);
    };
    const done = write();
    if (done instanceof Promise) return done.then(refreshChecksums);
    refreshChecksums();
  }

  /** The part of this call's output that the rank also lent to other calls of the same stream. */
  #lentOutputs(comm: CommInfo, call: RankCall): Lent[] {
    const { recv, rank } = call;
    const beside = recv && this.#byMemory.get(memoryOf(recv));
    if (recv === undefined || beside === undefined) return [];
    return [...beside].filter(
      (lent) =>
        lent.call !== call &&
        isSameStream(lent.comm, comm) &&
        lent.comm.ranks[lent.call.rank] === comm.ranks[rank] &&
        overlapBytes(lent.buffer, recv) > 0,
    );
  }
}

/** True where a rank's calls on both communicators run in the order made. */
function isSameStream(a: CommInfo, b: CommInfo): boolean {
  return a === b || (a.ownStream !== true && b.ownStream !== true);
}

/** The lent memory of a call, and its use; for a replay that of its calls, each buffer once. */
function buffersOf(call: RankCall): Map<DeviceBuffer, "send" | "recv"> {
  const { collective, recorded } = call;
  const calls = collective === "replay" && recorded !== undefined ? recorded.calls : [call];
  const buffers = new Map<DeviceBuffer, "send" | "recv">();
  for (const each of calls) {
    for (const field of ["send", "recv"] as const) {
      const buffer = each[field];
      if (buffer === undefined || buffer.length === 0 || buffers.has(buffer)) continue;
      buffers.set(buffer, field);
    }
  }
  return buffers;
}

/** A disposed buffer has no bytes to compare, and its disposal is an error of its own. */
function wasWritten({ buffer, sum, spoiled }: Lent): boolean {
  return spoiled || (!buffer.disposed && checksum(buffer) !== sum);
}

/** The fingerprint of a range's contents. */
function checksum(buffer: DeviceBuffer): number {
  if (buffer.disposed) return 0;
  return (memoryOf(buffer) as SimMemory).fingerprint(buffer.byteOffset, buffer.byteLength);
}
