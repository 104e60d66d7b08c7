/** The store on a TCP port: hosted by the launcher, or by rank 0 when there is none. */
import { type AddressInfo, createServer, type Server, type Socket } from "node:net";
import { RendezvousError } from "../api/index.ts";
import { addressText, isOwnName, numericAddress, requireSecret } from "./checks.ts";
import {
  decodeHello,
  encodeChallenge,
  encodeProof,
  FramedSocket,
  FrameSeal,
  freshNonce,
  type HandshakeData,
  isProof,
  linkLiveness,
  refusal,
} from "./connection.ts";
import type { Peer } from "./generation.ts";
import { limits, requestFrameBytes } from "./limits.ts";
import { decodeRequest, encodeReply, type Reply, type Request, WireError } from "./protocol.ts";
import { Store, type StoreOptions } from "./store.ts";

/** Options of a hosted store. */
export interface StoreServerOptions extends StoreOptions {
  /**
   * Address to listen on (127.0.0.1). All but loopback addresses need a secret. A name of this machine that resolves to a
   * loopback address here means all of its addresses, because other machines resolve it otherwise.
   */
  readonly address?: string | undefined;
  /** The port; 0, the default, takes a free one. */
  readonly port?: number | undefined;
  /** The secret that every rank must prove to know: at least 16 characters that cannot be guessed. */
  readonly secret?: string | undefined;
  /** Longest time from the connection to the request to join (5000). */
  readonly handshakeMs?: number | undefined;
}

/** Longest time that rank 0 keeps its store for the others when it leaves. */
export const hostLingersMs = 5_000;

const closedReason = "the store was closed by its host";

/** Longest time for ranks to end their side of a store that closes. */
const closeMs = 2_000;

/**
 * A store that listens. It does not keep the process alive.
 *
 * A connection is dropped without a proof of the secret within the deadline, with too many bytes, or with an invalid message.
 * The job is not affected. In each step before the join (no hello, no proof, no request to join) at most 64 connections are
 * open. Larger jobs allow 4 per rank. A further one drops the oldest at the same step. Connections without the secret never
 * displace a proven one, and silent ones never displace one with a hello.
 */
export class StoreServer {
  readonly host: string;
  readonly port: number;
  readonly #server: Server;
  readonly #store: Store;
  /** Connections by their step, oldest first. */
  readonly #byStep: Readonly<Record<ConnectionStep, Set<ServerConnection>>>;
  readonly #dropped: Map<string, number>;
  readonly #idle = new Set<() => void>();
  #closed: Promise<void> | undefined;

  private constructor(server: Server, host: string, options: StoreServerOptions) {
    this.#server = server;
    this.host = host;
    this.port = (server.address() as AddressInfo).port;
    this.#store = new Store(options);
    this.#byStep = { hello: new Set(), proof: new Set(), join: new Set(), request: new Set() };
    this.#dropped = new Map();
    const byNonce = new Map<string, ServerConnection>();
    // A rank has two of them while it joins.
    const maxPending = Math.max(limits.pendingConnections, 4 * options.size);
    server.on("connection", (socket) => {
      new ServerConnection(socket, {
        store: this.#store,
        secret: options.secret ?? "",
        handshakeMs: options.handshakeMs ?? limits.handshakeMs,
        onStep: (each) => this.#onStep(each, maxPending),
        byNonce,
        closed: (each, dropped) => this.#forget(each, dropped),
      });
    });
    // An error of accepting one connection, such as too many open files, does not end the others.
    server.on("error", (error: NodeJS.ErrnoException) => this.#count(error.code ?? error.message));
    server.unref();
  }

  /**
   * Opens a store.
   *
   * @throws InvalidArgumentError for an address beyond this machine without a secret, or a secret of less than 16
   *   characters. RendezvousError when the address cannot be listened on.
   */
  static async listen(options: StoreServerOptions): Promise<StoreServer> {
    const host = options.address ?? "127.0.0.1";
    const port = options.port ?? 0;
    const server = createServer();
    try {
      const ip = await numericAddress(host);
      requireSecret(host, ip, options.secret);
      await new Promise<void>((resolve, reject) => {
        server.once("error", reject);
        server.listen({ port, ...(!isOwnName(host, ip) && { host: ip }) }, resolve);
      });
      server.removeAllListeners("error");
      return new StoreServer(server, host, options);
    } catch (error) {
      throw cannotListen(addressText(host, port), error);
    }
  }

  /** Where ranks find it. */
  get address(): string {
    return addressText(this.host, this.port);
  }

  /** Numbers of connections that were dropped without becoming a rank, by reason. */
  get dropped(): ReadonlyMap<string, number> {
    return this.#dropped;
  }

  /** Resolves when no rank is connected, or after that time. */
  async whenEmpty(timeoutMs: number): Promise<void> {
    if (this.#byStep.request.size === 0) return;
    await new Promise<void>((resolve) => {
      const timer = setTimeout(resolve, timeoutMs);
      this.#idle.add(() => {
        clearTimeout(timer);
        resolve();
      });
    });
  }

