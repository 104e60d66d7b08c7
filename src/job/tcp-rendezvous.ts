/**
 * The rendezvous over TCP, and the connections of a rank to the store: one for messages and one for liveness, with TLS, retried
 * until the deadline.
 */
import { randomBytes } from "node:crypto";
import { createConnection, type Socket } from "node:net";
import { connect as connectTls, type TLSSocket } from "node:tls";
import { RendezvousError } from "../api/errors.ts";
import { pause } from "./async.ts";
import {
  addressText,
  isLoopback,
  type JoinArguments,
  joinArguments,
  numericAddress,
  requireSecret,
  shortText,
  wholeNumber,
} from "./checks.ts";
import { RendezvousSession } from "./client.ts";
import {
  clientSettings,
  FramedSocket,
  faultOf,
  isOutOfFiles,
  keyIdentity,
  keyOf,
  linkLiveness,
  outOfFilesHint,
  tune,
  unknownKey,
} from "./connection.ts";
import { decode, encode, FrameError, protocolVersion, VersionError } from "./frames.ts";
import { joinStore, type StoreConnection } from "./membership.ts";
import {
  type ErrorContext,
  limits,
  replies,
  replyFrameBytes,
  requests,
  StillInUseError,
  signalError,
  storeError,
  tokenBytes,
} from "./protocol.ts";
import type { Membership, Rendezvous } from "./rendezvous.ts";
import { hostLingersMs, StoreServer, type StoreServerOptions } from "./server.ts";

/** Where the store is. */
export interface TcpRendezvousOptions {
  /** Host name or address, the same on every rank (127.0.0.1). Anything but loopback needs a secret. */
  readonly address?: string | undefined;
  readonly port: number;
  /** At least 16 characters that cannot be guessed, the same on every rank. */
  readonly secret?: string | undefined;
  /** The host of the store: the process of rank 0 (the default), or another one, such as the launcher. */
  readonly host?: "rank 0" | "other" | undefined;
}

/**
 * A rendezvous at a TCP port.
 *
 * Rank and store prove to each other that they have the secret before any other message; TLS encrypts what follows. Without a
 * secret, which only a loopback address allows, every process on this machine can join.
 *
 * A store hosted by rank 0 ends with the process of rank 0: then no rank can rejoin.
 *
 * @throws InvalidArgumentError for a port that is none. `join` too: for a secret that is missing or short.
 */
export function tcpRendezvous(options: TcpRendezvousOptions): Rendezvous {
  const host = shortText("tcpRendezvous", "address", options.address ?? "127.0.0.1", 253);
  const port = wholeNumber("tcpRendezvous", "port", options.port, 1, 65_535);
  const { secret } = options;
  const address = addressText(host, port);
  return {
    address,
    async join(joinOptions) {
      const args = joinArguments(joinOptions);
      const { jobId, rank, size } = args;
      const context = { address, jobId, rank, size };
      const server =
        rank === 0 && options.host !== "other"
          ? await hostStore({ address: host, port, secret }, args, context)
          : undefined;
      try {
        const target = { host, port, secret: secret ?? "" };
        const left = async (): Promise<void> => {
          await server?.whenEmpty(hostLingersMs);
          await server?.close();
        };
        return await joinWithRetry({ address, jobId, left }, args, (leftMs) =>
          connectSession(target, context, { ...args, deadlineMs: leftMs }),
        );
      } catch (error) {
        await server?.close();
        throw error;
      }
    },
  };
}

/** The store of rank 0, within the bounds of its join. */
export async function hostStore(
  place: Pick<StoreServerOptions, "address" | "port" | "secret">,
  { jobId, size, deadlineMs, signal }: JoinArguments,
  context: ErrorContext,
): Promise<StoreServer> {
  const job = { jobId, size, hosted: true };
  try {
    return await StoreServer.listen({ ...place, ...job, lookupMs: deadlineMs, signal });
  } catch (error) {
    throw isCancelled(signal) ? signalError("join", context, signal) : error;
  }
}

/** A rank does not talk to a network without a secret either. A name that cannot be found yet is tried again later. */
async function refuseOpenNetwork(
  { host, secret }: Target,
  timeoutMs: number,
  signal: AbortSignal | undefined,
): Promise<void> {
  const found = secret === "" ? numericAddress(host, timeoutMs, signal) : Promise.resolve("");
  const ip = await found.catch(() => undefined);
  if (ip !== undefined) requireSecret(host, ip, secret);
}

/** The address of the store, and the secret. */
interface Target {
  readonly host: string;
  readonly port: number;
  readonly secret: string;
}

/** The reason of a failed attempt; a final one is not retried. */
interface ConnectFault {
  readonly reason: string;
  readonly final: boolean;
  /** The next step, where this process is at fault. */
  readonly hint?: string | undefined;
}

