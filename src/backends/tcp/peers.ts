/**
 * The connections of a rank: one for each peer that it sends to, and one for each peer that sends to it. Reports to a peer
 * that it only receives from need one of the first kind.
 *
 * Each rank listens at an address of its own. The ranks exchange their addresses and keys in the store of the job, so that a
 * connection from anything else proves nothing and is dropped. A sender requests a connection before its first frame, and
 * the receiver makes it.
 */
import { randomBytes } from "node:crypto";
import {
  connect as connectPlain,
  createServer,
  type OnReadOpts,
  type Server,
  type Socket,
} from "node:net";
import { connect as connectTls, createServer as createTlsServer } from "node:tls";
import { ranksText } from "../../api/error-text.ts";
import { BackendUnavailableError, InvalidArgumentError } from "../../api/index.ts";
import { clientSettings, keyIdentity, tlsSettings, tune } from "../../job/connection.ts";
import { decode, encode, type FrameError } from "../../job/frames.ts";
import type { Membership } from "../../job/rendezvous.ts";
import {
  addresses,
  awaitHello,
  type Hello,
  helloFrame,
  Incoming,
  keyBytes,
  type ListenerAddress,
  Outgoing,
  reasonOf,
  wasDropped,
} from "./connections.ts";
import { Endpoint } from "./flows.ts";
import { type MessageBlock, MessageBlocks } from "./message-blocks.ts";
import { type FlowId, type Header, kind, type Message } from "./wire.ts";

/** Settings of connections. */
export interface PeerSettings {
  /** The address to listen at, which the other ranks connect to. */
  readonly host: string;
  /** Listens at all addresses of this machine instead (false). */
  readonly isEverywhere?: boolean | undefined;
  readonly tls: boolean;
}

/** Connections that have proved nothing yet, at most, and the time for the proof. */
const [maxUnproven, proofMs] = [256, 10_000];

/** Ended communicators whose late messages are known as such. */
const maxRetired = 1_000;

/** Longest wait for peers to read what was sent, when this rank closes. */
const closeMs = 5_000;

/** Time from the end of a request to the next one, and requests without a connection, at most: half a minute of them. */
const [requestMs, maxRequests] = [250, 120];

/** The reason where none was made: a process without free files loses what it accepts, without an error. */
const unmadeReason = `no connection in ${maxRequests} attempts: one of both processes may have no free files, see ulimit -n`;

/** The connections of one rank. */
export class Peers {
  readonly rank: number;
  readonly blocks: MessageBlocks;
  /** By the number of the communicator and the rank of the peer. */
  readonly #endpoints = new Map<number, Map<number, Endpoint>>();
  /** The communicators that ended last: messages to them may still be on the way. */
  readonly #retired = new Set<number>();
  readonly #outgoing = new Map<number, Outgoing>();
  readonly #incoming = new Map<number, Incoming>();
  /** Connections on which this rank requests one. */
  readonly #requests = new Set<Socket>();
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
  readonly #lost = new Set<number>();
  #isClosing = false;
  #isClosed = false;

