/**
 * The proof of both ends of a connection that they know the secret of the job, without sending it.
 *
 *     rank  -> store   hello: version, job id, rank, nonce
 *     store -> rank    challenge: nonce
 *     rank  -> store   proof: HMAC-SHA256(secret, label, "rank",  job id, rank, both nonces)
 *     store -> rank    proof: HMAC-SHA256(secret, label, "store", job id, rank, both nonces)
 *
 * Both nonces are fresh, so a recorded proof is worth nothing; the role is in it, so it cannot be sent back to its
 * maker. A store says nothing about the job before it has the rank's proof. From then on every frame carries a MAC of its
 * own: one key for each direction, derived from secret and nonces, over the frame's number and its bytes. What was
 * injected, repeated, left out or moved does not fit, and ends the connection.
 */
import { createHmac, randomBytes, timingSafeEqual } from "node:crypto";
import { limits } from "./limits.ts";
import { Reader, WireError, Writer } from "./wire.ts";

const label = "twinccl rendezvous 1";
const magic = 0x54574e44;
/** Length of a nonce. */
export const nonceBytes = 32;
const macBytes = 16;

/** Kinds of plain frames, by number. */
const plain = { hello: 1, challenge: 2, rankProof: 3, storeProof: 4, refusal: 5 } as const;

/** The first message of a rank. */
export interface Hello {
  readonly jobId: string;
  readonly rank: number;
  readonly nonce: Uint8Array;
}

/** The common knowledge of both ends after hello and challenge. */
export interface Exchanged {
  readonly hello: Hello;
  /** The store's nonce. */
  readonly nonce: Uint8Array;
}

/** The end that speaks. */
export type Role = "rank" | "store";

/** Bytes that cannot be guessed. */
export function freshNonce(): Uint8Array {
  return randomBytes(nonceBytes);
}

/** The first frame of a rank. */
export function encodeHello({ jobId, rank, nonce }: Hello): Buffer {
  return new Writer().byte(plain.hello).number(magic).text(jobId).number(rank).bytes(nonce).end();
}

/** Reads the first frame of a rank. */
export function decodeHello(frame: Uint8Array): Hello {
  const reader = readerOf(frame, plain.hello);
  if (reader.number() !== magic) throw new WireError("not a rank of twinccl, or another version");
  const jobId = reader.text(limits.jobIdBytes);
  const hello = { jobId, rank: reader.number(), nonce: nonceOf(reader) };
  reader.end();
  return hello;
}

/** The store's answer to a hello. */
export function encodeChallenge(nonce: Uint8Array): Buffer {
  return new Writer().byte(plain.challenge).number(magic).bytes(nonce).end();
}

/** The store's nonce. */
export function decodeChallenge(frame: Uint8Array): Uint8Array {
  const reader = readerOf(frame, plain.challenge);
  if (reader.number() !== magic) throw new WireError("not a store of twinccl, or another version");
  const nonce = nonceOf(reader);
  reader.end();
  return nonce;
}

/** The frame with which one end proves that it knows the secret. */
export function encodeProof(role: Role, secret: string, exchanged: Exchanged): Buffer {
  const proof = mac(secret, [role, "proof"], exchanged);
  return new Writer().byte(proofKind(role)).bytes(proof).end();
}

/** True when the frame is the proof that this end would have made. */
export function isProof(
  frame: Uint8Array,
  role: Role,
  secret: string,
  exchanged: Exchanged,
): boolean {
  const reader = readerOf(frame, proofKind(role));
  const found = reader.bytes(64);
  reader.end();
  const expected = mac(secret, [role, "proof"], exchanged);
  return found.byteLength === expected.byteLength && timingSafeEqual(found, expected);
}

/** The store's message in place of its proof when the rank's was wrong. */
export const refusal: Buffer = new Writer().byte(plain.refusal).number(magic).end();

/** True for the frame of a store that did not accept this rank's proof. */
export function isRefusal(frame: Uint8Array): boolean {
  return refusal.equals(frame);
}

/** Authenticates the frames of one direction of a connection, in order. */
export class Seal {
  readonly #key: Buffer;
  #number = 0n;

  /** For frames that `role` sends. */
  constructor(role: Role, secret: string, exchanged: Exchanged) {
    this.#key = mac(secret, [role, "frames"], exchanged);
  }

  /** The body with its MAC behind it. */
  seal(body: Uint8Array): Buffer {
    return Buffer.concat([body, this.#next(body)]);
  }

  /** The body of a sealed frame; `undefined` when it is not the next one of the other end. */
  open(frame: Buffer): Buffer | undefined {
    if (frame.length < macBytes) return undefined;
    const body = frame.subarray(0, frame.length - macBytes);
    const expected = this.#next(body);
    return timingSafeEqual(frame.subarray(body.length), expected) ? body : undefined;
  }

  #next(body: Uint8Array): Buffer {
    const head = Buffer.allocUnsafe(12);
    head.writeBigUInt64BE(this.#number);
    head.writeUInt32BE(body.byteLength, 8);
    this.#number += 1n;
    const whole = createHmac("sha256", this.#key).update(head).update(body).digest();
    return whole.subarray(0, macBytes);
  }
}

function proofKind(role: Role): number {
  return role === "rank" ? plain.rankProof : plain.storeProof;
}

function mac(secret: string, purpose: readonly string[], { hello, nonce }: Exchanged): Buffer {
  const writer = new Writer().text(label);
  for (const word of purpose) writer.text(word);
  writer.text(hello.jobId).number(hello.rank).bytes(hello.nonce).bytes(nonce);
  return createHmac("sha256", secret).update(writer.end()).digest();
}

function readerOf(frame: Uint8Array, kind: number): Reader {
  const reader = new Reader(frame);
  if (reader.byte() !== kind) throw new WireError("not the frame that is due");
  return reader;
}

function nonceOf(reader: Reader): Uint8Array {
  const nonce = reader.bytes(nonceBytes);
  if (nonce.byteLength !== nonceBytes) throw new WireError("a nonce that is too short");
  return nonce;
}
