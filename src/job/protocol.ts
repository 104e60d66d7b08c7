/** Messages between ranks and the store once both have proven that they know the secret. */
import { limits } from "./limits.ts";
import type { Barrier } from "./rendezvous.ts";

/** Length of a nonce. */
export const nonceBytes = 32;

/** From a rank to the store. `id` comes back with the answer; `generation` is the one of the sender. */
export type Request =
  | {
      readonly kind: "join";
      readonly id: number;
      readonly generation: number;
      readonly size: number;
      readonly timeoutMs: number;
      /** Host and process, for messages. */
      readonly label: string;
    }
  | {
      readonly kind: "set";
      readonly id: number;
      readonly generation: number;
      readonly key: string;
      readonly value: Uint8Array;
    }
  | {
      readonly kind: "get";
      readonly id: number;
      readonly generation: number;
      readonly key: string;
      readonly timeoutMs: number;
      readonly needs: readonly number[] | undefined;
    }
  | {
      readonly kind: "exchange";
      readonly id: number;
      readonly generation: number;
      readonly key: string;
      readonly value: Uint8Array;
      readonly timeoutMs: number;
    }
  | {
      readonly kind: "rejoin";
      readonly id: number;
      readonly generation: number;
      readonly without: readonly number[] | undefined;
      readonly settleMs: number;
      readonly timeoutMs: number;
    }
  | {
      readonly kind: "barrier";
      readonly id: number;
      readonly generation: number;
      readonly barriers: readonly Barrier[];
      readonly timeoutMs: number;
    }
  | { readonly kind: "cancel"; readonly id: number }
  | { readonly kind: "leave" }
  /** This connection serves liveness alone, for the connection on which the store gave this nonce. */
  | { readonly kind: "liveness"; readonly nonce: Uint8Array };

/** Why a request failed; each stands for a class of error. */
export const failureCodes = [
  "timeout",
  "gone",
  "over",
  "refused",
  "taken",
  "limit",
  "in use",
  "went on",
] as const;

/** The failure of a request. */
export interface Failure {
  readonly code: (typeof failureCodes)[number];
  readonly headline: string;
  readonly hint: string;
  /** The ranks to look at: missing, lost, in the way, or gone on to the next generation. */
  readonly ranks: readonly number[];
  /** For a join or rejoin that timed out: the present ranks. */
  readonly joined: readonly number[];
}

/** From the store to a rank. */
export type Reply =
  | {
      readonly kind: "joined";
      readonly id: number;
      readonly generation: number;
      readonly rank: number;
      readonly initialRanks: readonly number[];
      /** True when the process of initial rank 0 hosts the store. */
      readonly hosted: boolean;
    }
  | { readonly kind: "done"; readonly id: number }
  /** It released no rank. */
  | { readonly kind: "withdrawn"; readonly id: number }
  | { readonly kind: "value"; readonly id: number; readonly value: Uint8Array }
  | { readonly kind: "values"; readonly id: number; readonly values: readonly Uint8Array[] }
  | ({ readonly kind: "failed"; readonly id: number } & Failure)
  | {
      readonly kind: "lost";
      readonly generation: number;
      readonly rank: number;
      readonly atMs: number;
      readonly reason: string;
    }
  | { readonly kind: "closing"; readonly reason: string }
  | { readonly kind: "bye" };

const requestKinds = [
  "join",
  "set",
  "get",
  "exchange",
  "rejoin",
  "cancel",
  "leave",
  "barrier",
  "liveness",
] as const;
const replyKinds = [
  "joined",
  "done",
  "value",
  "values",
  "failed",
  "lost",
  "closing",
  "bye",
  "withdrawn",
] as const;

/** Longest text of an error. */
const textBytes = 2 ** 16;

