/** The store on a TCP port: hosted by the launcher, or by rank 0 when there is none. */
import type { AddressInfo, Socket } from "node:net";
import { createServer, type Server, type TLSSocket } from "node:tls";
import { RendezvousError } from "../api/errors.ts";
import { addressText, isOwnName, numericAddress, requireSecret } from "./checks.ts";
import {
  FramedSocket,
  faultOf,
  isOutOfFiles,
  keyIdentity,
  keyOf,
  linkLiveness,
  outOfFilesHint,
  tlsSettings,
  tune,
} from "./connection.ts";
import { decode, encode, FrameError, protocolVersion, VersionError } from "./frames.ts";
import type { Peer } from "./generation.ts";
import {
  limits,
  type Reply,
  type Request,
  replies,
  requestFrameBytes,
  requests,
} from "./protocol.ts";
import { defaultWaitMs } from "./rendezvous.ts";
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
  /** The secret of the job, which every rank must prove: at least 16 characters that cannot be guessed. */
  readonly secret?: string | undefined;
  /** Longest time from the connection to the request to join (5000). */
  readonly handshakeMs?: number | undefined;
  /** Longest time for the lookup of a name (60000), and the signal that ends it. */
  readonly lookupMs?: number | undefined;
  readonly signal?: AbortSignal | undefined;
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
 * The job is not affected. In each step before the join (no hello of TLS, no proof, no request to join) at most 64 connections are
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
  /** Open connections by the addresses of their ends. */
  readonly #byEnds = new Map<string, ServerConnection>();
  readonly #idle = new Set<() => void>();
  #closed: Promise<void> | undefined;

  private constructor(server: Server, host: string, options: StoreServerOptions) {
    this.#server = server;
    this.host = host;
    this.port = (server.address() as AddressInfo).port;
    this.#store = new Store(options);
    this.#byStep = { hello: new Set(), proof: new Set(), join: new Set(), request: new Set() };
    this.#dropped = new Map();
    const byToken = new Map<string, ServerConnection>();
    // A rank has two of them while it joins.
    const maxPending = Math.max(limits.pendingConnections, 4 * options.size);
    server.on("connection", (socket: Socket) => {
      const name = endsOf(socket);
      const connection = new ServerConnection(socket, {
        store: this.#store,
        handshakeMs: options.handshakeMs ?? limits.handshakeMs,
        onStep: (each) => this.#onStep(each, maxPending),
        byToken,
        closed: (each, dropped) => this.#forget(each, dropped),
      });
      this.#byEnds.set(name, connection);
      socket.once("close", () => {
        if (this.#byEnds.get(name) === connection) this.#byEnds.delete(name);
      });
    });
    server.on("secureConnection", (socket) => {
      const connection = this.#byEnds.get(endsOf(socket));
      // Without a port it has ended.
      if (connection === undefined || socket.remotePort === undefined) socket.destroy();
      else connection.secured(socket);
    });
    server.on("tlsClientError", (error: NodeJS.ErrnoException, socket) => {
      this.#byEnds.get(endsOf(socket))?.refused(error);
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
    const key = keyOf(options.secret ?? "");
    let introduced = (_: Socket): void => undefined;
    const server = createServer({
      ...tlsSettings,
      pskCallback: (socket, identity) => {
        if (identity !== keyIdentity) return null;
        introduced(socket);
        return key;
      },
    });
    try {
      const ip = await numericAddress(host, options.lookupMs ?? defaultWaitMs, options.signal);
      requireSecret(host, ip, options.secret);
      await new Promise<void>((resolve, reject) => {
        server.once("error", reject);
        server.listen({ port, ...(!isOwnName(host, ip) && { host: ip }) }, resolve);
      });
      server.removeAllListeners("error");
      const opened = new StoreServer(server, host, options);
      introduced = (socket) => opened.#byEnds.get(endsOf(socket))?.introduced();
      return opened;
    } catch (error) {
      throw cannotListen(addressText(host, port), options, error);
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

  /** The launcher's news that the process of a rank has ended; `how` in words. */
  ended(rank: number, how: string): void {
    this.#store.ended(rank, how);
  }

  /** Resolves when no rank is connected, or after that time. */
  async whenEmpty(timeoutMs: number): Promise<void> {
    if (this.#byStep.request.size === 0) return;
    await new Promise<void>((resolve) => {
      const wake = (): void => {
        clearTimeout(timer);
        this.#idle.delete(wake);
        resolve();
      };
      const timer = setTimeout(wake, timeoutMs);
      this.#idle.add(wake);
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
  }

  #count(reason: string): void {
    // Reasons are few, but some hold bytes of the sender: the number of reasons is bounded.
    const key = this.#dropped.size < 64 || this.#dropped.has(reason) ? reason : "other";
    this.#dropped.set(key, (this.#dropped.get(key) ?? 0) + 1);
  }
}

function cannotListen(
  address: string,
  { jobId, size, hosted }: StoreServerOptions,
  error: unknown,
): unknown {
  const code = (error as NodeJS.ErrnoException).code;
  if (code === undefined || code.startsWith("ERR_COMM")) return error;
  const why: Record<string, string> = {
    EADDRINUSE:
      "another process listens there; a second rank 0, an earlier run, or another service",
    EADDRNOTAVAIL: "this machine does not have that address",
    EACCES: "this user may not use that port",
  };
  const otherPlace =
    "choose another address or port, the same on every rank: TWINCCL_ADDRESS, TWINCCL_PORT";
  return new RendezvousError(
    {
      headline: `rendezvous at ${address} of job "${jobId}": cannot listen: ${why[code] ?? faultOf(error as NodeJS.ErrnoException)}`,
      hint: isOutOfFiles(code) ? outOfFilesHint : otherPlace,
    },
    { address, size, comm: jobId, ...(hosted && { rank: 0 }), cause: error },
  );
}

/** Distinguishes the open connections of a server. TLS gives a socket of its own for a connection. */
function endsOf({ localAddress, remoteAddress, remotePort }: Socket): string {
  return `${localAddress} ${remoteAddress} ${remotePort}`;
}

/** The server's side of a connection. */
export interface ConnectionHost {
  readonly store: Store;
  readonly handshakeMs: number;
  /** The connection is at its next step, the first or a later one. */
  onStep(connection: ServerConnection): void;
  /** Connections by the token that was given on them. */
  readonly byToken: Map<string, ServerConnection>;
  /** The connection is over, or serves liveness alone; `dropped` is the reason where it never was a rank. */
  closed(connection: ServerConnection, dropped: string | undefined): void;
}

/** The step of a connection: what it is to send next, or `request` once it is a rank. */
export type ConnectionStep = "hello" | "proof" | "join" | "request";

/** A connection to the server. */
export class ServerConnection implements Peer {
  label = "an unknown process";
  readonly #host: ConnectionHost;
  /** The connection below TLS. */
  readonly #socket: Socket;
  #framed: FramedSocket | undefined;
  readonly #deadline: NodeJS.Timeout;
  #step: ConnectionStep = "hello";
  #token: string | undefined;
  #hasLiveness = false;
  #isOver = false;

  constructor(socket: Socket, host: ConnectionHost) {
    this.#host = host;
    this.#socket = socket;
    socket.unref();
    tune(socket);
    // A rank ends by its frames, which have the reason of its end.
    const ended = (reason: string): void => {
      if (this.#step !== "request") this.#close(reason);
    };
    socket.on("error", (error: NodeJS.ErrnoException) => ended(faultOf(error)));
    socket.on("close", () => ended("the connection ended"));
    this.#deadline = setTimeout(() => this.drop("handshake deadline"), host.handshakeMs).unref();
    host.onStep(this);
  }

  /** The step at which it is. */
  get step(): ConnectionStep {
    return this.#step;
  }

  /** The other end has named the key of the store. */
  introduced(): void {
    // TLS examines the proof after this call, within the same turn of the event loop, and reports a wrong one.
    setImmediate(() => {
      if (!this.#isOver && this.#step === "hello") this.#next("proof");
    });
  }

  /** The other end has the key. */
  secured(socket: TLSSocket): void {
    if (this.#isOver) {
      socket.destroy();
      return;
    }
    socket.unref();
    this.#framed = new FramedSocket(socket, limits.firstFrameBytes, {
      frame: (frame) => this.#frame(frame),
      ended: (reason) => this.#ended(reason),
    });
    this.#next("join");
  }

  /** The handshake of TLS has failed. */
  refused({ code }: NodeJS.ErrnoException): void {
    this.drop(code === "ERR_SSL_BINDER_DOES_NOT_VERIFY" ? "wrong key" : (code ?? "no TLS"));
  }

  send(reply: Reply): void {
    this.#framed?.write(encode(replies, reply));
  }

  /** Ends a connection that is not yet a rank. */
  drop(why: string): void {
    this.#close(why);
    this.#framed?.destroy();
    this.#socket.destroy();
  }

  /** Sends the end of the store to the rank, and ends the connection. */
  finish(reason: string): void {
    clearTimeout(this.#deadline);
    this.send({ kind: "closing", reason });
    this.#framed?.finish();
  }

  #frame(frame: Buffer): void {
    try {
      this.#request(decode(requests, frame));
    } catch (error) {
      // The other end gets the version of this one, and refuses it by name.
      if (error instanceof VersionError) this.#welcome();
      throw error;
    }
  }

  #welcome(): void {
    this.send({ kind: "welcome", version: protocolVersion });
  }

  #request(request: Request): void {
    switch (request.kind) {
      case "hello":
        this.#hello(request);
        return;
      case "liveness":
        this.#linkLiveness(request);
        return;
      case "join":
        this.#join(request);
        return;
      case "leave":
        this.#expect(request, "request");
        this.send({ kind: "bye" });
        this.#framed?.finish();
        this.#host.store.gone(this, "left", "", request.status);
        this.#close(undefined);
        return;
      default:
        this.#expect(request, "request");
        this.#host.store.request(this, request);
        return;
    }
  }

  #hello({ token }: Extract<Request, { kind: "hello" }>): void {
    if (this.#token !== undefined) throw new FrameError("a second hello");
    const key = tokenKey(token);
    if (this.#host.byToken.has(key)) throw new FrameError("a token that is in use");
    this.#token = key;
    this.#host.byToken.set(key, this);
    this.#welcome();
  }

  #linkLiveness({ token }: Extract<Request, { kind: "liveness" }>): void {
    const other = this.#host.byToken.get(tokenKey(token));
    const isFirst = this.#step === "join" && this.#token === undefined;
    const spoken = other === undefined ? undefined : other.#framed;
    if (other === undefined || spoken === undefined || this.#framed === undefined || !isFirst)
      throw new FrameError("liveness of no connection");
    if (other.#hasLiveness) throw new FrameError("a second liveness");
    other.#hasLiveness = true;
    linkLiveness(this.#framed, spoken);
    this.#close(undefined);
  }

  #join(request: Extract<Request, { kind: "join" }>): void {
    if (this.#token === undefined) throw new FrameError("join before hello");
    this.#expect(request, "join");
    clearTimeout(this.#deadline);
    this.label = request.label;
    this.#next("request");
    if (this.#framed !== undefined) this.#framed.maxBytes = requestFrameBytes;
    if (this.#host.store.join(this, request)) return;
    this.#framed?.finish();
    this.#close("refused to join");
  }

  #expect({ kind }: Request, step: "join" | "request"): void {
    if (this.#step === step) return;
    throw new FrameError(`${kind} ${step === "join" ? "after" : "before"} join`);
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
    if (this.#isOver) return;
    this.#isOver = true;
    clearTimeout(this.#deadline);
    if (this.#token !== undefined) this.#host.byToken.delete(this.#token);
    this.#host.closed(this, dropped);
  }
}

function tokenKey(token: Uint8Array): string {
  return Buffer.from(token).toString("base64");
}
