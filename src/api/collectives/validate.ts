/**
 * Checks of one rank's arguments, made completely before anything is posted, sent or written.
 *
 * Each check answers with an `InvalidArgumentError` that names the field, what was found and what is needed.
 */

import { argumentNames, inPlaceOf } from "../argument-names.ts";
import type { CommInfo, Session } from "../backend.ts";
import {
  type Allocation,
  allocationOf,
  createAllocation,
  createBuffer,
  DeviceBuffer,
  overlapBytes,
  symmetricPlace,
} from "../buffer.ts";
import type { CallOptions, Data } from "../calls.ts";
import { bytesOf, type DType } from "../dtype.ts";
import { type Caller, CommClosedError, InvalidArgumentError, UnsupportedError } from "../errors.ts";
import { getOrCreate } from "../get-or-create.ts";
import { hostBytes } from "../host-array.ts";
import type { CallFields } from "../ledger/posting.ts";
import { assertRule, integer, textOf } from "../option-kinds.ts";
import { type ReduceOp, reduceOpChoices, reduceOpFault } from "../reduce-op.ts";
import type { CollectiveName } from "../specification.ts";

/** Checks the arguments of one call of one rank. */
export class Validator {
  readonly #session: Session;
  readonly #worldRank: number;
  readonly #comm: CommInfo;
  readonly #facts: Caller;
  readonly #borrowed = new WeakMap<ArrayBufferLike, Allocation>();
  #collective: CollectiveName = "barrier";

  constructor(session: Session, comm: CommInfo, facts: Caller) {
    this.#session = session;
    this.#comm = comm;
    this.#worldRank = comm.ranks[facts.rank] as number;
    this.#facts = facts;
  }

  /** Sets the collective of the checks that follow; refuses arguments that are no object. */
  begin(collective: CollectiveName, args: unknown): void {
    this.#collective = collective;
    if (typeof args !== "object" || args === null) {
      throw this.fault("arguments", `found ${textOf(args)}`, "one object with named fields");
    }
  }