/** A request as bytes. */
export function encodeRequest(request: Request): Buffer {
  const writer = new Writer().byte(requestKinds.indexOf(request.kind));
  if (request.kind === "leave") return writer.end();
  if (request.kind === "liveness") return writer.bytes(request.nonce).end();
  writer.number(request.id);
  if (request.kind === "cancel") return writer.end();
  writer.number(request.generation);
  switch (request.kind) {
    case "join":
      return writer.number(request.size).number(request.timeoutMs).text(request.label).end();
    case "set":
      return writer.text(request.key).bytes(request.value).end();
    case "get":
      writer.text(request.key).number(request.timeoutMs);
      return someRanks(writer, request.needs).end();
    case "exchange":
      return writer.text(request.key).bytes(request.value).number(request.timeoutMs).end();
    case "rejoin":
      return someRanks(writer, request.without)
        .number(request.settleMs)
        .number(request.timeoutMs)
        .end();
    case "barrier":
      writer.number(request.timeoutMs).number(request.barriers.length);
      for (const { key, ranks } of request.barriers) writer.text(key).numbers(ranks);
      return writer.end();
  }
}

/** The request that these bytes are. */
export function decodeRequest(bytes: Uint8Array): Request {
  const reader = new Reader(bytes);
  const request = readRequest(reader);
  reader.end();
  return request;
}

function readRequest(reader: Reader): Request {
  const kind = requestKinds[reader.byte()];
  if (kind === undefined) throw new WireError("no kind of request");
  if (kind === "leave") return { kind };
  if (kind === "liveness") return { kind, nonce: reader.bytes(nonceBytes) };
  const id = reader.number();
  if (kind === "cancel") return { kind, id };
  const generation = reader.number();
  const key = (): string => reader.text(limits.keyBytes);
  const value = (): Uint8Array => reader.bytes(limits.valueBytes);
  const timeoutMs = (): number => reader.number();
  switch (kind) {
    case "join":
      return {
        ...{ kind, id, generation, size: reader.number(), timeoutMs: timeoutMs() },
        label: reader.text(limits.keyBytes),
      };
    case "set":
      return { kind, id, generation, key: key(), value: value() };
    case "get":
      return { kind, id, generation, key: key(), timeoutMs: timeoutMs(), needs: readSome(reader) };
    case "exchange":
      return { kind, id, generation, key: key(), value: value(), timeoutMs: timeoutMs() };
    case "rejoin": {
      const without = readSome(reader);
      const settleMs = reader.number();
      return { kind, id, generation, without, settleMs, timeoutMs: timeoutMs() };
    }
    case "barrier": {
      const args = { kind, id, generation, timeoutMs: timeoutMs() };
      const count = reader.number();
      if (count > limits.barriers) throw new WireError("more barriers than a rank may wait for");
      const barrier = (): Barrier => ({ key: key(), ranks: reader.numbers(limits.ranks) });
      return { ...args, barriers: Array.from({ length: count }, barrier) };
    }
  }
}

/** Ranks, or that none were given. */
function someRanks(writer: Writer, ranks: readonly number[] | undefined): Writer {
  return writer.byte(ranks === undefined ? 0 : 1).numbers(ranks ?? []);
}

function readSome(reader: Reader): readonly number[] | undefined {
  const wereGiven = reader.byte() === 1;
  const ranks = reader.numbers(limits.ranks);
  return wereGiven ? ranks : undefined;
}

/** A reply as bytes. */
export function encodeReply(reply: Reply): Buffer {
  const writer = new Writer().byte(replyKinds.indexOf(reply.kind));
  switch (reply.kind) {
    case "joined":
      writer
        .number(reply.id)
        .number(reply.generation)
        .number(reply.rank)
        .numbers(reply.initialRanks);
      return writer.byte(reply.hosted ? 1 : 0).end();
    case "done":
    case "withdrawn":
      return writer.number(reply.id).end();
    case "value":
      return writer.number(reply.id).bytes(reply.value).end();
    case "values":
      writer.number(reply.id).number(reply.values.length);
      for (const value of reply.values) writer.bytes(value);
      return writer.end();
    case "failed":
      writer.number(reply.id).byte(failureCodes.indexOf(reply.code));
      writer.text(reply.headline).text(reply.hint);
      return writer.numbers(reply.ranks).numbers(reply.joined).end();
    case "lost":
      writer.number(reply.generation).number(reply.rank).float(reply.atMs);
      return writer.text(reply.reason).end();
    case "closing":
      return writer.text(reply.reason).end();
    case "bye":
      return writer.end();
  }
}

/** The reply that these bytes are. */
export function decodeReply(bytes: Uint8Array): Reply {
  const reader = new Reader(bytes);
  const reply = readReply(reader);
  reader.end();
  return reply;
}

