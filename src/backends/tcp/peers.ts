/**
 * Connections between the ranks of a generation: one for each ordered pair, made by the sender for its first message.
 *
 * Messages go from the rank that connects to the rank that listens; credits and reports of ended calls go back. Each rank listens at
 * an address of its own. The ranks exchange their addresses and keys in the store of the job, so that a connection from anything
 * else proves nothing and is dropped.
 */
import { randomBytes, timingSafeEqual } from "node:crypto";
import { connect as connectPlain, createServer, type Server, type Socket } from "node:net";
import { connect as connectTls, createServer as createTlsServer } from "node:tls";
import { keyIdentity, tlsSettings, tune } from "../../job/connection.ts";
import type { Membership } from "../../job/rendezvous.ts";
import { type Block, Blocks } from "./blocks.ts";
import { Endpoint } from "./flows.ts";
import { type FlowId, type Header, headerBytes, kind, readHeader, writeHeader } from "./wire.ts";

/** Where a rank listens, and the key that a connection to it must have. */
interface ListenerAddress {
  readonly host: string;
  readonly port: number;
  readonly key: string;
}

/** Settings of connections. */
export interface PeerSettings {
  /** The address to listen at. */
  readonly host: string;
  readonly tls: boolean;
}

/** Connections that have proved nothing yet, at most, and the time for the proof. */
const [maxUnproven, proofMs] = [256, 10_000];

/** Longest wait for peers to read what was sent, when this rank closes. */
const closeMs = 5_000;

/** Payloads of at most this length are copied behind their header. */
const copiedBytes = 16_384;

const keyBytes = 32;
const helloBytes = keyBytes + 4;

/** The longest name of a communicator, and the largest message: a span of slices. */
const [maxNameBytes, maxMessageBytes] = [256, 2 ** 30];

/** The connections of one rank. */
export class Peers {
  readonly rank: number;
  readonly blocks: Blocks;
  /** By the key of the communicator and the rank of the peer; `undefined` for a communicator that is over. */
  readonly #endpoints = new Map<string, Map<number, Endpoint> | undefined>();
  readonly #outgoing = new Map<number, Outgoing>();
  readonly #incoming = new Set<Incoming>();
  /** Connections without a proof by their other end, the oldest first. */
  readonly #unproven = new Map<string, Socket>();
  readonly #server: Server;
  readonly #key: Buffer;
  readonly #settings: PeerSettings;
  #addresses: readonly ListenerAddress[] = [];
  /** The reason for the end of the connections with a peer, by its rank. */
  readonly #ends = new Map<number, string>();
  /** Called when a connection with a peer has ended. */
  onEnd: (rank: number, reason: string) => void = () => undefined;
  #isClosed = false;

  private constructor(rank: number, settings: PeerSettings, blocks: Blocks) {
    this.rank = rank;
    this.blocks = blocks;
    this.#settings = settings;
    this.#key = randomBytes(keyBytes);
    const accept = (socket: Socket): void => this.#accept(socket);
    const pskCallback = (): Buffer => this.#key;
    this.#server = settings.tls
      ? createTlsServer({ ...tlsSettings, pskCallback, handshakeTimeout: proofMs }, accept)
      : createServer(accept);
    this.#server.on("connection", (socket) => this.#limitUnproven(socket));
    this.#server.on("tlsClientError", (_error, socket) => socket.destroy());
    this.#server.unref();
  }

  /** The connections of a rank without peers. */
  static alone(): Peers {
    return new Peers(0, { host: "", tls: false }, new Blocks());
  }

