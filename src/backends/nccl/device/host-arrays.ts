/**
 * TypedArrays in calls. A submitted call copies each array to device memory in stream order. Its results are back in the array
 * before the call settles.
 *
 * Overlapping ranges of the same memory, such as those of an in-place call, share one area. Calls of a recording therefore read
 * the results of earlier calls.
 */
import { bufferOver, type Memory, memoryOf, type RankCall } from "../../../api/backend-entry.ts";
import {
  bytesOf,
  type CommErrorFacts,
  type DeviceBuffer,
  type DType,
  InvalidArgumentError,
} from "../../../api/index.ts";
import { runAll } from "../../../api/run-all.ts";
import type { LocalMember } from "./local-rank.ts";
import type { LocalStream } from "./local-stream.ts";
import { scalarBytes } from "./nccl-types.ts";

/** A member in this process by its rank in the communicator of the calls. */
type MemberOf = (rank: number) => LocalMember;

/** Completes a `copyBack` after the work is done or has failed. */
export type FinishCopyBack = (failed: boolean) => void;

/** Calls with areas for their arrays. */
export class StagedCalls {
  #areas: readonly StagedRange[];
  readonly #session: object;

  constructor(areas: readonly StagedRange[], session: object) {
    this.#areas = areas;
    this.#session = session;
  }

  /** A call with areas in place of its arrays. */
  withDeviceMemory(call: RankCall, member: LocalMember): RankCall {
    const { send, recv } = call;
    return {
      ...call,
      send: this.#deviceBuffer(send, member),
      recv: this.#deviceBuffer(recv, member),
    };
  }