function readReply(reader: Reader): Reply {
  const kind = replyKinds[reader.byte()];
  const ranks = (): number[] => reader.numbers(limits.ranks);
  switch (kind) {
    case "joined": {
      const at = { id: reader.number(), generation: reader.number(), rank: reader.number() };
      return { kind, ...at, initialRanks: ranks(), hosted: reader.byte() === 1 };
    }
    case "done":
    case "withdrawn":
      return { kind, id: reader.number() };
    case "value":
      return { kind, id: reader.number(), value: reader.bytes(limits.valueBytes) };
    case "values": {
      const id = reader.number();
      const count = reader.number();
      if (count > limits.ranks) throw new WireError("more values than ranks");
      const values = Array.from({ length: count }, () => reader.bytes(limits.valueBytes));
      return { kind, id, values };
    }
    case "failed": {
      const id = reader.number();
      const code = failureCodes[reader.byte()];
      if (code === undefined) throw new WireError("no kind of failure");
      const words = { headline: reader.text(textBytes), hint: reader.text(textBytes) };
      return { kind, id, code, ...words, ranks: ranks(), joined: ranks() };
    }
    case "lost": {
      const at = { generation: reader.number(), rank: reader.number(), atMs: reader.float() };
      return { kind, ...at, reason: reader.text(textBytes) };
    }
    case "closing":
      return { kind, reason: reader.text(textBytes) };
    case "bye":
      return { kind };
    default:
      throw new WireError("no kind of reply");
  }
}

/** Bytes of an invalid message: too short, too long, or with an invalid field. */
export class WireError extends Error {}

/** Puts fields together. */
export class Writer {
  readonly #parts: Uint8Array[] = [];

  byte(value: number): this {
    this.#parts.push(Uint8Array.of(value));
    return this;
  }

  /** A whole number from 0 to 2^32 - 1. */
  number(value: number): this {
    const part = Buffer.allocUnsafe(4);
    part.writeUInt32BE(value);
    this.#parts.push(part);
    return this;
  }

  float(value: number): this {
    const part = Buffer.allocUnsafe(8);
    part.writeDoubleBE(value);
    this.#parts.push(part);
    return this;
  }

  bytes(value: Uint8Array): this {
    this.number(value.byteLength);
    this.#parts.push(value);
    return this;
  }

  text(value: string): this {
    return this.bytes(Buffer.from(value, "utf8"));
  }

  numbers(values: readonly number[]): this {
    this.number(values.length);
    for (const value of values) this.number(value);
    return this;
  }

  end(): Buffer {
    return Buffer.concat(this.#parts);
  }
}

/** Takes fields apart again; every fault is a `WireError`. */
export class Reader {
  readonly #bytes: Buffer;
  #at = 0;

  constructor(bytes: Uint8Array) {
    this.#bytes = Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  }

  byte(): number {
    return this.#take(1).readUInt8();
  }

  number(): number {
    return this.#take(4).readUInt32BE();
  }

  float(): number {
    return this.#take(8).readDoubleBE();
  }

  /** A copy of at most `most` bytes. */
  bytes(most: number): Uint8Array {
    const length = this.number();
    if (length > most) throw new WireError(`a field of ${length} bytes, at most ${most} allowed`);
    return new Uint8Array(this.#take(length));
  }

  text(most: number): string {
    const bytes = this.bytes(most);
    try {
      return new TextDecoder("utf-8", { fatal: true }).decode(bytes);
    } catch {
      throw new WireError("a text that is no UTF-8");
    }
  }

  numbers(most: number): number[] {
    const count = this.number();
    if (count > most) throw new WireError(`a list of ${count}, at most ${most} allowed`);
    return Array.from({ length: count }, () => this.number());
  }

  /** Fails when bytes are left. */
  end(): void {
    const left = this.#bytes.length - this.#at;
    if (left > 0) throw new WireError(`${left} bytes too many`);
  }

  #take(length: number): Buffer {
    const end = this.#at + length;
    if (end > this.#bytes.length) throw new WireError("too few bytes");
    const part = this.#bytes.subarray(this.#at, end);
    this.#at = end;
    return part;
  }
}
