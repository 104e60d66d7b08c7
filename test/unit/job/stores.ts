/** Stores and ranks for tests; everything opened here is closed after the test. */
import { randomBytes } from "node:crypto";
import { type AddressInfo, createConnection, createServer, type Socket } from "node:net";
import { type ConnectionOptions, connect, type TLSSocket } from "node:tls";
import { CommError } from "twinccl";
import { keyIdentity, keyOf, tlsSettings } from "../../../src/job/connection.ts";
import { decode, encode, protocolVersion } from "../../../src/job/frames.ts";
import {
  type Reply,
  type Request,
  requests,
  replies as storeReplies,
  tokenBytes,
} from "../../../src/job/protocol.ts";
import type { JoinOptions, Membership, Rendezvous } from "../../../src/job/rendezvous.ts";
import { StoreServer, type StoreServerOptions } from "../../../src/job/server.ts";
import { tcpRendezvous } from "../../../src/job/tcp-rendezvous.ts";
import { closeAfter } from "../../support/opened.ts";

/** A store outside of the ranks' processes, and its address. */
export interface Place {
  readonly server: StoreServer;
  readonly rendezvous: Rendezvous;
  readonly secret: string;
  readonly jobId: string;
  /** Joins all ranks. */
  joinAll(): Promise<Membership[]>;
  /** Joins one rank. */
  join(rank: number, options?: Partial<JoinOptions>): Promise<Membership>;
}

/** Opens a store for `size` ranks. */
export async function place(
  size: number,
  options: Partial<StoreServerOptions> = {},
): Promise<Place> {
  const secret = randomBytes(32).toString("hex");
  const jobId = "test-job";
  const server = await StoreServer.listen({ jobId, size, hosted: false, secret, ...options });
  closeAfter(() => server.close());
  const rendezvous = tcpRendezvous({ port: server.port, secret, host: "other" });
  const join = async (rank: number, more: Partial<JoinOptions> = {}): Promise<Membership> => {
    const membership = await rendezvous.join({ jobId, rank, size, deadlineMs: 5_000, ...more });
    closeAfter(() => membership.leave());
    return membership;
  };
  const joinAll = (): Promise<Membership[]> =>
    Promise.all(Array.from({ length: size }, (_, rank) => join(rank)));
  return { server, rendezvous, secret, jobId, join, joinAll };
}

/** A rank with a connection that the test can cut, as the end of its process would. */
export interface Fragile {
  readonly member: Membership;
  cut(): void;
}

/** Joins all ranks, each through a relay of its own. */
export async function fragile(at: Place, size: number): Promise<Fragile[]> {
  return Promise.all(
    Array.from({ length: size }, async (_, rank): Promise<Fragile> => {
      const { port, cut } = await relay(at.server.port);
      const rendezvous = tcpRendezvous({ port, secret: at.secret, host: "other" });
      const member = await rendezvous.join({ jobId: at.jobId, rank, size });
      return { member, cut };
    }),
  );
}

/** Relays bytes between clients and a port, until it is cut. */
export async function relay(
  target: number | (() => number),
  onBytes: (bytes: Buffer, from: "rank" | "store", socket: Socket) => Buffer = (chunk) => chunk,
): Promise<{ readonly port: number; cut(): void }> {
  const open = new Set<Socket>();
  const server = createServer((near) => {
    const far = createConnection({
      host: "127.0.0.1",
      port: typeof target === "number" ? target : target(),
    });
    for (const socket of [near, far]) {
      open.add(socket.on("error", () => undefined).setNoDelay(true));
    }
    near.on("data", (chunk) => far.write(onBytes(chunk, "rank", far)));
    far.on("data", (chunk) => near.write(onBytes(chunk, "store", near)));
    near.on("close", () => far.destroy());
    far.on("close", () => near.destroy());
  });
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  const cut = (): void => {
    for (const socket of open) socket.destroy();
  };
  closeAfter(async () => {
    cut();
    await new Promise((resolve) => server.close(resolve));
  });
  return { port: (server.address() as AddressInfo).port, cut };
}