  /** Sends the end of the store to every rank, and stops listening. Bounded and idempotent. */
  close(): Promise<void> {
    this.#closed ??= new Promise((resolve) => {
      // Connections do not keep the process alive, but waits for the end must get there.
      const timer = setTimeout(resolve, closeMs);
      this.#server.close(() => {
        clearTimeout(timer);
        resolve();
      });
      const { hello, proof, join, request: ranks } = this.#byStep;
      for (const connection of [...hello, ...proof]) connection.drop("store closed");
      for (const connection of join) connection.finish(closedReason);
      this.#store.close();
      for (const connection of ranks) connection.finish(closedReason);
      ranks.clear();
    });
    return this.#closed;
  }

  #onStep(connection: ServerConnection, maxPending: number): void {
    for (const connections of Object.values(this.#byStep)) connections.delete(connection);
    const there = this.#byStep[connection.step];
    const [oldest] = there;
    const isFull = connection.step !== "request" && there.size >= maxPending;
    if (isFull) oldest?.drop("too many connections");
    there.add(connection);
  }

  #forget(connection: ServerConnection, dropped: string | undefined): void {
    for (const connections of Object.values(this.#byStep)) connections.delete(connection);
    if (dropped !== undefined) this.#count(dropped);
    if (this.#byStep.request.size > 0) return;
    for (const wake of this.#idle) wake();
    this.#idle.clear();
  }

  #count(reason: string): void {
    // Reasons are few, but some hold bytes of the sender: the number of reasons is bounded.
    const key = this.#dropped.size < 64 || this.#dropped.has(reason) ? reason : "other";
    this.#dropped.set(key, (this.#dropped.get(key) ?? 0) + 1);
  }
}

function cannotListen(address: string, error: unknown): unknown {
  const code = (error as NodeJS.ErrnoException).code;
  if (code === undefined || code.startsWith("ERR_COMM")) return error;
  const why: Record<string, string> = {
    EADDRINUSE:
      "another process listens there; a second rank 0, an earlier run, or another service",
    EADDRNOTAVAIL: "this machine does not have that address",
    ENOTFOUND: "no machine has that name",
    EACCES: "this user may not use that port",
  };
  return new RendezvousError(
    {
      headline: `rendezvous at ${address}: cannot listen: ${why[code] ?? code}`,
      hint: "choose another address or port, the same on every rank: TWINCCL_ADDRESS, TWINCCL_PORT",
    },
    { address, cause: error },
  );
}

/** The server's side of a connection. */
export interface ConnectionHost {
  readonly store: Store;
  readonly secret: string;
  readonly handshakeMs: number;
  /** The connection is at its next step, the first or a later one. */
  onStep(connection: ServerConnection): void;
  /** Connections by the nonce that was given on them. */
  readonly byNonce: Map<string, ServerConnection>;
  /** The connection is over, or serves liveness alone; `dropped` is the reason where it never was a rank. */
  closed(connection: ServerConnection, dropped: string | undefined): void;
}

/** The step of a connection: the frame that it is to send next, or `request` once it is a rank. */
export type ConnectionStep = "hello" | "proof" | "join" | "request";

/** A connection to the server. */
export class ServerConnection implements Peer {
  label = "an unknown process";
  readonly #host: ConnectionHost;
  readonly #framed: FramedSocket;
  readonly #deadline: NodeJS.Timeout;
  #step: ConnectionStep = "hello";
  #exchanged: HandshakeData | undefined;
  #incoming: FrameSeal | undefined;
  #outgoing: FrameSeal | undefined;

  constructor(socket: Socket, host: ConnectionHost) {
    this.#host = host;
    socket.unref();
    this.#framed = new FramedSocket(socket, limits.handshakeFrameBytes, {
      frame: (frame) => this.#frame(frame),
      ended: (reason) => this.#ended(reason),
    });
    this.#deadline = setTimeout(() => this.drop("handshake deadline"), host.handshakeMs).unref();
    host.onStep(this);
  }

  /** The step at which it is. */
  get step(): ConnectionStep {
    return this.#step;
  }

  send(reply: Reply): void {
    if (this.#outgoing !== undefined) this.#framed.write(this.#outgoing.seal(encodeReply(reply)));
  }

  /** Ends a connection that is not yet a rank. */
  drop(why: string): void {
    this.#framed.destroy();
    this.#close(why);
  }

  /** Sends the end of the store to the rank, and ends the connection. */
  finish(reason: string): void {
    clearTimeout(this.#deadline);
    this.send({ kind: "closing", reason });
    this.#framed.finish();
  }

  #frame(frame: Buffer): void {
    switch (this.#step) {
      case "hello":
        this.#hello(frame);
        return;
      case "proof":
        this.#proof(frame);
        return;
      case "join":
        this.#proven(this.#opened(frame));
        return;
      case "request":
        this.#request(this.#opened(frame));
        return;
    }
  }

  #hello(frame: Buffer): void {
    const nonce = freshNonce();
    this.#exchanged = { hello: decodeHello(frame), nonce };
    this.#host.byNonce.set(nonceKey(nonce), this);
    this.#next("proof");
    this.#framed.write(encodeChallenge(nonce));
  }

  #proof(frame: Buffer): void {
    const exchanged = this.#exchanged as HandshakeData;
    const { secret } = this.#host;
    if (!isProof(frame, "rank", secret, exchanged)) {
      this.#framed.write(refusal);
      this.#framed.finish();
      this.#close("wrong proof");
      return;
    }
    this.#framed.write(encodeProof("store", secret, exchanged));
    this.#incoming = new FrameSeal("rank", secret, exchanged);
    this.#outgoing = new FrameSeal("store", secret, exchanged);
    this.#framed.maxBytes = requestFrameBytes;
    this.#next("join");
  }

  #proven(request: Request): void {
    if (request.kind === "join") this.#join(request);
    else if (request.kind === "liveness") this.#linkLiveness(request.nonce);
    else throw new WireError(`${request.kind} before join`);
  }

  #linkLiveness(nonce: Uint8Array): void {
    const spoken = this.#host.byNonce.get(nonceKey(nonce));
    if (spoken === undefined || spoken === this) throw new WireError("liveness of no connection");
    linkLiveness(this.#framed, spoken.#framed);
    this.#close(undefined);
  }

  #join(request: Extract<Request, { kind: "join" }>): void {
    const { jobId, rank } = (this.#exchanged as HandshakeData).hello;
    clearTimeout(this.#deadline);
    this.label = request.label;
    this.#next("request");
    if (this.#host.store.join(this, jobId, rank, request)) return;
    this.#framed.finish();
    this.#close("refused to join");
  }

  #request(request: Request): void {
    if (request.kind === "join" || request.kind === "liveness") {
      throw new WireError(`${request.kind} after join`);
    }
    if (request.kind !== "leave") {
      this.#host.store.request(this, request);
      return;
    }
    this.send({ kind: "bye" });
    this.#framed.finish();
    this.#host.store.gone(this, "left", "");
    this.#close(undefined);
  }

  #opened(frame: Buffer): Request {
    const body = this.#incoming?.open(frame);
    if (body === undefined) throw new WireError("a frame that is not authentic");
    return decodeRequest(body);
  }

  #ended(reason: string): void {
    if (this.#step !== "request") {
      this.#close(reason);
      return;
    }
    this.#host.store.gone(this, "lost", reason);
    this.#close(undefined);
  }

  #next(step: ConnectionStep): void {
    this.#step = step;
    this.#host.onStep(this);
  }

  #close(dropped: string | undefined): void {
    clearTimeout(this.#deadline);
    if (this.#exchanged !== undefined) this.#host.byNonce.delete(nonceKey(this.#exchanged.nonce));
    this.#host.closed(this, dropped);
  }
}

function nonceKey(nonce: Uint8Array): string {
  return Buffer.from(nonce).toString("hex");
}
