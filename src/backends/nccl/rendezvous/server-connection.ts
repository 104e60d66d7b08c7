/**
 * One connection as the server sees it: a stranger, then a proven rank, which asks to join and is a peer of the store from then
 * on, or says that it stands beside another connection of its rank.
 */
import type { Socket } from "node:net";
import { FramedSocket } from "./framed-socket.ts";
import {
  decodeHello,
  type Exchanged,
  encodeChallenge,
  encodeProof,
  freshNonce,
  isProof,
  refusal,
  Seal,
} from "./handshake.ts";
import { limits, requestFrameBytes } from "./limits.ts";
import { decodeRequest, encodeReply, type Reply, type Request } from "./messages.ts";
import type { Peer } from "./seats.ts";
import { standBeside } from "./silent-connection.ts";
import type { Store } from "./store.ts";
import { WireError } from "./wire.ts";

/** The server's side of a connection. */
export interface ConnectionHost {
  readonly store: Store;
  readonly secret: string;
  readonly handshakeMs: number;
  /** The connection is at its next step, the first or a later one. */
  stepped(connection: ServerConnection): void;
  /** Connections by the nonce that was given on them. */
  readonly given: Map<string, ServerConnection>;
  /** The connection is over, or stands beside another one; `dropped` says why, when it never was a rank. */
  closed(connection: ServerConnection, dropped: string | undefined): void;
}

/** The step of a connection: the frame that it is to send next, or `request` once it is a rank. */
export type Step = "hello" | "proof" | "join" | "request";

/** A connection to the server. */
export class ServerConnection implements Peer {
  label = "an unknown process";
  readonly #host: ConnectionHost;
  readonly #framed: FramedSocket;
  readonly #deadline: NodeJS.Timeout;
  #step: Step = "hello";
  #exchanged: Exchanged | undefined;
  #incoming: Seal | undefined;
  #outgoing: Seal | undefined;

  constructor(socket: Socket, host: ConnectionHost) {
    this.#host = host;
    socket.unref();
    this.#framed = new FramedSocket(socket, limits.handshakeFrameBytes, {
      frame: (frame) => this.#frame(frame),
      ended: (reason) => this.#ended(reason),
    });
    this.#deadline = setTimeout(() => this.drop("handshake deadline"), host.handshakeMs).unref();
    host.stepped(this);
  }

  /** The step at which it is. */
  get step(): Step {
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
    this.#host.given.set(nameOf(nonce), this);
    this.#next("proof");
    this.#framed.write(encodeChallenge(nonce));
  }

  #proof(frame: Buffer): void {
    const exchanged = this.#exchanged as Exchanged;
    const { secret } = this.#host;
    if (!isProof(frame, "rank", secret, exchanged)) {
      this.#framed.write(refusal);
      this.#framed.finish();
      this.#close("wrong proof");
      return;
    }
    this.#framed.write(encodeProof("store", secret, exchanged));
    this.#incoming = new Seal("rank", secret, exchanged);
    this.#outgoing = new Seal("store", secret, exchanged);
    this.#framed.mostBytes = requestFrameBytes;
    this.#next("join");
  }

  #proven(request: Request): void {
    if (request.kind === "join") this.#join(request);
    else if (request.kind === "beside") this.#besideThat(request.nonce);
    else throw new WireError(`${request.kind} before join`);
  }

  #besideThat(nonce: Uint8Array): void {
    const spoken = this.#host.given.get(nameOf(nonce));
    if (spoken === undefined || spoken === this) throw new WireError("beside no connection");
    standBeside(this.#framed, spoken.#framed);
    this.#close(undefined);
  }

  #join(request: Extract<Request, { kind: "join" }>): void {
    const { jobId, rank } = (this.#exchanged as Exchanged).hello;
    clearTimeout(this.#deadline);
    this.label = request.label;
    this.#next("request");
    if (this.#host.store.join(this, jobId, rank, request)) return;
    this.#framed.finish();
    this.#close("refused to join");
  }

  #request(request: Request): void {
    if (request.kind === "join" || request.kind === "beside") {
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

  #next(step: Step): void {
    this.#step = step;
    this.#host.stepped(this);
  }

  #close(dropped: string | undefined): void {
    clearTimeout(this.#deadline);
    if (this.#exchanged !== undefined) this.#host.given.delete(nameOf(this.#exchanged.nonce));
    this.#host.closed(this, dropped);
  }
}

function nameOf(nonce: Uint8Array): string {
  return Buffer.from(nonce).toString("hex");
}