  /** Copies the inputs of the calls to the device. */
  copyIn(): void {
    for (const area of this.#areas) area.copyIn();
  }

  /** Starts to copy the results of the calls back. */
  copyBack(): FinishCopyBack {
    const finishes: FinishCopyBack[] = [];
    const finish: FinishCopyBack = (failed) => runAll(finishes.map((each) => () => each(failed)));
    try {
      for (const area of this.#areas) finishes.push(area.copyBack());
    } catch (error) {
      // Later calls would read these results from areas that are reused by then.
      finish(true);
      throw error;
    }
    return finish;
  }

  /** Returns the areas of one rank, or of all; queued work may still use them. */
  release(of?: LocalMember): void {
    const isGone = ({ member }: StagedRange): boolean => of === undefined || member === of;
    for (const area of this.#areas.filter(isGone)) area.release();
    this.#areas = this.#areas.filter((area) => !isGone(area));
  }

  #deviceBuffer(buffer: DeviceBuffer | undefined, member: LocalMember): DeviceBuffer | undefined {
    const memory = hostMemory(buffer);
    if (buffer === undefined || memory === undefined) return buffer;
    const { dtype, length, byteLength } = buffer;
    const range = rangeOf(buffer);
    const area = this.#areas.find((each) => each.member === member && each.contains(memory, range));
    const { local } = member;
    // An empty array has no area, because no call accesses it.
    const ptr = area?.addressOf(range.begin) ?? local.scratch;
    const copy = local.deviceMemory(ptr, byteLength);
    return bufferOver(dtype, length, copy, { rank: local.worldRank, session: this.#session });
  }
}

/** The arrays of one session. */
export class HostArrays {
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

  /** Areas for the arrays of calls; `undefined` if the calls have no arrays. */
  stage(calls: readonly RankCall[], memberOf: MemberOf): StagedCalls | undefined {
    const areas: StagedRange[] = [];
    try {
      for (const { member, memory, read, written } of usesOf(calls, memberOf)) {
        for (const range of union([...read, ...written])) {
          areas.push(new StagedRange(member, memory, range, read, written));
        }
      }
    } catch (error) {
      for (const area of areas) area.release();
      throw error;
    }
    return areas.length === 0 ? undefined : new StagedCalls(areas, this.#session);
  }
}

/** The parts of one ArrayBuffer that one rank's calls use. */
interface ArrayUse {
  readonly member: LocalMember;
  readonly memory: HostArrayMemory;
  readonly read: Range[];
  readonly written: Range[];
}

function usesOf(calls: readonly RankCall[], memberOf: MemberOf): readonly ArrayUse[] {
  const uses: ArrayUse[] = [];
  const useOf = (member: LocalMember, memory: HostArrayMemory): ArrayUse => {
    const found = uses.find((use) => use.member === member && use.memory === memory);
    const use = found ?? { member, memory, read: [], written: [] };
    if (found === undefined) uses.push(use);
    return use;
  };
  for (const call of calls) {
    const member = memberOf(call.rank);
    const { send, recv } = call;
    const [source, target] = [hostMemory(send), hostMemory(recv)];
    if (send !== undefined && source !== undefined && send.length > 0) {
      useOf(member, source).read.push(rangeOf(send));
    }
    if (recv !== undefined && target !== undefined && recv.length > 0) {
      const use = useOf(member, target);
      use.written.push(rangeOf(recv));
      if (!writesWholeRecv(call)) use.read.push(rangeOf(recv));
    }
  }
  return uses;
}

/** True if a call writes every byte of its receive buffer; unwritten bytes must be copied in both directions. */
function writesWholeRecv({ recv, recvCounts }: RankCall): boolean {
  if (recv === undefined || recvCounts === undefined) return true;
  return recvCounts.reduce((sum, count) => sum + count, 0) === recv.length;
}

function rangeOf({ byteOffset, byteLength }: DeviceBuffer): Range {
  return { begin: byteOffset, end: byteOffset + byteLength };
}

function hostMemory(buffer: DeviceBuffer | undefined): HostArrayMemory | undefined {
  const memory = buffer && memoryOf(buffer);
  return memory instanceof HostArrayMemory ? memory : undefined;
}

/** Results in transit to the array. */
interface PendingCopyBack {
  readonly area: StagedRange;
  readonly range: Range;
}

/** Results in transit to the arrays of calls on each stream, oldest first. */
const pendingCopyBacks = new WeakMap<LocalStream, PendingCopyBack[]>();

/** An area: a range of an ArrayBuffer on the device of one rank. */
class StagedRange implements Range {
  readonly member: LocalMember;
  readonly memory: HostArrayMemory;
  readonly begin: number;
  readonly end: number;
  readonly #ptr: bigint;
  readonly #read: readonly Range[];
  readonly #written: readonly Range[];

  /** `read` and `written` are the parts of `range` that calls read and write. */
  constructor(
    member: LocalMember,
    memory: HostArrayMemory,
    range: Range,
    read: readonly Range[],
    written: readonly Range[],
  ) {
    this.member = member;
    this.memory = memory;
    this.begin = range.begin;
    this.end = range.end;
    this.#read = union(intersection(read, range));
    this.#written = union(intersection(written, range));
    this.#ptr = member.stream.pool.take(range.end - range.begin);
  }

  /** Device address of a byte of the array's memory. */
  addressOf(byteOffset: number): bigint {
    return this.#ptr + BigInt(byteOffset - this.begin);
  }

  contains(memory: object, range: Range): boolean {
    return this.memory === memory && this.begin <= range.begin && range.end <= this.end;
  }

  /** Copies the inputs to the device in stream order, including results still in transit. */
  copyIn(): void {
    const { stream } = this.member;
    const { device, staging, progress } = stream;
    let left: readonly Range[] = this.#read;
    for (const { area, range } of (pendingCopyBacks.get(stream) ?? []).toReversed()) {
      if (area.memory !== this.memory) continue;
      for (const { begin, end } of area === this ? [] : intersection(left, range)) {
        device.use().copy(this.addressOf(begin), area.addressOf(begin), end - begin, device.stream);
        progress.launches++;
      }
      left = difference(left, range);
    }
    for (const { begin, end } of left) {
      staging.upload(this.addressOf(begin), this.#bytes({ begin, end }));
      progress.launches++;
    }
  }

  /** Starts to copy the results back; the caller calls the returned function once the work is done or has failed. */
  copyBack(): FinishCopyBack {
    const { stream } = this.member;
    const others = pendingCopyBacks.get(stream) ?? [];
    const own = this.#written.map((range) => {
      stream.progress.launches++;
      const bytes = stream.staging.startDownload(
        this.addressOf(range.begin),
        range.end - range.begin,
      );
      return { area: this, range, bytes };
    });
    pendingCopyBacks.set(stream, [...others, ...own]);
    return (failed) => {
      const all = pendingCopyBacks.get(stream) ?? [];
      const rest = all.filter((each) => !own.some((one) => one === each));
      pendingCopyBacks.set(stream, rest);
      if (failed) return;
      for (const { range, bytes } of own) this.#bytes(range).set(bytes);
    };
  }

  #bytes({ begin, end }: Range): Uint8Array {
    const { worldRank: rank, device } = this.member.local;
    const ownerFacts = { rank, ranks: [rank], device: device.name };
    return this.memory.bytes(begin, end - begin, ownerFacts);
  }

  /** Returns the area to the pool; queued work may still use it. */
  release(): void {
    this.member.stream.pool.putBack(this.#ptr, this.end - this.begin);
  }
}

/** The memory of an ArrayBuffer used by calls. */
class HostArrayMemory implements Memory {
  readonly device = "host";
  /** Host memory has no device address. */
  readonly ptr = 0n;
  readonly byteLength: number;
  readonly borrowed = true;
  readonly #buffer: ArrayBufferLike;

  constructor(buffer: ArrayBufferLike) {
    this.#buffer = buffer;
    this.byteLength = buffer.byteLength;
  }

  get detached(): boolean {
    return this.#buffer.byteLength !== this.byteLength;
  }

  /**
   * The bytes of a range, without a copy; `facts` describe the call in errors.
   *
   * @throws InvalidArgumentError if the ArrayBuffer has been transferred.
   */
  bytes(byteOffset: number, length: number, facts?: CommErrorFacts): Uint8Array {
    try {
      return new Uint8Array(this.#buffer, byteOffset, length);
    } catch (cause) {
      throw new InvalidArgumentError(
        {
          headline: "a TypedArray's ArrayBuffer was transferred away while a call had it",
          hint: "an array is lent from the call until it settles",
        },
        { ...facts, cause },
      );
    }
  }

  write(byteOffset: number, bytes: Uint8Array): void {
    this.bytes(byteOffset, bytes.length).set(bytes);
  }

  read(byteOffset: number, into: Uint8Array): void {
    into.set(this.bytes(byteOffset, into.length));
  }

  fill(byteOffset: number, count: number, dtype: DType, value: number | bigint): void {
    const element = scalarBytes(dtype, value);
    const target = this.bytes(byteOffset, count * bytesOf(dtype));
    for (let at = 0; at < target.length; at += element.length) target.set(element, at);
  }

  /** The caller owns the memory. */
  free(): void {}
}

/** Bytes from `begin` to `end` (exclusive). */
interface Range {
  readonly begin: number;
  readonly end: number;
}

/** Merges overlapping ranges; the result is ascending. */
function union(ranges: readonly Range[]): Range[] {
  const all: Range[] = [];
  for (const { begin, end } of [...ranges].sort((a, b) => a.begin - b.begin)) {
    const last = all.at(-1);
    if (last === undefined || begin >= last.end) all.push({ begin, end });
    else all[all.length - 1] = { begin: last.begin, end: Math.max(last.end, end) };
  }
  return all;
}

/** The intersection of `ranges` with another range. */
function intersection(ranges: readonly Range[], other: Range): Range[] {
  return ranges.flatMap(({ begin, end }) => {
    const range = { begin: Math.max(begin, other.begin), end: Math.min(end, other.end) };
    return range.begin < range.end ? [range] : [];
  });
}

/** The difference of `ranges` and another range. */
function difference(ranges: readonly Range[], other: Range): Range[] {
  return ranges.flatMap((range) => {
    const before = { begin: range.begin, end: Math.min(range.end, other.begin) };
    const after = { begin: Math.max(range.begin, other.end), end: range.end };
    return [before, after].filter(({ begin, end }) => begin < end);
  });
}
