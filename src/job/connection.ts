/**
 * Connections between ranks and the store. Frames have four bytes of length, then that many bytes. A handshake proves both
 * ends, and a second connection carries no messages.
 *
 * Both ends prove that they know the secret of the job, without sending it:
 *
 *     rank  -> store   hello: version, job id, rank, nonce
 *     store -> rank    challenge: nonce
 *     rank  -> store   proof: HMAC-SHA256(secret, label, "rank",  job id, rank, both nonces)
 *     store -> rank    proof: HMAC-SHA256(secret, label, "store", job id, rank, both nonces)
 *
 * Both nonces are fresh, so a recorded proof is worth nothing; the role is in it, so it cannot be sent back to its maker. A
 * store says nothing about the job before it has the rank's proof. From then on every frame carries a MAC over the frame's
 * number and its bytes. Each direction has a key, derived from secret and nonces. An injected, repeated, missing or moved frame
 * does not fit, and ends the connection.
 *
 * The second connection of a rank reports the end of a machine. TCP's keepalive probes the other machine, not its process. The
 * kernel answers for a process that is stopped, or computes without returning to its event loop, for any time. But it probes
 * only an idle connection. Data written to a lost machine stays in transit, and is retransmitted for a quarter of an hour
 * before the system reports an error.
 */

import { createHmac, randomBytes, timingSafeEqual } from "node:crypto";
import type { Socket } from "node:net";
import { limits } from "./limits.ts";
import { nonceBytes, Reader, WireError, Writer } from "./protocol.ts";

/** The listener of a framed socket. */
interface FrameListener {
  /** A whole frame; the bytes are only valid during the call. A throw ends the connection with its message. */
  frame(frame: Buffer): void;
  /** The connection is over; called once, and never by `destroy` itself. */
  ended(reason: string): void;
}

/** Frames over a socket. */
export class FramedSocket {
  listener: FrameListener;
  /** Longest frame that is accepted. */
  maxBytes: number;
  readonly socket: Socket;
  /** Received bytes of an incomplete frame; joined only once enough is there. */
  #chunks: Buffer[] = [];
  #heldBytes = 0;
  #neededBytes = 4;
  #over = false;

  constructor(socket: Socket, maxBytes: number, listener: FrameListener) {
    this.socket = socket;
    this.maxBytes = maxBytes;
    this.listener = listener;
    socket.setNoDelay(true);
    // A host that vanished without a word is noticed after about fifteen seconds, where nothing was written to it since.
    socket.setKeepAlive(true, 5_000);
    socket.on("data", (chunk) => this.#data(chunk));
    socket.on("error", (error: NodeJS.ErrnoException) => this.end(faultOf(error)));
    socket.on("end", () => this.end("the connection ended"));
    socket.on("close", () => this.end("the connection ended"));
  }

  /** Sends one frame; after the end of the connection nothing happens. */
  write(payload: Uint8Array): void {
    if (this.#over) return;
    const frame = Buffer.allocUnsafe(4 + payload.byteLength);
    frame.writeUInt32BE(payload.byteLength);
    frame.set(payload, 4);
    this.socket.write(frame);
    if (this.socket.writableLength > limits.unsentBytes)
      this.end("takes nothing from its connection");
  }

  /** Sends the written data, then ends the connection without a call of the listener. */
  finish(): void {
    this.#over = true;
    this.socket.end();
    // A peer that does not end its half, or goes on sending, must not keep ours.
    const timer = setTimeout(() => this.socket.destroy(), 1_000).unref();
    this.socket.once("close", () => clearTimeout(timer));
  }

  /** Ends the connection at once without telling the listener. */
  destroy(): void {
    this.#over = true;
    this.socket.destroy();
  }

  #data(chunk: Buffer): void {
    if (this.#over) return;
    this.#chunks.push(chunk);
    this.#heldBytes += chunk.length;
    if (this.#heldBytes < this.#neededBytes) return;
    let rest = this.#chunks.length === 1 ? chunk : Buffer.concat(this.#chunks);
    let needed = 4;
    while (!this.#over && rest.length >= 4) {
      const length = rest.readUInt32BE();
      if (length > this.maxBytes) {
        this.end(`sent a frame of ${length} bytes, at most ${this.maxBytes} allowed`);
        return;
      }
      needed = 4 + length;
      if (rest.length < needed) break;
      try {
        this.listener.frame(rest.subarray(4, needed));
      } catch (error) {
        this.end(`sent what is no message: ${error instanceof Error ? error.message : error}`);
        return;
      }
      rest = rest.subarray(needed);
      needed = 4;
    }
    this.#chunks = rest.length === 0 ? [] : [rest];
    this.#heldBytes = rest.length;
    this.#neededBytes = needed;
  }

  /** Ends the connection as a fault of it would, with a call of the listener. */
  end(reason: string): void {
    if (this.#over) return;
    this.destroy();
    this.listener.ended(reason);
  }
}

/** The fault of a connection in words; the code of the system where there are none. */
export function faultOf({ code, message }: NodeJS.ErrnoException): string {
  if (code === "ECONNRESET" || code === "EPIPE") return "the connection was reset";
  if (code === "ETIMEDOUT") return "the machine at its other end does not answer (ETIMEDOUT)";
  return code ?? message;
}

const label = "twinccl rendezvous 1";
const magic = 0x54574e44;
const macBytes = 16;

/** Kinds of plain frames, by number. */
const plain = { hello: 1, challenge: 2, rankProof: 3, storeProof: 4, refusal: 5 } as const;

/** The first message of a rank. */
interface Hello {
  readonly jobId: string;
  readonly rank: number;
  readonly nonce: Uint8Array;
}

/** The common knowledge of both ends after hello and challenge. */
export interface HandshakeData {
  readonly hello: Hello;
  /** The store's nonce. */
  readonly nonce: Uint8Array;
}

/** The end that speaks. */
type Role = "rank" | "store";

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

/** The frame with which one end proves that it has the secret. */
export function encodeProof(role: Role, secret: string, exchanged: HandshakeData): Buffer {
  const proof = mac(secret, [role, "proof"], exchanged);
  return new Writer().byte(proofKind(role)).bytes(proof).end();
}

/** True when the frame is the proof that this end would have made. */
export function isProof(
  frame: Uint8Array,
  role: Role,
  secret: string,
  exchanged: HandshakeData,
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
export class FrameSeal {
  readonly #key: Buffer;
  #number = 0n;

  /** For frames that `role` sends. */
  constructor(role: Role, secret: string, exchanged: HandshakeData) {
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

function mac(secret: string, purpose: readonly string[], { hello, nonce }: HandshakeData): Buffer {
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

/** Longest time for the speaking connection to report its own end, which has more details. */
const ownEndMs = 1_000;

/** From now on the end of either connection ends the other one too. */
export function linkLiveness(silent: FramedSocket, spoken: FramedSocket): void {
  silent.socket.unref();
  silent.listener = {
    frame: () => {
      throw new WireError("a frame where nothing is to be said");
    },
    ended: (reason) => {
      // After a standstill of this process, arrived data is read first.
      setTimeout(() => setImmediate(() => spoken.end(reason)), ownEndMs).unref();
    },
  };
  if (spoken.socket.destroyed) silent.destroy();
  else spoken.socket.once("close", () => silent.destroy());
}