/** The outcome of an attempt. */
type Outcome = RendezvousSession | ConnectFault;

const firstPauseMs = 10;
const longestPauseMs = 500;

/** A session with the store of the target. */
export async function connectSession(
  target: Target,
  context: ErrorContext,
  { deadlineMs, limitMs, signal }: Pick<JoinArguments, "deadlineMs" | "limitMs" | "signal">,
): Promise<RendezvousSession> {
  const end = performance.now() + deadlineMs;
  await refuseOpenNetwork(target, deadlineMs, signal);
  let pauseMs = firstPauseMs;
  for (;;) {
    if (isCancelled(signal)) throw signalError("join", context, signal);
    const leftMs = end - performance.now();
    const outcome = await tryConnect(target, Math.min(leftMs, limits.handshakeMs), signal);
    if (outcome instanceof RendezvousSession) return outcome;
    if (isCancelled(signal)) throw signalError("join", context, signal);
    if (outcome.final) throw storeError(outcome.reason, outcome.hint ?? finalHint, context);
    if (performance.now() + pauseMs >= end) {
      const what = `no store was reached within ${limitMs} ms: ${outcome.reason}`;
      throw storeError(
        what,
        "see whether its host, the launcher or rank 0, runs, listens there, and can open more files (ulimit -n)",
        context,
      );
    }
    await pause(pauseMs, signal);
    pauseMs = Math.min(2 * pauseMs, longestPauseMs);
  }
}

function isCancelled(signal: AbortSignal | undefined): signal is AbortSignal {
  return signal?.aborted === true;
}

const finalHint =
  "give every rank the same TWINCCL_SECRET, and see whether another service has this port";

/** One attempt. */
export async function tryConnect(
  target: Target,
  timeoutMs: number,
  signal: AbortSignal | undefined,
): Promise<Outcome> {
  const end = performance.now() + timeoutMs;
  const token = randomBytes(tokenBytes);
  const spoken = await attempt(target, timeoutMs, signal, (socket, settle) =>
    greet(socket, token, settle),
  );
  if ("reason" in spoken) return spoken;
  const session = new RendezvousSession(spoken);
  const silent = await attempt(target, end - performance.now(), signal, frame);
  if ("reason" in silent) {
    session.destroy();
    return silent;
  }
  if (spoken.socket.destroyed) {
    silent.destroy();
    return { reason: "the connection ended", final: false };
  }
  silent.write(encode(requests, { kind: "liveness", version: protocolVersion, token }));
  linkLiveness(silent, spoken);
  return session;
}

/** Ends an attempt. */
type Settle = (outcome: FramedSocket | ConnectFault) => void;

/** Opens a connection with TLS; `then` has it from there, and settles the attempt. */
function attempt(
  target: Target,
  timeoutMs: number,
  signal: AbortSignal | undefined,
  then: (socket: TLSSocket, settle: Settle) => void,
): Promise<FramedSocket | ConnectFault> {
  return new Promise((resolve) => {
    let secured: TLSSocket | undefined;
    const settle: Settle = (outcome) => {
      clearTimeout(timer);
      signal?.removeEventListener("abort", giveUp);
      stopConnecting();
      if ("reason" in outcome) secured?.destroy();
      resolve(outcome);
    };
    const retry = (reason: string): void => settle({ reason, final: false });
    const giveUp = (): void => retry("given up");
    const timer = setTimeout(() => retry("no answer"), Math.max(timeoutMs, 1));
    signal?.addEventListener("abort", giveUp, { once: true });
    const stopConnecting = connectFirst(
      target,
      (socket) => {
        secured = secure(socket, target.secret, settle, then);
      },
      settle,
    );
    // It may have fired between two attempts.
    if (isCancelled(signal)) giveUp();
  });
}

/** Runs the handshake of TLS: both ends prove that they have the key. */
function secure(
  socket: Socket,
  secret: string,
  settle: Settle,
  then: (socket: TLSSocket, settle: Settle) => void,
): TLSSocket {
  tune(socket);
  const secured = connectTls({
    ...{ ...clientSettings, socket },
    pskCallback: () => ({ psk: keyOf(secret), identity: keyIdentity }),
  });
  const failed = (error: NodeJS.ErrnoException): void => settle(handshakeFault(error));
  const ended = (): void => settle({ reason: "the connection ended", final: false });
  secured.once("error", failed).once("close", ended);
  secured.once("secureConnect", () => {
    secured.off("close", ended).off("error", failed);
    // TLS counts a pre-shared key as a resumed session.
    if (secured.isSessionReused()) then(secured, settle);
    else settle({ reason: unknownKey, final: true });
  });
  return secured;
}

