/**
 * TypedArrays in calls: each is copied to device memory in stream order when the call is submitted, and what the call wrote
 * is back in the array before the call settles.
 *
 * Ranges of the same memory that overlap, such as those of an in-place call, share an area, so that what one call of a
 * recording wrote another one reads.
 */
import {
  DeviceBuffer,
  InvalidArgumentError,
  type Memory,
  type RankCall,
} from "../../../api/index.ts";
import { inTurn } from "../device/give-back.ts";
import { HostArrayMemory } from "../memory/host-array-memory.ts";
import { type Range, united } from "../memory/ranges.ts";
import { ArrayArea } from "./array-area.ts";
import type { LocalRank } from "./local-rank.ts";

/** A rank of this process by its number in the communicator of the calls. */
export type LocalOf = (rank: number) => LocalRank;

/** Ends what `copyBack` began: the work is done, or has failed. */
export type Finish = (failed: boolean) => void;

/** Calls with areas for their arrays. */
export class CopiedCalls {
  #areas: readonly ArrayArea[];
  readonly #session: object;

  constructor(areas: readonly ArrayArea[], session: object) {
    this.#areas = areas;
    this.#session = session;
  }

  /** A call with areas in place of its arrays. */
  moved(call: RankCall, local: LocalRank): RankCall {
    const { send, recv } = call;
    return { ...call, send: this.#placed(send, local), recv: this.#placed(recv, local) };
  }

  /** Copies in what the calls read. */
  copyIn(): void {
    for (const area of this.#areas) area.copyIn();
  }

  /** Begins to copy back what the calls wrote. */
  copyBack(): Finish {
    const finishes: Finish[] = [];
    const finish: Finish = (failed) => inTurn(finishes.map((each) => () => each(failed)));
    try {
      for (const area of this.#areas) finishes.push(area.copyBack());
    } catch (error) {
      // Later calls would read what was to arrive from areas that others have by then.
      finish(true);
      throw error;
    }
    return finish;
  }

  /** Gives back the areas of one rank, or of all; work that uses them may still be queued. */
  release(of?: LocalRank): void {
    const isGone = ({ local }: ArrayArea): boolean => of === undefined || local === of;
    for (const area of this.#areas.filter(isGone)) area.release();
    this.#areas = this.#areas.filter((area) => !isGone(area));
  }

  #placed(buffer: DeviceBuffer | undefined, local: LocalRank): DeviceBuffer | undefined {
    const memory = hostMemory(buffer);
    if (buffer === undefined || memory === undefined) return buffer;
    const { dtype, length, byteLength } = buffer;
    const range = rangeOf(buffer);
    const area = this.#areas.find((each) => each.local === local && each.holds(memory, range));
    // An array without elements has no area: no byte of it is touched.
    const ptr = area?.at(range.begin) ?? local.scratch;
    const allocation = {
      memory: local.deviceMemory(ptr, byteLength),
      rank: local.worldRank,
      session: this.#session,
      disposed: false,
      lastUse: undefined,
    };
    return new DeviceBuffer(dtype, length, allocation);
  }
}

/** The arrays of one session. */
export class CopiedArrays {
  readonly #session: object;
  readonly #borrowed = new WeakMap<ArrayBufferLike, HostArrayMemory>();

  constructor(session: object) {
    this.#session = session;
  }

  /** The caller's memory, the same for all users of it. */
  borrow(buffer: ArrayBufferLike): Memory {
    let memory = this.#borrowed.get(buffer);
    if (memory === undefined) {
      memory = new HostArrayMemory(buffer);
      this.#borrowed.set(buffer, memory);
    }
    return memory;
  }

  /** Areas for the arrays of calls; `undefined` when they were given none. */
  place(calls: readonly RankCall[], localOf: LocalOf): CopiedCalls | undefined {
    const areas: ArrayArea[] = [];
    try {
      for (const { local, memory, read, written } of usesOf(calls, localOf)) {
        for (const range of united([...read, ...written])) {
          areas.push(new ArrayArea(local, memory, range, read, written));
        }
      }
    } catch (error) {
      for (const area of areas) area.release();
      throw error;
    }
    return areas.length === 0 ? undefined : new CopiedCalls(areas, this.#session);
  }
}

/** The parts of one ArrayBuffer that one rank's calls use. */
interface Use {
  readonly local: LocalRank;
  readonly memory: HostArrayMemory;
  readonly read: Range[];
  readonly written: Range[];
}

function usesOf(calls: readonly RankCall[], localOf: LocalOf): readonly Use[] {
  const uses: Use[] = [];
  const useOf = (local: LocalRank, memory: HostArrayMemory): Use => {
    const found = uses.find((use) => use.local === local && use.memory === memory);
    const use = found ?? { local, memory, read: [], written: [] };
    if (found === undefined) uses.push(use);
    return use;
  };
  for (const call of calls) {
    const local = localOf(call.rank);
    const { send, recv } = call;
    const [source, target] = [hostMemory(send), hostMemory(recv)];
    if (send !== undefined && source !== undefined && send.length > 0) {
      useOf(local, source).read.push(rangeOf(send));
    }
    if (recv !== undefined && target !== undefined && recv.length > 0) {
      const use = useOf(local, target);
      use.written.push(rangeOf(recv));
      if (!isFilled(call)) use.read.push(rangeOf(recv));
    }
  }
  return uses;
}

/** True when a call writes every byte of its receiving buffer: bytes that it leaves alone must be copied both ways. */
function isFilled({ recv, recvCounts }: RankCall): boolean {
  if (recv === undefined || recvCounts === undefined) return true;
  return recvCounts.reduce((sum, count) => sum + count, 0) === recv.length;
}

function rangeOf({ byteOffset, byteLength }: DeviceBuffer): Range {
  return { begin: byteOffset, end: byteOffset + byteLength };
}

function hostMemory(buffer: DeviceBuffer | undefined): HostArrayMemory | undefined {
  const memory = buffer?.allocation.memory;
  return memory instanceof HostArrayMemory ? memory : undefined;
}

/** The error of a rank that gives an array where arrays are not copied. */
export function notInPlace(rank: number): InvalidArgumentError {
  return new InvalidArgumentError(
    {
      headline: "host memory cannot be used in place on a GPU",
      hint: "const buffer = comm.alloc(dtype, length).copyFrom(array)",
    },
    { rank },
  );
}
