/**
 * Both ends of the connection from a rank to a peer. Messages and reports go one way, and nothing comes back: what is not delivered
 * yet is lost where a process exits with something unread on its connection, or where more arrives there.
 *
 * The receiver makes the connection, when the sender requests it, because only a socket that connects reads into memory that it is
 * given: the block of a message. Other sockets allocate memory for each read, and the collection of it takes longer than the reads.
 */
import { timingSafeEqual } from "node:crypto";
import type { OnReadOpts, Socket } from "node:net";
import { addressText } from "../../job/checks.ts";
import { isOutOfFiles, tune } from "../../job/connection.ts";
import { bytes, flag, line, type MessageOf, whole } from "../../job/frames.ts";
import type { MessageBlock, MessageBlocks } from "./message-blocks.ts";
import { type Header, headerBytes, kind, type Message, readHeader, writeHeader } from "./wire.ts";

/** True for the end of a connection that its other end closed, in one of the ways that the system reports it. */
export function wasDropped(error: NodeJS.ErrnoException | undefined): boolean {
  return error === undefined || error.code === "ECONNRESET" || error.code === "EPIPE";
}

/** An error of a connection; that of a name with several addresses has those of each. */
interface ConnectionFault extends NodeJS.ErrnoException {
  readonly address?: string;
  readonly port?: number;
  readonly errors?: readonly ConnectionFault[];
}

/** The reason for the end of a connection by an error: its code, or the address that cannot be reached. */
export function reasonOf(error: ConnectionFault): string {
  const code = error.code ?? error.message;
  const { syscall, address, port = 0 } = error.errors?.[0] ?? error;
  if (isOutOfFiles(code) || syscall !== "connect" || address === undefined) return code;
  const place = addressText(address, port);
  return `its address ${place} cannot be reached (${code}), see tcp({ host }) and firewalls`;
}

export const keyBytes = 32;

/** The address at which a rank listens, the key that a connection to it must have, and whether it needs TLS; for the other ranks. */
export const addresses = {
  address: { host: line(253), port: whole(1, 65_535), key: bytes(keyBytes, keyBytes), tls: flag },
};

export type ListenerAddress = MessageOf<typeof addresses>;

const helloBytes = keyBytes + 4;

/** The largest message: a slice of many chunks. */
const maxMessageBytes = 2 ** 30;

/** The reason for the end of a connection that was closed at its other end. */
const closedReason = "it has closed the connection";

/** All connections read headers and short messages into it: each read is passed on before the next one. */
const readBuffer = Buffer.allocUnsafeSlow(8 * 2 ** 10);

const noFlow = { sequence: 0, lane: 0, round: 0, total: 0 } as const;

/** The first frame of a connection: the rank that makes it, the key of the listener, and the request for a connection back. */
export function helloFrame(rank: number, key: Uint8Array, purpose: "request" | "receive"): Buffer {
  const frame = Buffer.alloc(headerBytes + helloBytes);
  const comm = purpose === "request" ? 1 : 0;
  writeHeader(frame, { ...noFlow, kind: kind.hello, comm, bytes: helloBytes });
  frame.set(key, headerBytes);
  frame.writeUInt32LE(rank, headerBytes + keyBytes);
  return frame;
}

/** The proved first frame of a connection. */
export interface Hello {
  readonly rank: number;
  readonly purpose: "request" | "receive";
}

/** Calls `proven` once a connection has proved that it has the key; ends it for anything else. */
export function awaitHello(socket: Socket, key: Buffer, proven: (hello: Hello) => void): void {
  let received = Buffer.alloc(0);
  const read = (chunk: Buffer): void => {
    received = Buffer.concat([received, chunk]);
    if (received.length < headerBytes) return;
    const header = readHeader(received);
    if (header.kind !== kind.hello || header.bytes !== helloBytes) {
      socket.destroy();
      return;
    }
    if (received.length < headerBytes + helloBytes) return;
    socket.removeListener("data", read);
    const found = received.subarray(headerBytes, headerBytes + keyBytes);
    // Nothing follows before the listener has answered.
    const isComplete = received.length === headerBytes + helloBytes;
    if (!isComplete || !timingSafeEqual(found, key)) {
      socket.destroy();
      return;
    }
    const rank = received.readUInt32LE(headerBytes + keyBytes);
    proven({ rank, purpose: header.comm === 1 ? "request" : "receive" });
  };
  socket.on("data", read);
  socket.on("error", () => socket.destroy());
}

