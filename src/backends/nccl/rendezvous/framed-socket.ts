/** A socket that speaks in frames: four bytes of length, then that many bytes. One write for each frame. */
import type { Socket } from "node:net";
import { limits } from "./limits.ts";

/** The listener of a framed socket. */
export interface FrameListener {
  /** A whole frame; the bytes are only valid during the call. A throw ends the connection with its message. */
  frame(frame: Buffer): void;
  /** The connection is over; called once, and never by `destroy` itself. */
  ended(reason: string): void;
}

/** Frames over a socket. */
export class FramedSocket {
  listener: FrameListener;
  /** Longest frame that is accepted. */
  mostBytes: number;
  readonly socket: Socket;
  /** Received bytes of an incomplete frame; joined only once enough is there. */
  #chunks: Buffer[] = [];
  #heldBytes = 0;
  #neededBytes = 4;
  #over = false;

  constructor(socket: Socket, mostBytes: number, listener: FrameListener) {
    this.socket = socket;
    this.mostBytes = mostBytes;
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

  /** Sends what was written, then ends the connection without telling the listener. */
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
      if (length > this.mostBytes) {
        this.end(`sent a frame of ${length} bytes, at most ${this.mostBytes} allowed`);
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