  /** An error about one argument. */
  fault(field: string, found: string, needed: string, hint?: string): InvalidArgumentError {
    return new InvalidArgumentError(
      { headline: `${this.#collective}: ${field}: ${found}, needs ${needed}`, hint },
      { ...this.#facts, collective: this.#collective, field },
    );
  }

  /** True for a split with streams of its own. */
  ownStream(stream: unknown): boolean {
    if (stream === undefined) return false;
    if (stream !== "own") {
      throw this.fault(
        "stream",
        `found ${textOf(stream)}`,
        '"own", or nothing for the stream of the rank',
      );
    }
    const { backend, capabilities } = this.#session.info;
    if (capabilities.ownStreams === true) return true;
    throw new UnsupportedError(
      {
        headline: `split: stream: "own": the backend ${backend} has one stream per rank`,
        hint: "ask comm.capabilities.ownStreams, and leave stream out",
      },
      { ...this.#facts, collective: "split", field: "stream" },
    );
  }

  /** The buffer behind an argument: live, of this rank, in this world. */
  buffer(field: "send" | "recv", data: Data | undefined): DeviceBuffer {
    if (data === undefined) throw this.fault(field, "it was left out", "a buffer");
    if (!(data instanceof DeviceBuffer)) return this.#host(field, data);
    const allocation = allocationOf(data);
    if (allocation.session !== this.#session) {
      throw this.fault(
        field,
        "the buffer belongs to another world or generation",
        "one from this communicator's alloc",
      );
    }
    if (allocation.rank !== this.#worldRank) {
      throw this.fault(
        field,
        `the buffer belongs to world rank ${allocation.rank}`,
        `one of world rank ${this.#worldRank}`,
        "each rank passes its own buffers; data moves only through the call",
      );
    }
    if (data.disposed) {
      throw new CommClosedError(
        { headline: `${this.#collective}: ${field}: the buffer was disposed, needs a live one` },
        { ...this.#facts, collective: this.#collective, field },
      );
    }
    return data;
  }

  #host(field: "send" | "recv", data: unknown): DeviceBuffer {
    const host = hostBytes(data);
    if ("fault" in host) {
      throw this.fault(
        field,
        host.fault,
        "a buffer from comm.alloc, or a TypedArray of a class that names its dtype",
        host.hint,
      );
    }
    if (!this.#session.info.capabilities.hostArrays) {
      throw this.fault(
        field,
        "found a TypedArray",
        `a buffer of ${this.#session.device(this.#worldRank).name}`,
        this.#session.info.capabilities.phantom === true
          ? `write: const ${field} = comm.alloc("${host.dtype}", ${host.length}); phantom data has a size and no contents, a world without phantom has: predict --job takes --contents`
          : `write: const ${field} = comm.alloc("${host.dtype}", ${host.length}).copyFrom(array); or have arrays copied in every call: staging: "copy" as an option of the backend`,
      );
    }
    const { dtype, buffer, byteOffset, length } = host;
    const allocation = getOrCreate(this.#borrowed, buffer, () => {
      const [rank, session] = [this.#worldRank, this.#session];
      return createAllocation(session.device(rank).borrow(buffer), { rank, session });
    });
    return createBuffer(dtype, length, allocation, byteOffset);
  }

  /** The dtype of the other buffer. */
  dtype(field: "send" | "recv", buffer: DeviceBuffer, dtype: DType): void {
    if (buffer.dtype === dtype) return;
    throw this.fault(field, `found ${buffer.dtype}`, `${dtype}, as the other buffer`);
  }

  /** The dtype of the other buffer, and exactly so many elements; `why` names the argument that determines their number. */
  shape(
    field: "send" | "recv",
    buffer: DeviceBuffer,
    dtype: DType,
    length: number,
    why?: string,
  ): void {
    this.dtype(field, buffer, dtype);
    if (buffer.length === length) return;
    throw this.fault(
      field,
      `found ${buffer.length} elements`,
      `exactly ${length}${why === undefined ? "" : `, ${why}`}`,
      "take a subarray of a longer buffer",
    );
  }

  /**
   * Two buffers of a call must lie apart, unless the call is in place: `send` starts exactly `inPlaceAt` elements
   * after `recv` starts.
   */
  apart(send: DeviceBuffer, recv: DeviceBuffer, inPlaceAt?: number): void {
    const common = overlapBytes(send, recv);
    if (common === 0) return;
    const shared = allocationOf(send) === allocationOf(recv);
    const distance = shared ? send.byteOffset - recv.byteOffset : Number(send.ptr - recv.ptr);
    if (inPlaceAt !== undefined && distance === inPlaceAt * bytesOf(send.dtype)) return;
    throw this.fault(
      "recv",
      `it overlaps send in ${common} bytes`,
      inPlaceAt === undefined
        ? "memory apart from send: there is no in-place form"
        : "memory apart from send, or the in-place position",
    );
  }

  /** Refuses an argument that belongs to the root alone. */
  rootOnly(field: string, value: unknown, root: number): void {
    if (value === undefined) return;
    throw this.fault(
      field,
      "it was given",
      "nothing: it is the root's",
      `the root is rank ${root}`,
    );
  }

  /** Refuses names of arguments that the call does not take: they would be ignored in silence. */
  names(collective: CollectiveName, args: object | undefined): void {
    if (args === undefined) return;
    this.begin(collective, args);
    const names = argumentNames[collective];
    for (const name in args) {
      if (Object.hasOwn(names, name)) continue;
      const { needed, hint } = inPlaceOf(name, this.#collective);
      throw this.fault(name, "it is not known here", needed, hint);
    }
  }

  /** The operator, legal for the dtype. */
  op(given: ReduceOp, dtype: DType): ReduceOp {
    // A scalar that the caller writes, or gives by a getter, stays the one that was checked.
    const isScaled = typeof given === "object" && given !== null && "preMul" in given;
    const op = isScaled ? { preMul: given.preMul } : given;
    const fault = reduceOpFault(op, dtype);
    if (fault !== undefined) {
      throw this.fault("op", fault, reduceOpChoices);
    }
    return op;
  }

  /** A rank of this communicator. */
  rank(field: "root" | "peer" | "to" | "from", rank: unknown): number {
    const { size } = this.#facts;
    if (typeof rank !== "number" || !Number.isInteger(rank) || rank < 0 || rank >= size) {
      throw this.fault(
        field,
        `found ${textOf(rank)}`,
        `a rank in 0..${size - 1} of "${this.#facts.comm}"`,
      );
    }
    return rank;
  }

  /** An integer from `least` on. */
  integer(field: string, value: unknown, least: number): void {
    const facts = { ...this.#facts, collective: this.#collective };
    assertRule(this.#collective, field, value, integer(least), facts);
  }

  /** An array of `size` counts of elements. */
  counts(field: string, counts: unknown): readonly number[] {
    const { size } = this.#facts;
    if (!Array.isArray(counts) || counts.length !== size) {
      const found = Array.isArray(counts)
        ? `found ${counts.length} counts`
        : `found ${textOf(counts)}`;
      const hint = ArrayBuffer.isView(counts) ? `write Array.from(${field})` : undefined;
      throw this.fault(field, found, `an array of ${size} counts, one a rank`, hint);
    }
    const copy = Array.from(counts as readonly unknown[]);
    for (const [rank, count] of copy.entries()) {
      if (typeof count !== "number" || !Number.isSafeInteger(count) || count < 0) {
        throw this.fault(`${field}[${rank}]`, `found ${textOf(count)}`, "an integer of at least 0");
      }
    }
    // Repeated calls share it with the results of earlier ones.
    return Object.freeze(copy as number[]);
  }

  /** Refuses what the session cannot do. */
  supported(collective: CollectiveName, call: CallFields): void {
    const { dtype, op, count, root, send, recv } = call;
    const place = symmetricPlace({ collective, send, recv });
    const bytes = dtype === undefined ? 1 : bytesOf(dtype);
    const symmetric = place && {
      sendOffset: place.send / bytes,
      recvOffset: place.recv / bytes,
    };
    const question = { collective, dtype, op, count, root, symmetric };
    const reason = this.#session.refusal(question, this.#comm);
    if (reason === undefined) return;
    throw new UnsupportedError(
      {
        headline: `${collective}: ${reason}`,
        hint: "comm.supports(...) answers before a failure does",
      },
      { ...this.#facts, collective },
    );
  }

  /** The arguments of a call by name, each read once: a getter may return a different value the next time, or make calls. */
  given<A extends CallOptions | undefined>(collective: CollectiveName, args: A): A {
    if (typeof args !== "object" || args === null) {
      if (args !== undefined) this.begin(collective, args);
      return args;
    }
    const given: A & object = { ...args };
    // An object of a class may have its fields, or getters, on its prototype.
    if (Object.getPrototypeOf(args) !== Object.prototype) {
      for (const name of Object.keys(argumentNames[collective])) {
        if (!(name in given) && name in args) Reflect.set(given, name, Reflect.get(args, name));
      }
    }
    // Comes behind the reads, which may make other calls.
    this.names(collective, args);
    return given;
  }

  /** The requirements of any call, checked; `undefined` where there are none. `args` were read before, by `given`. */
  options(args: CallOptions | undefined): CallOptions | undefined {
    const { signal, timeoutMs } = (args ?? {}) as Readonly<Record<keyof CallOptions, unknown>>;
    if (signal === undefined && timeoutMs === undefined) return undefined;
    if (signal !== undefined && !(signal instanceof AbortSignal)) {
      throw this.fault("signal", `found ${textOf(signal)}`, "an AbortSignal");
    }
    if (timeoutMs !== undefined && (typeof timeoutMs !== "number" || !(timeoutMs > 0))) {
      throw this.fault("timeoutMs", `found ${textOf(timeoutMs)}`, "a number above 0");
    }
    return { ...(signal && { signal }), ...(timeoutMs && { timeoutMs }) };
  }
}