  private constructor(rank: number, settings: PeerSettings, blocks: MessageBlocks) {
    this.rank = rank;
    this.blocks = blocks;
    this.#settings = settings;
    this.#key = randomBytes(keyBytes);
    const accept = (socket: Socket): void => {
      tune(socket);
      awaitHello(socket, this.#key, (hello) => this.#proven(socket, hello));
    };
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
    return new Peers(0, { host: "", tls: false }, new MessageBlocks());
  }

  /** Number of ranks. */
  get size(): number {
    return Math.max(1, this.#addresses.length);
  }

  /** Listens, and exchanges addresses with all ranks. */
  static async open(
    membership: Membership,
    settings: PeerSettings,
    blocks: MessageBlocks,
    wait: { readonly timeoutMs: number; readonly signal: AbortSignal },
  ): Promise<Peers> {
    const peers = new Peers(membership.rank, settings, blocks);
    try {
      const { host, tls, isEverywhere } = settings;
      const port = await listen(peers.#server, isEverywhere === true ? undefined : host);
      const own = { kind: "address", host, port, key: peers.#key, tls } as const;
      const all = await membership.exchange("tcp addresses", encode(addresses, own), wait);
      const found = all.map((value, from) => addressOf(value, from, membership));
      refuseMixedTls(found, membership);
      peers.#addresses = found;
      return peers;
    } catch (error) {
      peers.destroy();
      throw error;
    }
  }

  /** The traffic with a peer on a communicator. */
  endpoint(comm: number, peer: number): Endpoint {
    const ofComm = this.#endpoints.get(comm);
    const known = ofComm?.get(peer);
    if (known !== undefined) return known;
    const endpoint = new Endpoint();
    // A call that fails with its communicator still has traffic to forget.
    if (this.#retired.has(comm)) return endpoint;
    if (ofComm === undefined) this.#endpoints.set(comm, new Map([[peer, endpoint]]));
    else ofComm.set(peer, endpoint);
    return endpoint;
  }

  /** A communicator is over: its messages are dropped from now on. */
  retire(comm: number): void {
    for (const endpoint of this.#endpoints.get(comm)?.values() ?? []) endpoint.drop(this.blocks);
    this.#endpoints.delete(comm);
    this.#retired.add(comm);
    const [oldest] = this.#retired;
    if (this.#retired.size > maxRetired) this.#retired.delete(oldest as number);
  }

  /** True for one of the communicators that ended last. */
  hasRetired(comm: number): boolean {
    return this.#retired.has(comm);
  }

  /** The reason for the end of a connection with a peer; `undefined` while there is none. */
  endOf(peer: number): string | undefined {
    return this.#ends.get(peer);
  }

  /** False once no message of a peer can come: its connection to this rank was never made, or has ended. */
  mayReceiveFrom(peer: number): boolean {
    return this.#incoming.get(peer)?.isOver === false;
  }

  /** True while messages of a peer wait to be taken by a call. */
  holdsMessagesOf(peer: number): boolean {
    return [...this.#endpoints.values()].some((ofComm) => ofComm.get(peer)?.hasArrivals === true);
  }

  /** A peer is lost: closing does not wait until it has read what was sent to it. */
  lost(peer: number): void {
    this.#lost.add(peer);
    if (this.#isClosing) this.#outgoing.get(peer)?.destroy();
  }

  /** The reasons for the ends of connections, by peer. */
  get ends(): ReadonlyMap<number, string> {
    return this.#ends;
  }

  /** Sends a message and takes its block over; `sent` is called once the kernel has it, and never where the connection ends before. */
  send(peer: number, comm: number, message: Message, block: MessageBlock, sent: () => void): void {
    this.#outgoingTo(peer).send(comm, message, block, sent);
  }

  /** Reports to the sender of a flow that one of its messages was taken. */
  credit(peer: number, comm: number, flow: FlowId): void {
    const { sequence, lane, round } = flow;
    const header = { kind: kind.credit, bytes: 0, comm, sequence, lane, round, total: 0 };
    this.#outgoingTo(peer).report(header);
  }

  /** Reports the end of calls to a sender. */
  ended(peer: number, comm: number, { calls, bytes }: { calls: number; bytes: number }): void {
    const flow = { sequence: calls, lane: 0, round: 0 };
    const header = { kind: kind.ended, bytes: 0, comm, ...flow, total: bytes };
    this.#outgoingTo(peer).report(header);
  }

  /** The connection to a peer; a new one is requested. */
  #outgoingTo(peer: number): Outgoing {
    const known = this.#outgoing.get(peer);
    if (known !== undefined) return known;
    const outgoing = new Outgoing(this.blocks, {
      ended: (reason) => this.#ended(peer, reason),
    });
    this.#outgoing.set(peer, outgoing);
    this.#request(peer, outgoing);
    return outgoing;
  }

  /** Requests a connection, again where the request was dropped among connections of strangers; bounded. */
  #request(peer: number, outgoing: Outgoing, left = maxRequests): void {
    if (left === 0) {
      outgoing.end(unmadeReason);
      return;
    }
    const request = this.#connect(peer, "request");
    this.#requests.add(request);
    request.on("error", (error: NodeJS.ErrnoException) => {
      if (!wasDropped(error)) outgoing.end(reasonOf(error));
    });
    // Its other end closes it once it makes the connection.
    request.on("close", () => {
      this.#requests.delete(request);
      setTimeout(() => {
        if (outgoing.isAwaited && !this.#isClosed) this.#request(peer, outgoing, left - 1);
      }, requestMs).unref();
    });
    request.resume();
  }

  #connect(peer: number, purpose: "request" | "receive", onread?: OnReadOpts): Socket {
    const { host, port, key } = this.#addresses[peer] as ListenerAddress;
    const psk = Buffer.from(key);
    const socket = this.#settings.tls
      ? connectTls({
          ...{ ...clientSettings, ...(onread && { onread }), host, port },
          pskCallback: () => ({ psk, identity: keyIdentity }),
        })
      : connectPlain({ ...(onread && { onread }), host, port });
    socket.unref();
    socket.write(helloFrame(this.rank, psk, purpose));
    return socket;
  }

  #proven(socket: Socket, { rank, purpose }: Hello): void {
    this.#unproven.delete(placeOf(socket));
    if (this.#isClosed) {
      socket.destroy();
    } else if (purpose === "request") {
      if (!this.#incoming.has(rank) && this.#addresses[rank] !== undefined) this.#receiveFrom(rank);
      socket.end();
    } else if (this.#outgoing.get(rank)?.attach(socket) !== true) {
      socket.destroy();
    }
  }

  /** Connects to a sender. */
  #receiveFrom(peer: number): void {
    const incoming = new Incoming((onread) => this.#connect(peer, "receive", onread), this.blocks, {
      arrived: (header, block) => {
        const { comm, total } = header;
        if (this.#retired.has(comm)) this.blocks.give(block);
        else this.endpoint(comm, peer).incoming(header).arrived({ block, total });
      },
      reported: (header) => this.#reported(peer, header),
      ended: (reason) => this.#ended(peer, reason),
      dropped: () => this.#incoming.delete(peer),
    });
    this.#incoming.set(peer, incoming);
  }

  #reported(peer: number, header: Header): void {
    const endpoint = this.endpoint(header.comm, peer);
    if (header.kind === kind.credit) endpoint.credit(header);
    else if (header.kind === kind.ended) endpoint.peerEnded(header.sequence, header.total);
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

  #ended(peer: number, reason: string): void {
    if (this.#isClosed) return;
    if (!this.#ends.has(peer)) this.#ends.set(peer, reason);
    this.onEnd(peer, reason);
  }

  /** Ends the connections once the peers have read what was sent to them; bounded. */
  async close(): Promise<void> {
    this.#isClosing = true;
    for (const peer of this.#lost) this.#outgoing.get(peer)?.destroy();
    await Promise.all(Array.from(this.#outgoing.values(), (each) => each.finish(closeMs)));
    this.destroy();
  }

  /** Ends all connections at once. */
  destroy(): void {
    this.#isClosed = true;
    this.#server.close();
    for (const each of this.#outgoing.values()) each.destroy();
    for (const each of this.#incoming.values()) each.destroy();
    for (const socket of [...this.#requests, ...this.#unproven.values()]) socket.destroy();
  }
}

/** The address that a rank gives. */
function addressOf(value: Uint8Array, from: number, membership: Membership): ListenerAddress {
  try {
    return decode(addresses, value);
  } catch (cause) {
    const { message, field = "address" } = cause as FrameError;
    const { rank, size, jobId } = membership;
    throw new BackendUnavailableError(
      {
        headline: `connect: rank ${from} gives no address of this version: ${message}`,
        hint: `run the same version of twinccl on every rank, and look at the process of rank ${from}`,
      },
      { rank, size, comm: jobId, ranks: [from], field, cause },
    );
  }
}

/** Ranks with TLS and ranks without it reach each other on no connection. */
function refuseMixedTls(all: readonly ListenerAddress[], { rank, size, jobId }: Membership): void {
  const ranksWith = (tls: boolean): number[] =>
    all.flatMap((each, from) => (each.tls === tls ? [from] : []));
  const [encrypted, plain] = [ranksWith(true), ranksWith(false)];
  if (encrypted.length === 0 || plain.length === 0) return;
  throw new InvalidArgumentError(
    {
      headline: `connect: tls: found true on ${ranksText(encrypted)}, but false on ${ranksText(plain)}`,
      hint: "pass the same tcp({ tls }) on every rank",
    },
    { rank, size, comm: jobId, field: "tls" },
  );
}

/** The other end of a connection: the same for a connection and for TLS over it. */
function placeOf({ remoteAddress, remotePort }: Socket): string {
  return `${remoteAddress} ${remotePort}`;
}

function listen(server: Server, host: string | undefined): Promise<number> {
  return new Promise((resolve, reject) => {
    server.once("error", reject);
    server.listen({ ...(host !== undefined && { host }), port: 0, backlog: 1024 }, () => {
      server.removeListener("error", reject);
      server.on("error", () => undefined);
      resolve((server.address() as { readonly port: number }).port);
    });
  });
}