/** A connection with TLS to a store, as a stranger or a rank makes it. */
export interface Speaker {
  readonly socket: TLSSocket;
  /** Messages of the store so far. */
  readonly replies: Reply[];
  /** Resolves with the first of them. */
  readonly first: Promise<Reply>;
  /** Resolves when the connection has ended. */
  readonly ended: Promise<void>;
  /** Sends a frame: a message, or text or bytes in its place. */
  send(...frames: readonly (Request | string | Uint8Array)[]): void;
}

/** Opens a connection with the key of a secret; rejects where the handshake fails. */
export async function speaker(
  { port, secret }: { readonly port: number; readonly secret: string },
  options: ConnectionOptions = {},
): Promise<Speaker> {
  const socket = connect({
    ...{ ...tlsSettings, port, host: "127.0.0.1", rejectUnauthorized: true, ca: [] },
    pskCallback: () => ({ psk: keyOf(secret), identity: keyIdentity }),
    ...options,
  });
  closeAfter(async () => void socket.destroy());
  const ended = new Promise<void>((resolve) => socket.once("close", () => resolve()));
  await new Promise<void>((resolve, reject) => {
    socket.once("secureConnect", resolve).once("error", reject);
    socket.once("close", () => reject(new Error("closed")));
  });
  const replies: Reply[] = [];
  let onFirst = (_: Reply): void => undefined;
  const first = new Promise<Reply>((resolve) => {
    onFirst = resolve;
  });
  let rest = Buffer.alloc(0);
  socket
    .on("error", () => undefined)
    .on("data", (chunk: Buffer) => {
      rest = Buffer.concat([rest, chunk]);
      while (rest.length >= 4 && rest.length >= 4 + rest.readUInt32BE()) {
        const end = 4 + rest.readUInt32BE();
        replies.push(decode(storeReplies, rest.subarray(4, end)));
        rest = rest.subarray(end);
      }
      if (replies[0] !== undefined) onFirst(replies[0]);
    });
  const send: Speaker["send"] = (...frames) => {
    const parts = frames.map((each) => {
      if (typeof each === "string") return framed(Buffer.from(each));
      return framed(each instanceof Uint8Array ? each : encode(requests, each));
    });
    socket.write(Buffer.concat(parts));
  };
  return { socket, replies, first, ended, send };
}

/** The first frame of a connection for messages. */
export const hello = (token: Uint8Array = randomBytes(tokenBytes)): Request => {
  return { kind: "hello", version: protocolVersion, token };
};

/** The first bytes of a rank: its hello of TLS, with the proof in it. */
export async function helloOf(secret: string): Promise<Buffer> {
  const server = createServer();
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  const said = new Promise<Buffer>((resolve) =>
    server.once("connection", (socket) =>
      socket
        .on("error", () => undefined)
        .once("data", (chunk) => {
          resolve(chunk);
          socket.destroy();
        }),
    ),
  );
  const { port } = server.address() as { port: number };
  await speaker({ port, secret }).catch(() => undefined);
  server.close();
  return said;
}

/** Bytes with their length before them. */
export function framed(payload: Uint8Array): Buffer {
  const head = Buffer.alloc(4);
  head.writeUInt32BE(payload.length);
  return Buffer.concat([head, payload]);
}

/** Bytes of a text, and back. */
export const bytes = (text: string): Uint8Array => new TextEncoder().encode(text);
export const text = (value: Uint8Array): string => new TextDecoder().decode(value);

/** The error that a promise rejects with; a test fails when it does not. */
export async function errorOf(promise: Promise<unknown>): Promise<CommError> {
  const settled = await promise.then(
    (value) => ({ value }),
    (error: unknown) => ({ error }),
  );
  if ("value" in settled) throw new Error(`resolved to ${String(settled.value)}`);
  if (settled.error instanceof CommError) return settled.error;
  throw settled.error;
}