/** Called once the kernel has a frame, with an error where it was not sent. */
type Done = (error?: Error | null) => void;

/** Writes frames to a socket, those of one turn of the event loop together. */
class FrameWriter {
  /** `undefined` until there is a connection. */
  #socket: Socket | undefined;
  /** Frames that wait for the connection. */
  #waiting: { readonly frame: Buffer; readonly done: Done | undefined }[] = [];
  #isCorked = false;

  /** The connection is there. */
  attach(socket: Socket): void {
    this.#socket = socket;
    for (const { frame, done } of this.#waiting) socket.write(frame, done);
    this.#waiting = [];
  }

  write(frame: Buffer, done?: Done): void {
    const socket = this.#socket;
    if (socket === undefined) {
      this.#waiting.push({ frame, done });
      return;
    }
    if (!this.#isCorked) {
      this.#isCorked = true;
      socket.cork();
      process.nextTick(flushWriter, this);
    }
    socket.write(frame, done);
  }

  /** Writes the frames so far. */
  flush(): void {
    this.#isCorked = false;
    this.#socket?.uncork();
  }
}

function flushWriter(writer: FrameWriter): void {
  writer.flush();
}

/** The listener of the sender's end. */
interface OutgoingListener {
  ended(reason: string): void;
}

/** The sender's end. */
export class Outgoing {
  /** `undefined` until the peer has connected. */
  #socket: Socket | undefined;
  readonly #blocks: MessageBlocks;
  readonly #listener: OutgoingListener;
  readonly #writer = new FrameWriter();
  #isOver = false;
  /** A message was sent. */
  #hasSent = false;
  #onAttached: (() => void) | undefined;
  #onOver: (() => void) | undefined;

  constructor(blocks: MessageBlocks, listener: OutgoingListener) {
    this.#blocks = blocks;
    this.#listener = listener;
  }

  /** The peer has not connected yet, and may still. */
  get isAwaited(): boolean {
    return this.#socket === undefined && !this.#isOver;
  }