  /** Number of ranks. */
  get size(): number {
    return Math.max(1, this.#addresses.length);
  }

  /** Listens, and exchanges addresses with all ranks. */
  static async open(
    membership: Membership,
    settings: PeerSettings,
    blocks: Blocks,
    wait: { readonly timeoutMs: number; readonly signal: AbortSignal },
  ): Promise<Peers> {
    const peers = new Peers(membership.rank, settings, blocks);
    try {
      const port = await listen(peers.#server, settings.host);
      const own = { host: settings.host, port, key: peers.#key.toString("base64") };
      const value = new TextEncoder().encode(JSON.stringify(own));
      const all = await membership.exchange("tcp addresses", value, wait);
      peers.#addresses = all.map((each) => JSON.parse(new TextDecoder().decode(each)));
      return peers;
    } catch (error) {
      peers.destroy();
      throw error;
    }
  }

  /** The traffic with a peer on a communicator. */
  endpoint(comm: string, peer: number): Endpoint {
    return this.#endpointOf(comm, peer) ?? new Endpoint();
  }

  #endpointOf(comm: string, peer: number): Endpoint | undefined {
    let ofComm = this.#endpoints.get(comm);
    if (ofComm === undefined) {
      if (this.#endpoints.has(comm)) return undefined;
      ofComm = new Map();
      this.#endpoints.set(comm, ofComm);
    }
    let endpoint = ofComm.get(peer);
    if (endpoint === undefined) {
      endpoint = new Endpoint();
      ofComm.set(peer, endpoint);
    }
    return endpoint;
  }

  /** A communicator is over: its messages are dropped from now on. */
  retire(comm: string): void {
    for (const endpoint of this.#endpoints.get(comm)?.values() ?? []) endpoint.drop(this.blocks);
    this.#endpoints.set(comm, undefined);
  }

  /** The reason for the end of a connection with a peer; `undefined` while there is none. */
  endOf(peer: number): string | undefined {
    return this.#ends.get(peer);
  }

  /**
   * Sends a message. The payload is not copied if it is long: `done` is called once it may change. Returns false for a payload
   * that was copied, or dropped because the connection has ended; then `done` is not called.
   */
  send(
    peer: number,
    comm: string,
    message: FlowId & { readonly total: number },
    payload: Uint8Array | undefined,
    done: () => void,
  ): boolean {
    let connection = this.#outgoing.get(peer);
    if (connection === undefined) {
      connection = this.#connect(peer);
      this.#outgoing.set(peer, connection);
    }
    return connection.send(comm, message, payload, done);
  }

  /** Reports to the sender of a flow that one of its messages was taken. */
  credit(peer: number, comm: string, flow: FlowId): void {
    this.#report(peer, comm, { ...flow, kind: kind.credit, bytes: 0, total: 0 });
  }

  /** Reports the end of calls to a sender. */
  ended(peer: number, comm: string, { calls, bytes }: { calls: number; bytes: number }): void {
    const header = { kind: kind.ended, sequence: calls, channel: 0, round: 0, bytes: 0 };
    this.#report(peer, comm, { ...header, total: bytes });
  }

  #report(peer: number, comm: string, header: Omit<Header, "comm">): void {
    for (const incoming of this.#incoming) {
      if (incoming.peer === peer) incoming.report(comm, header);
    }
  }

  #connect(peer: number): Outgoing {
    const { host, port, key } = this.#addresses[peer] as ListenerAddress;
    const psk = Buffer.from(key, "base64");
    const socket = this.#settings.tls
      ? connectTls({
          ...{ ...tlsSettings, host, port, checkServerIdentity: () => undefined },
          pskCallback: () => ({ psk, identity: keyIdentity }),
        })
      : connectPlain({ host, port });
    const connection = new Outgoing(socket, {
      received: (header, comm) => this.#reported(peer, header, comm),
      ended: (reason) => this.#ended(peer, reason),
    });
    connection.hello(this.rank, psk);
    return connection;
  }

  #reported(peer: number, header: Header, comm: string): void {
    const endpoint = this.#endpointOf(comm, peer);
    if (header.kind === kind.credit) endpoint?.credit(header);
    else if (header.kind === kind.ended) endpoint?.peerEnded(header.sequence, header.total);
  }

  #limitUnproven(socket: Socket): void {
    const [oldest] = this.#unproven.values();
    if (this.#unproven.size >= maxUnproven) oldest?.destroy();
    const place = placeOf(socket);
    this.#unproven.set(place, socket);
    socket.unref();
    const timer = setTimeout(() => {
      if (this.#unproven.get(place) === socket) socket.destroy();
    }, proofMs).unref();
    socket.once("close", () => {
      clearTimeout(timer);
      if (this.#unproven.get(place) === socket) this.#unproven.delete(place);
    });
  }

  #accept(socket: Socket): void {
    tune(socket);
    const incoming = new Incoming(socket, this.#key, this.blocks, {
      proven: (peer) => {
        if (peer >= this.#addresses.length && this.#addresses.length > 0) return false;
        this.#incoming.add(incoming);
        this.#unproven.delete(placeOf(socket));
        return true;
      },
      arrived: (peer, header, comm, block) => {
        const endpoint = this.#endpointOf(comm, peer);
        if (endpoint === undefined) this.blocks.give(block);
        else endpoint.incoming(header).arrived({ block, total: header.total });
      },
      ended: (peer, reason) => {
        this.#incoming.delete(incoming);
        if (peer !== undefined) this.#ended(peer, reason);
      },
    });
  }

  #ended(peer: number, reason: string): void {
    if (this.#isClosed) return;
    if (!this.#ends.has(peer)) this.#ends.set(peer, reason);
    this.onEnd(peer, reason);
  }

  /** Ends the connections once the peers have read what was sent to them; bounded. */
  async close(): Promise<void> {
    this.#isClosed = true;
    this.#server.close();
    await Promise.all(Array.from(this.#outgoing.values(), (each) => each.finish(closeMs)));
    this.destroy();
  }

  /** Ends all connections at once. */
  destroy(): void {
    this.#isClosed = true;
    this.#server.close();
    for (const each of this.#outgoing.values()) each.destroy();
    for (const each of this.#incoming) each.destroy();
    for (const socket of this.#unproven.values()) socket.destroy();
  }
}

/** The other end of a connection: the same for a connection and for TLS over it. */
function placeOf({ remoteAddress, remotePort }: Socket): string {
  return `${remoteAddress} ${remotePort}`;
}

function listen(server: Server, host: string): Promise<number> {
  return new Promise((resolve, reject) => {
    server.once("error", reject);
    server.listen({ host, port: 0, backlog: 1024 }, () => {
      server.removeListener("error", reject);
      server.on("error", () => undefined);
      resolve((server.address() as { readonly port: number }).port);
    });
  });
}

/** The receiver of what comes back on a connection to a peer. */
interface OutgoingListener {
  received(header: Header, comm: string): void;
  ended(reason: string): void;
}

/** A connection to a peer: messages go out, reports come back. */
class Outgoing {
  readonly #socket: Socket;
  /** Numbers of communicators on this connection. */
  readonly #numbers = new Map<string, number>();
  readonly #names: string[] = [];
  #isOver = false;

  constructor(socket: Socket, listener: OutgoingListener) {
    this.#socket = socket;
    tune(socket);
    socket.unref();
    const reader = new HeaderReader();
    socket.on("data", (chunk) => {
      for (const header of reader.read(chunk))
        listener.received(header, this.#names[header.comm] ?? "");
    });
    const end = (reason: string): void => {
      if (this.#isOver) return;
      this.destroy();
      listener.ended(reason);
    };
    socket.on("error", (error: NodeJS.ErrnoException) => end(error.code ?? error.message));
    socket.on("close", () => end("it has closed the connection"));
  }

  hello(rank: number, key: Buffer): void {
    const frame = Buffer.alloc(headerBytes + helloBytes);
    writeHeader(frame, { ...noFlow, kind: kind.hello, comm: 0, bytes: helloBytes });
    frame.set(key, headerBytes);
    frame.writeUInt32LE(rank, headerBytes + keyBytes);
    this.#socket.write(frame);
  }

  send(
    comm: string,
    message: FlowId & { readonly total: number },
    payload: Uint8Array | undefined,
    done: () => void,
  ): boolean {
    if (this.#isOver) return false;
    const bytes = payload?.byteLength ?? 0;
    const isCopied = bytes <= copiedBytes;
    const frame = Buffer.allocUnsafe(headerBytes + (isCopied ? bytes : 0));
    const { sequence, channel, round, total } = message;
    const header = { kind: kind.data, sequence, channel, round, total, bytes };
    writeHeader(frame, { ...header, comm: this.#numberOf(comm) });
    if (isCopied) {
      if (payload !== undefined) frame.set(payload, headerBytes);
      this.#socket.write(frame);
      return false;
    }
    this.#socket.cork();
    this.#socket.write(frame);
    this.#socket.write(payload as Uint8Array, done);
    this.#socket.uncork();
    return true;
  }

  #numberOf(comm: string): number {
    const known = this.#numbers.get(comm);
    if (known !== undefined) return known;
    const number = this.#numbers.size;
    this.#numbers.set(comm, number);
    this.#names.push(comm);
    const name = Buffer.from(comm);
    const frame = Buffer.alloc(headerBytes + name.length);
    writeHeader(frame, { ...noFlow, kind: kind.name, comm: number, bytes: name.length });
    frame.set(name, headerBytes);
    this.#socket.write(frame);
    return number;
  }

  /** Sends what was written, and waits until the peer has read it and ends too. */
  finish(boundMs: number): Promise<void> {
    if (this.#isOver) return Promise.resolve();
    this.#isOver = true;
    return new Promise((resolve) => {
      const timer = setTimeout(() => this.#socket.destroy(), boundMs);
      this.#socket.once("close", () => {
        clearTimeout(timer);
        resolve();
      });
      this.#socket.ref();
      this.#socket.end();
    });
  }

  destroy(): void {
    this.#isOver = true;
    this.#socket.destroy();
  }
}

const noFlow = { sequence: 0, channel: 0, round: 0, total: 0 } as const;

/** Reads frames without payload. */
class HeaderReader {
  #rest: Buffer = Buffer.alloc(0);

  read(chunk: Buffer): Header[] {
    const data = this.#rest.length === 0 ? chunk : Buffer.concat([this.#rest, chunk]);
    const headers: Header[] = [];
    let at = 0;
    for (; at + headerBytes <= data.length; at += headerBytes) {
      headers.push(readHeader(data.subarray(at, at + headerBytes)));
    }
    this.#rest = data.subarray(at);
    return headers;
  }
}

/** The receiver of what arrives on a connection from a peer. */
interface IncomingListener {
  /** The peer has proved its rank. False: it is dropped. */
  proven(peer: number): boolean;
  arrived(peer: number, header: Header, comm: string, block: Block): void;
  /** `undefined` where the connection had proved nothing. */
  ended(peer: number | undefined, reason: string): void;
}

/** A connection from a peer: messages come in, reports go out. */
class Incoming {
  /** The rank of the peer, once it was proved. */
  peer: number | undefined;
  readonly #socket: Socket;
  readonly #key: Buffer;
  readonly #blocks: Blocks;
  readonly #listener: IncomingListener;
  /** Names of communicators by their number. */
  readonly #names: string[] = [];
  readonly #numbers = new Map<string, number>();
  readonly #headerBuffer = Buffer.alloc(headerBytes);
  /** Bytes of the header, or of the payload behind it, that have arrived. */
  #filled = 0;
  #header: Header | undefined;
  #block: Block | undefined;
  #isOver = false;

  constructor(socket: Socket, key: Buffer, blocks: Blocks, listener: IncomingListener) {
    this.#socket = socket;
    this.#key = key;
    this.#blocks = blocks;
    this.#listener = listener;
    socket.on("data", (chunk) => this.#data(chunk));
    socket.on("error", (error: NodeJS.ErrnoException) => this.#end(error.code ?? error.message));
    socket.on("close", () => this.#end("it has closed the connection"));
  }

  /** Sends a frame back. */
  report(comm: string, header: Omit<Header, "comm">): void {
    const number = this.#numbers.get(comm);
    if (this.#isOver || number === undefined) return;
    const frame = Buffer.allocUnsafe(headerBytes);
    writeHeader(frame, { ...header, comm: number });
    this.#socket.write(frame);
  }

  destroy(): void {
    this.#isOver = true;
    this.#socket.destroy();
  }

  #end(reason: string): void {
    if (this.#isOver) return;
    this.destroy();
    this.#listener.ended(this.peer, reason);
  }

  #data(chunk: Buffer): void {
    let at = 0;
    while (at < chunk.length && !this.#isOver) {
      if (this.#header === undefined) {
        const part = Math.min(headerBytes - this.#filled, chunk.length - at);
        chunk.copy(this.#headerBuffer, this.#filled, at, at + part);
        at += part;
        this.#filled += part;
        if (this.#filled < headerBytes) return;
        this.#begin(readHeader(this.#headerBuffer));
      } else {
        const block = this.#block as Block;
        const part = Math.min(block.bytes.byteLength - this.#filled, chunk.length - at);
        block.bytes.set(chunk.subarray(at, at + part), this.#filled);
        at += part;
        this.#filled += part;
        if (this.#filled === block.bytes.byteLength) this.#complete();
      }
    }
  }

  /** A header has arrived. */
  #begin(header: Header): void {
    const isAccepted =
      this.peer === undefined
        ? header.kind === kind.hello && header.bytes === helloBytes
        : (header.kind === kind.name &&
            header.bytes <= maxNameBytes &&
            header.comm === this.#names.length) ||
          (header.kind === kind.data && header.bytes <= maxMessageBytes);
    if (!isAccepted) {
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
      const comm = this.#names[header.comm];
      if (comm === undefined) this.#end("it has sent a message of an unknown communicator");
      else this.#listener.arrived(this.peer as number, header, comm, block);
      return;
    }
    if (header.kind === kind.name) {
      const name = Buffer.from(block.bytes).toString();
      this.#names.push(name);
      this.#numbers.set(name, header.comm);
    } else this.#prove(Buffer.from(block.bytes));
    this.#blocks.give(block);
  }

  #prove(hello: Buffer): void {
    const rank = hello.readUInt32LE(keyBytes);
    const isOwn = timingSafeEqual(hello.subarray(0, keyBytes), this.#key);
    if (!isOwn || !this.#listener.proven(rank)) {
      this.#end("it has no proof");
      return;
    }
    this.peer = rank;
  }
}
