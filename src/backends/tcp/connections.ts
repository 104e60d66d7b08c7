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
import { type FlowId, type Header, headerBytes, kind, readHeader, writeHeader } from "./wire.ts";

/** The address at which a rank listens, and the key that a connection to it must have. */
export interface ListenerAddress {
  readonly host: string;
  readonly port: number;
  readonly key: string;
}

/** Payloads of at most this length are copied behind their header. */
const copiedBytes = 16_384;

export const keyBytes = 32;
const helloBytes = keyBytes + 4;

/** The longest name of a communicator, and the largest message: a span of slices. */
const [maxNameBytes, maxMessageBytes] = [256, 2 ** 30];

/** The reason for the end of a connection that was closed at its other end. */
const closedReason = "it has closed the connection";

const noFlow = { sequence: 0, channel: 0, round: 0, total: 0 } as const;

/** The first frame of a connection: the rank that makes it, the key of the listener, and the request for a connection back. */
export function helloFrame(rank: number, key: Uint8Array, purpose: "request" | "receive"): Buffer {
  const frame = Buffer.alloc(headerBytes + helloBytes);
  const comm = purpose === "request" ? 1 : 0;
  writeHeader(frame, 0, { ...noFlow, kind: kind.hello, comm, bytes: helloBytes });
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

/** Called once a payload may change, with an error where it was not sent. */
type Done = (error?: Error | null) => void;

/** Bytes that are written together; longer payloads are written from where they lie. */
const stagedBytes = 64 * 2 ** 10;

/** Writes frames to a socket, those of one turn of the event loop together. */
class FrameWriter {
  readonly #blocks: Blocks;
  /** `undefined` until there is a connection. */
  #socket: Socket | undefined;
  /** Frames that wait for the connection. */
  #waiting: { readonly bytes: Uint8Array; readonly done: Done }[] = [];
  #staging: { readonly block: Block; readonly buffer: Buffer } | undefined;
  #staged = 0;
  #isDue = false;

  constructor(blocks: Blocks, socket?: Socket) {
    this.#blocks = blocks;
    this.#socket = socket;
  }

  /** The connection is there. */
  attach(socket: Socket): void {
    this.#socket = socket;
    for (const { bytes, done } of this.#waiting) socket.write(bytes, done);
    this.#waiting = [];
  }

  /** Writes a frame. True where the payload is not copied: then `done` is called once it may change. */
  write(header: Header, payload: Uint8Array | undefined, done?: Done): boolean {
    const bytes = payload?.byteLength ?? 0;
    const isCopied = bytes <= copiedBytes;
    this.#stage(headerBytes + (isCopied ? bytes : 0), (buffer, at) => {
      writeHeader(buffer, at, header);
      if (isCopied && payload !== undefined) buffer.set(payload, at + headerBytes);
    });
    if (isCopied || payload === undefined) return false;
    this.#push();
    this.#put(payload, done ?? (() => undefined));
    return true;
  }

  #stage(bytes: number, fill: (buffer: Buffer, at: number) => void): void {
    if (this.#staged + bytes > stagedBytes) this.#push();
    if (this.#staging === undefined) {
      const block = this.#blocks.take(stagedBytes);
      this.#staging = { block, buffer: Buffer.from(block.memory) };
    }
    fill(this.#staging.buffer, this.#staged);
    this.#staged += bytes;
    if (this.#isDue) return;
    this.#isDue = true;
    this.#socket?.cork();
    process.nextTick(flushWriter, this);
  }

  /** Writes the frames so far. */
  flush(): void {
    this.#isDue = false;
    this.#push();
    this.#socket?.uncork();
  }

  #push(): void {
    const staging = this.#staging;
    if (staging === undefined) return;
    const bytes = staging.buffer.subarray(0, this.#staged);
    this.#staging = undefined;
    this.#staged = 0;
    this.#put(bytes, () => this.#blocks.give(staging.block));
  }

  #put(bytes: Uint8Array, done: Done): void {
    if (this.#socket === undefined) this.#waiting.push({ bytes, done });
    else this.#socket.write(bytes, done);
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
  readonly #listener: OutgoingListener;
  readonly #writer: FrameWriter;
  /** Numbers of communicators on this connection. */
  readonly #numbers = new Map<string, number>();
  readonly #names: string[] = [];
  #isOver = false;
  #onAttached: (() => void) | undefined;

  constructor(blocks: Blocks, listener: OutgoingListener) {
    this.#writer = new FrameWriter(blocks);
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
  send(
    comm: string,
    { sequence, channel, round, total }: FlowId & { readonly total: number },
    payload: Uint8Array | undefined,
    done: Done,
  ): boolean {
    if (this.#isOver) return false;
    const header = { kind: kind.data, sequence, channel, round, total };
    const bytes = payload?.byteLength ?? 0;
    return this.#writer.write({ ...header, bytes, comm: this.#numberOf(comm) }, payload, done);
  }

  #numberOf(comm: string): number {
    const known = this.#numbers.get(comm);
    if (known !== undefined) return known;
    const number = this.#numbers.size;
    this.#numbers.set(comm, number);
    this.#names.push(comm);
    const name = Buffer.from(comm);
    this.#writer.write({ ...noFlow, kind: kind.name, comm: number, bytes: name.length }, name);
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
    this.#writer = new FrameWriter(blocks, this.#socket);
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
    this.#writer.write({ ...header, comm: number }, undefined);
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
