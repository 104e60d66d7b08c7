/**
 * What a complete call writes, as a whole: no memory of two ranks.
 *
 * In one process a TypedArray made outside of the program is the same memory on every rank. Used as `recv` there, ranks
 * would overwrite each other's results in silence.
 */
import type { CallSet, RankCall } from "../backend.ts";
import { type DeviceBuffer, overlapBytes } from "../buffer.ts";
import { InvalidArgumentError } from "../errors.ts";
import { UnservedError } from "../ledger/unserved.ts";

/** Refuses a call in which a rank writes memory that another rank reads or writes. */
export function assertTargetsApart(set: CallSet): void {
  const { calls } = set;
  if (!calls.some(({ recv }) => recv?.allocation.memory.borrowed === true)) return;
  for (const writer of calls) {
    const { recv } = writer;
    if (recv?.allocation.memory.borrowed !== true) continue;
    const other = calls.find(
      ({ rank, send, recv: theirs }) =>
        rank !== writer.rank && (meets(recv, send) || meets(recv, theirs)),
    );
    if (other !== undefined) throw sharedTarget(set, writer, other);
  }
}

function meets(written: DeviceBuffer, other: DeviceBuffer | undefined): boolean {
  return other !== undefined && overlapBytes(written, other) > 0;
}

function sharedTarget({ comm, number }: CallSet, writer: RankCall, other: RankCall): UnservedError {
  const ranks = [writer.rank, other.rank].sort((a, b) => a - b);
  return new UnservedError(
    (rank) =>
      new InvalidArgumentError(
        {
          headline: `${writer.collective}: recv: ranks ${ranks.join(" and ")} were given the same memory, needs memory of their own`,
          hint: "make the array inside the program, once per rank",
        },
        {
          rank,
          size: comm.ranks.length,
          comm: comm.name,
          collective: writer.collective,
          call: number,
          ranks,
          field: "recv",
        },
      ),
  );
}