function handshakeFault(error: NodeJS.ErrnoException): ConnectFault {
  const { code = "" } = error;
  // The other end ended the handshake with an alert.
  if (code.startsWith("ERR_SSL_") && code.includes("ALERT"))
    return { reason: `the store has another secret, or another version (${code})`, final: true };
  if (code.startsWith("ERR_SSL_"))
    return { reason: `what answers is no store of this version (${code})`, final: true };
  if (code === "ECONNRESET") return { reason: faultOf(error), final: false };
  if (code.startsWith("E") && !code.startsWith("ERR_"))
    return { reason: faultOf(error), final: false };
  return { reason: unknownKey, final: true };
}

/** A connection without a word: its attempt has succeeded. */
function frame(socket: TLSSocket, settle: Settle): void {
  const nothing = { frame: () => undefined, ended: () => undefined };
  settle(new FramedSocket(socket, limits.firstFrameBytes, nothing));
}

/** Sends the hello of a connection for messages, and waits for the store's welcome. */
function greet(socket: TLSSocket, token: Uint8Array, settle: Settle): void {
  const never = (reason: string): void => settle({ reason, final: true });
  const framed = new FramedSocket(socket, limits.firstFrameBytes, {
    frame: (bytes) => {
      try {
        const { kind } = decode(replies, bytes);
        if (kind !== "welcome") throw new FrameError(`${kind} in place of welcome`);
        framed.maxBytes = replyFrameBytes;
        settle(framed);
      } catch (error) {
        never(
          error instanceof VersionError
            ? `the store speaks ${error.message}: give every process the same twinccl`
            : `what answers is no store of this version: ${(error as Error).message}`,
        );
      }
    },
    ended: (reason) => {
      if (/^sent/.test(reason)) never(`what answers is no store: it ${reason}`);
      else settle({ reason, final: false });
    },
  });
  framed.write(encode(requests, { kind: "hello", version: protocolVersion, token }));
}

/**
 * Connects; starts one more connection every `reconnectMs` until the first of them stands, and ends the others. Returns a function
 * that gives up those that do not stand.
 *
 * A system with a full queue of new connections drops connection requests. The sender repeats them after 1, 3 and 7 seconds,
 * which is too rare while strangers fill that queue.
 */
function connectFirst(
  { host, port, secret }: Target,
  connected: (socket: Socket) => void,
  failed: (fault: ConnectFault) => void,
): () => void {
  const open = new Set<Socket>();
  const stop = (): void => {
    clearInterval(timer);
    for (const socket of open) socket.destroy();
    open.clear();
  };
  const start = (): void => {
    const socket = createConnection({ host, port });
    open.add(socket);
    socket.once("error", (error: NodeJS.ErrnoException) => {
      if (!open.delete(socket)) return;
      const reason = faultOf(error);
      if (isOutOfFiles(error.code)) failed({ reason, final: true, hint: outOfFilesHint });
      else if (open.size === 0) failed({ reason, final: false });
    });
    socket.once("connect", () => {
      if (!open.delete(socket)) return;
      stop();
      // The name may have another address than before.
      const { remoteAddress = "" } = socket;
      if (secret !== "" || isLoopback(remoteAddress)) connected(socket);
      else {
        socket.destroy();
        const reason = `without a secret only a loopback address is allowed, and ${remoteAddress} is none`;
        failed({ reason, final: false });
      }
    });
  };
  const timer = setInterval(start, limits.reconnectMs);
  start();
  return stop;
}

const firstRetryMs = 10;
const longestRetryMs = 500;

/**
 * Joins. Retries until the deadline while other ranks have not left the last generation, and when the connection ends before
 * the store has answered.
 *
 * @param reach Gives a session with the store, within that many milliseconds: of another store once the first is gone.
 */
export async function joinWithRetry(
  place: Omit<StoreConnection, "session">,
  args: JoinArguments,
  reach: (deadlineMs: number) => Promise<RendezvousSession>,
): Promise<Membership> {
  const end = performance.now() + args.deadlineMs;
  const leftMs = (): number => Math.max(0, Math.round(end - performance.now()));
  let refusal: unknown;
  for (let pauseMs = firstRetryMs; ; pauseMs = Math.min(2 * pauseMs, longestRetryMs)) {
    const reachMs = leftMs();
    const session = await reach(reachMs).catch((error: unknown) => {
      // With hardly any time left the earlier refusal is the better error.
      throw reachMs < longestRetryMs && error instanceof RendezvousError
        ? (refusal ?? error)
        : error;
    });
    try {
      return await joinStore({ ...place, session }, { ...args, deadlineMs: leftMs() });
    } catch (error) {
      const mayReturn = error instanceof StillInUseError || session.hasEnded;
      session.destroy();
      if (!mayReturn || leftMs() <= pauseMs) throw error;
      refusal = error;
    }
    await pause(pauseMs, args.signal);
  }
}