  /** The peer has connected. False where it had done so before. */
  attach(socket: Socket): boolean {
    if (this.#socket !== undefined || this.#isOver) return false;
    this.#socket = socket;
    socket.resume();
    socket.on("error", (error) => this.end(reasonOf(error)));
    socket.on("close", () => this.end(closedReason));
    this.#writer.attach(socket);
    this.#onAttached?.();
    return true;
  }

  /** The connection is over, or cannot be made. */
  end(reason: string): void {
    if (this.#isOver) return;
    this.destroy();
    this.#listener.ended(reason);
  }

  /** See `Peers.send`. */
  send(comm: number, message: Message, block: MessageBlock, sent: () => void): void {
    if (this.#isOver) return;
    this.#hasSent = true;
    const { memory, bytes } = block;
    const frame = Buffer.from(memory, 0, headerBytes + bytes.byteLength);
    const { sequence, lane, round, total } = message;
    // Written out: V8 makes a new shape for each object with a spread.
    writeHeader(frame, {
      kind: kind.data,
      bytes: bytes.byteLength,
      comm,
      sequence,
      lane,
      round,
      total,
    });
    this.#writer.write(frame, (error) => {
      if (error) return;
      this.#blocks.give(block);
      sent();
    });
  }

  /** Sends a frame without payload. */
  report(header: Header): void {
    if (this.#isOver) return;
    const frame = Buffer.alloc(headerBytes);
    writeHeader(frame, header);
    this.#writer.write(frame);
  }

  /** Sends the messages that were written, and waits until the peer has read them and ends too, or cannot connect; bounded. */
  async finish(boundMs: number): Promise<void> {
    if (this.#isOver || !this.#hasSent) return;
    await new Promise<void>((resolve) => {
      const timer = setTimeout(resolve, boundMs);
      this.#onOver = () => {
        clearTimeout(timer);
        resolve();
      };
      const finish = (): void => {
        this.#socket?.ref();
        this.#writer.flush();
        this.#socket?.end();
      };
      if (this.#socket === undefined) this.#onAttached = finish;
      else finish();
    });
    this.destroy();
  }

  destroy(): void {
    this.#isOver = true;
    this.#socket?.destroy();
    this.#onOver?.();
  }
}

/** The listener of the receiver's end. */
interface IncomingListener {
  arrived(header: Header, block: MessageBlock): void;
  reported(header: Header): void;
  ended(reason: string): void;
  /** The sender has dropped the connection before its first message: it requests another one. */
  dropped(): void;
}

/** The receiver's end. */
export class Incoming {
  readonly #socket: Socket;
  readonly #blocks: MessageBlocks;
  readonly #listener: IncomingListener;
  readonly #headerBuffer = Buffer.alloc(headerBytes);
  /** Bytes of the header, or of the payload behind it, that have arrived. */
  #filled = 0;
  #header: Header | undefined;
  #block: MessageBlock | undefined;
  #hasRead = false;
  #isOver = false;

  /** `connect` makes the connection with these callbacks for its reads. */
  constructor(
    connect: (onread: OnReadOpts) => Socket,
    blocks: MessageBlocks,
    listener: IncomingListener,
  ) {
    this.#blocks = blocks;
    this.#listener = listener;
    this.#socket = connect({
      buffer: () => this.#block?.bytes.subarray(this.#filled) ?? readBuffer,
      callback: (count, buffer) => {
        if (this.#isOver) return true;
        if (buffer === readBuffer) this.#read(readBuffer.subarray(0, count));
        else this.#fill(count);
        return true;
      },
    });
    tune(this.#socket);
    this.#socket.unref();
    this.#socket.on("error", (error: NodeJS.ErrnoException) => this.#closed(error));
    this.#socket.on("end", () => this.#closed());
    this.#socket.on("close", () => this.#closed());
  }

  /** No message comes any more. */
  get isOver(): boolean {
    return this.#isOver;
  }

  /** Ends the connection. */
  destroy(): void {
    this.#isOver = true;
    this.#socket.end();
    this.#socket.destroySoon();
  }

  #end(reason: string): void {
    if (this.#isOver) return;
    this.destroy();
    this.#listener.ended(reason);
  }

  /** The other end has closed the connection. */
  #closed(error?: NodeJS.ErrnoException): void {
    if (this.#hasRead || !wasDropped(error)) {
      this.#end(error === undefined ? closedReason : reasonOf(error));
      return;
    }
    if (this.#isOver) return;
    this.destroy();
    this.#listener.dropped();
  }

  /** Bytes of a message have arrived in their place. */
  #fill(count: number): void {
    this.#filled += count;
    if (this.#filled === this.#block?.bytes.byteLength) this.#complete();
  }

  /** Bytes have arrived with their header, or behind the end of a message. */
  #read(chunk: Uint8Array): void {
    this.#hasRead = true;
    let at = 0;
    while (at < chunk.length && !this.#isOver) {
      const isHeader = this.#header === undefined;
      const target = isHeader ? this.#headerBuffer : (this.#block as MessageBlock).bytes;
      const part = Math.min(target.byteLength - this.#filled, chunk.length - at);
      target.set(chunk.subarray(at, at + part), this.#filled);
      at += part;
      this.#filled += part;
      if (this.#filled < target.byteLength) return;
      if (isHeader) this.#begin(readHeader(this.#headerBuffer));
      else this.#complete();
    }
  }

  /** A header has arrived. */
  #begin(header: Header): void {
    const isReport = header.kind === kind.credit || header.kind === kind.ended;
    if (
      header.bytes > (isReport ? 0 : maxMessageBytes) ||
      !(isReport || header.kind === kind.data)
    ) {
      this.#end("it has sent what is no message");
      return;
    }
    this.#filled = 0;
    if (isReport) {
      this.#listener.reported(header);
      return;
    }
    this.#header = header;
    this.#block = this.#blocks.take(header.bytes);
    if (header.bytes === 0) this.#complete();
  }

  /** A payload has arrived. */
  #complete(): void {
    const [header, block] = [this.#header as Header, this.#block as MessageBlock];
    this.#header = undefined;
    this.#block = undefined;
    this.#filled = 0;
    this.#listener.arrived(header, block);
  }
}
