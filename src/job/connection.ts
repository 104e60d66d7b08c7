/**
 * Connections between ranks and the store: frames over TLS 1.3 with a pre-shared key, and a second connection without messages.
 *
 * Both ends have a key that is derived from the secret of the job, and no certificate. TLS proves that each has it before
 * either sends a frame, encrypts, and refuses changed, repeated and missing data. The identity of the key is the same for all
 * jobs. The first frame of each end has the version of the protocol.
 *
 * The second connection of a rank reports the end of a machine. TCP's keepalive probes the other machine, not its process. The
 * kernel answers for a process that is stopped, or computes without returning to its event loop, for any time. But it probes
 * only an idle connection. Data written to a lost machine stays in transit, and is retransmitted for a quarter of an hour
 * before the system reports an error.
 */

import { hkdfSync } from "node:crypto";
import type { Socket } from "node:net";
import type { ConnectionOptions, TLSSocket } from "node:tls";
import { FrameError } from "./frames.ts";
import { limits } from "./protocol.ts";

/** The identity of the key in the handshake. It names no job. */
export const keyIdentity = "twinccl";

/** Settings of TLS at both ends. The cipher suite fits to keys of SHA-256. */
export const tlsSettings = {
  minVersion: "TLSv1.3",
  maxVersion: "TLSv1.3",
  ciphers: "TLS_AES_128_GCM_SHA256",
} as const;

/** The reason where the other end has a certificate in place of the key. */
export const unknownKey = "what answers does not know the secret";

/** Settings of the end that connects: a certificate, also one that this machine trusts, is no proof. */
export const clientSettings: ConnectionOptions = {
  ...tlsSettings,
  rejectUnauthorized: true,
  ca: [],
  // Examined only where the other end has a certificate, and so not the key.
  checkServerIdentity: () => new Error(unknownKey),
};

/** The pre-shared key of a secret. */
export function keyOf(secret: string): Buffer {
  return Buffer.from(hkdfSync("sha256", secret, "", "twinccl store: pre-shared key", 32));
}

/** Settings of a new connection, before TLS. */
export function tune(socket: Socket): void {
  socket.setNoDelay(true);
  // A host that vanished without a word is noticed after about fifteen seconds, where nothing was written to it since.
  socket.setKeepAlive(true, 5_000);
}

/** The listener of a framed socket. */
interface FrameListener {
  /** A whole frame; the bytes are only valid during the call. A throw ends the connection; a `FrameError` is the fault of its other end. */
  frame(frame: Buffer): void;
  /** The connection is over; called once, and never by `destroy` itself. */
  ended(reason: string): void;
}

/** Frames over a socket. */
export class FramedSocket {
  listener: FrameListener;
  /** Longest frame that is accepted. */
  maxBytes: number;
  readonly socket: TLSSocket;
  /** Received bytes of an incomplete frame; joined only once enough is there. */
  #chunks: Buffer[] = [];
  #heldBytes = 0;
  #neededBytes = 4;
  #over = false;

  constructor(socket: TLSSocket, maxBytes: number, listener: FrameListener) {
    this.socket = socket;
    this.maxBytes = maxBytes;
    this.listener = listener;
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
    // TLS takes a turn of the event loop for a write: frames of one step go together.
    if (this.socket.writableCorked === 0) {
      this.socket.cork();
      process.nextTick(() => this.socket.uncork());
    }
    this.socket.write(frame);
    if (this.socket.writableLength > limits.unsentBytes)
      this.end("takes nothing from its connection");
  }

  /** Sends the written data, then ends the connection without a call of the listener. */
  finish(): void {
    this.#over = true;
    this.socket.end();
    // A peer that does not end its half, or goes on sending, must not keep that of this process.
    const timer = setTimeout(() => this.socket.destroy(), 1_000).unref();
    this.socket.once("close", () => clearTimeout(timer));
  }

  /** Ends the connection at once, without a call of the listener. */
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
        const isTheirs = error instanceof FrameError;
        const text = isTheirs ? error.message : String(error);
        this.#fault(`${isTheirs ? "sent what is no message" : "its message failed here"}: ${text}`);
        return;
      }
      rest = rest.subarray(needed);
      needed = 4;
    }
    this.#chunks = rest.length === 0 ? [] : [rest];
    this.#heldBytes = rest.length;
    this.#neededBytes = needed;
  }

  /** Ends the connection after the written data, in which the other end gets its fault. */
  #fault(reason: string): void {
    if (this.#over) return;
    this.finish();
    this.listener.ended(reason);
  }

  /** Ends the connection as a fault of it would, with a call of the listener. */
  end(reason: string): void {
    if (this.#over) return;
    this.destroy();
    this.listener.ended(reason);
  }
}

/** The fault of a connection in words; the code of the system where there are none. */
export function faultOf({ code, syscall, message }: NodeJS.ErrnoException): string {
  if (code === "ECONNRESET" || code === "EPIPE") return "the connection was reset";
  if (code === "ETIMEDOUT" && syscall === "getaddrinfo")
    return "no name server knew that name in time";
  if (code === "ETIMEDOUT") return "the machine at its other end does not answer (ETIMEDOUT)";
  if (code === "ENOTFOUND") return "no machine has that name (ENOTFOUND)";
  if (code === "EAI_AGAIN") return "the name server does not answer (EAI_AGAIN)";
  if (code?.startsWith("ERR_SSL_")) return `sent what is not authentic (${code})`;
  if (isOutOfFiles(code)) return `this process can open no more files (${code})`;
  return code ?? message;
}

/** True for a fault of this process or its machine, not of the other end: a connection needs a file descriptor. */
export function isOutOfFiles(code: string | undefined): code is string {
  return code === "EMFILE" || code === "ENFILE";
}

export const outOfFilesHint =
  "raise the limit of open files of this process (ulimit -n), or close what it holds open";

/** Longest time for the speaking connection to report its own end, which has more details. */
const ownEndMs = 1_000;

/** From now on the end of either connection ends the other one too. */
export function linkLiveness(silent: FramedSocket, spoken: FramedSocket): void {
  silent.socket.unref();
  silent.listener = {
    frame: () => {
      throw new FrameError("a frame where nothing is to be said");
    },
    ended: (reason) => {
      // After a standstill of this process, arrived data is read first.
      setTimeout(() => setImmediate(() => spoken.end(reason)), ownEndMs).unref();
    },
  };
  if (spoken.socket.destroyed) silent.destroy();
  else spoken.socket.once("close", () => silent.destroy());
}
