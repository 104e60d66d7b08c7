/**
 * Both ends of the connection from a rank to a peer: messages go one way, reports the other way.
 *
 * The receiver makes the connection, when the sender requests it, because only a socket that connects reads into a buffer that is used
 * again. Other sockets allocate memory for each read, and the collection of it takes longer than the reads.
 */
import { timingSafeEqual } from "node:crypto";
import type { Socket } from "node:net";
import { tune } from "../../job/connection.ts";
import type { Block, Blocks } from "./blocks.ts";
import { type Header, headerBytes, kind, type Message, readHeader, writeHeader } from "./wire.ts";

/** The address at which a rank listens, and the key that a connection to it must have. */
export interface ListenerAddress {
  readonly host: string;
  readonly port: number;
  readonly key: string;
}

export const keyBytes = 32;
const helloBytes = keyBytes + 4;

/** The longest name of a communicator, and the largest message: a span of slices. */
const [maxNameBytes, maxMessageBytes] = [256, 2 ** 30];

/** The reason for the end of a connection that was closed at its other end. */
const closedReason = "it has closed the connection";

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

  constructor(socket?: Socket) {
    this.#socket = socket;
  }

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
  reported(header: Header, comm: string): void;
  ended(reason: string): void;
}

/** The sender's end: messages go out, reports come back. */
export class Outgoing {
  /** `undefined` until the peer has connected. */
  #socket: Socket | undefined;
  readonly #blocks: Blocks;
  readonly #listener: OutgoingListener;
  readonly #writer = new FrameWriter();
  /** Numbers of communicators on this connection. */
  readonly #numbers = new Map<string, number>();
  readonly #names: string[] = [];
  #isOver = false;
  #onAttached: (() => void) | undefined;

  constructor(blocks: Blocks, listener: OutgoingListener) {
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
    let rest: Buffer = Buffer.alloc(0);
    socket.on("data", (chunk: Buffer) => {
      const data = rest.length === 0 ? chunk : Buffer.concat([rest, chunk]);
      let at = 0;
      for (; at + headerBytes <= data.length; at += headerBytes) {
        const header = readHeader(data.subarray(at, at + headerBytes));
        this.#listener.reported(header, this.#names[header.comm] ?? "");
      }
      rest = data.subarray(at);
    });
    socket.on("error", (error: NodeJS.ErrnoException) => this.end(error.code ?? error.message));
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
  send(comm: string, message: Message, block: Block, sent: () => void): void {
    if (this.#isOver) return;
    const { memory, bytes } = block;
    const number = this.#numberOf(comm);
    const frame = Buffer.from(memory, 0, headerBytes + bytes.byteLength);
    writeHeader(frame, { ...message, kind: kind.data, bytes: bytes.byteLength, comm: number });
    this.#writer.write(frame, (error) => {
      if (error) return;
      this.#blocks.give(block);
      sent();
    });
  }

  #numberOf(comm: string): number {
    const known = this.#numbers.get(comm);
    if (known !== undefined) return known;
    const number = this.#numbers.size;
    this.#numbers.set(comm, number);
    this.#names.push(comm);
    const bytes = Buffer.byteLength(comm);
    const frame = Buffer.alloc(headerBytes + bytes);
    writeHeader(frame, { ...noFlow, kind: kind.name, comm: number, bytes });
    frame.write(comm, headerBytes);
    this.#writer.write(frame);
    return number;
  }

  /** Sends what was written, and waits until the peer has read it and ends too; bounded. */
  async finish(boundMs: number): Promise<void> {
    if (this.#isOver) return;
    await new Promise<void>((resolve) => {
      const timer = setTimeout(resolve, boundMs);
      const ended = (): void => {
        clearTimeout(timer);
        resolve();
      };
      const finish = (): void => {
        this.#socket?.once("close", ended);
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
  }
}

/** The listener of the receiver's end. */
interface IncomingListener {
  arrived(header: Header, comm: string, block: Block): void;
  ended(reason: string): void;
}

/** The receiver's end: messages come in, reports go out. */
export class Incoming {
  readonly #socket: Socket;
  readonly #writer: FrameWriter;
  readonly #blocks: Blocks;
  readonly #listener: IncomingListener;
  /** Names of communicators by their number, and the reverse. */
  readonly #names: string[] = [];
  readonly #numbers = new Map<string, number>();
  readonly #headerBuffer = Buffer.alloc(headerBytes);
  /** Bytes of the header, or of the payload behind it, that have arrived. */
  #filled = 0;
  #header: Header | undefined;
  #block: Block | undefined;
  #isOver = false;

  /** `connect` makes the connection, and passes what arrives to its argument. */
  constructor(
    connect: (read: (chunk: Uint8Array) => void) => Socket,
    blocks: Blocks,
    listener: IncomingListener,
  ) {
    this.#blocks = blocks;
    this.#listener = listener;
    this.#socket = connect((chunk) => this.#read(chunk));
    this.#writer = new FrameWriter(this.#socket);
    tune(this.#socket);
    this.#socket.unref();
    this.#socket.on("error", (error: NodeJS.ErrnoException) =>
      this.#end(error.code ?? error.message),
    );
    this.#socket.on("end", () => this.#end(closedReason));
    this.#socket.on("close", () => this.#end(closedReason));
  }

  /** Sends a frame without payload. */
  report(comm: string, header: Omit<Header, "comm">): void {
    const number = this.#numbers.get(comm);
    if (this.#isOver || number === undefined) return;
    const frame = Buffer.alloc(headerBytes);
    writeHeader(frame, { ...header, comm: number });
    this.#writer.write(frame);
  }

  /** Sends what was written, then ends the connection. */
  destroy(): void {
    this.#isOver = true;
    this.#writer.flush();
    this.#socket.end();
    this.#socket.destroySoon();
  }

  #end(reason: string): void {
    if (this.#isOver) return;
    this.destroy();
    this.#listener.ended(reason);
  }

  #read(chunk: Uint8Array): void {
    let at = 0;
    while (at < chunk.length && !this.#isOver) {
      const isHeader = this.#header === undefined;
      const target = isHeader ? this.#headerBuffer : (this.#block as Block).bytes;
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
    const isName = header.kind === kind.name && header.bytes <= maxNameBytes;
    const isData = header.kind === kind.data && header.bytes <= maxMessageBytes;
    const isExpected = isName
      ? header.comm === this.#names.length
      : isData && header.comm < this.#names.length;
    if (!isExpected) {
      this.#end("it has sent what is no message");
      return;
    }
    this.#header = header;
    this.#filled = 0;
    this.#block = this.#blocks.take(header.bytes);
    if (header.bytes === 0) this.#complete();
  }

  /** A payload has arrived. */
  #complete(): void {
    const [header, block] = [this.#header as Header, this.#block as Block];
    this.#header = undefined;
    this.#block = undefined;
    this.#filled = 0;
    if (header.kind === kind.data) {
      this.#listener.arrived(header, this.#names[header.comm] as string, block);
      return;
    }
    const name = Buffer.from(block.bytes).toString();
    this.#names.push(name);
    this.#numbers.set(name, header.comm);
    this.#blocks.give(block);
  }
}
