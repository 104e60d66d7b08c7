/**
 * Connects a rank to the store: two connections with a handshake each, one for messages and one for liveness, retried until the
 * deadline.
 */
import { createConnection, type Socket } from "node:net";
import { RendezvousError } from "../api/index.ts";
import { pause } from "./async.ts";
import type { JoinArguments } from "./checks.ts";
import { joinStore, RendezvousSession, type StoreConnection } from "./client.ts";
import {
  decodeChallenge,
  encodeHello,
  encodeProof,
  FramedSocket,
  FrameSeal,
  faultOf,
  freshNonce,
  isProof,
  isRefusal,
  linkLiveness,
} from "./connection.ts";
import { type ErrorContext, StillInUseError, signalError, storeError } from "./errors.ts";
import { limits, replyFrameBytes } from "./limits.ts";
import { encodeRequest } from "./protocol.ts";
import type { Membership } from "./rendezvous.ts";

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
}

/** The outcome of an attempt. */
type Outcome = RendezvousSession | ConnectFault;

const firstPauseMs = 10;
const longestPauseMs = 500;

/** A session with the store of the target. */
export async function connectSession(
  target: Target,
  context: ErrorContext,
  deadlineMs: number,
  signal: AbortSignal | undefined,
): Promise<RendezvousSession> {
  const end = performance.now() + deadlineMs;
  let pauseMs = firstPauseMs;
  for (;;) {
    if (isCancelled(signal)) throw signalError("join", context, signal);
    const leftMs = end - performance.now();
    const outcome = await tryConnect(target, context, Math.min(leftMs, limits.handshakeMs), signal);
    if (outcome instanceof RendezvousSession) return outcome;
    if (isCancelled(signal)) throw signalError("join", context, signal);
    if (outcome.final) throw storeError(outcome.reason, finalHint, context);
    if (performance.now() + pauseMs >= end) {
      const what = `no store was reached within ${deadlineMs} ms: ${outcome.reason}`;
      throw storeError(
        what,
        "see whether its host, the launcher or rank 0, runs and listens there",
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
  context: ErrorContext,
  timeoutMs: number,
  signal: AbortSignal | undefined,
): Promise<Outcome> {
  const end = performance.now() + timeoutMs;
  const spoken = await authenticate(target, context, timeoutMs, signal);
  if ("reason" in spoken) return spoken;
  const session = new RendezvousSession(spoken.framed, spoken.incoming, spoken.outgoing);
  const silent = await authenticate(target, context, end - performance.now(), signal);
  if ("reason" in silent) {
    session.destroy();
    return silent;
  }
  const { framed, outgoing } = silent;
  if (spoken.framed.socket.destroyed) {
    framed.destroy();
    return { reason: "the connection ended", final: false };
  }
  framed.write(outgoing.seal(encodeRequest({ kind: "liveness", nonce: spoken.nonce })));
  linkLiveness(framed, spoken.framed);
  return session;
}

/** A connection after the handshake. */
interface AuthenticatedSocket {
  readonly framed: FramedSocket;
  readonly incoming: FrameSeal;
  readonly outgoing: FrameSeal;
  /** The store's. */
  readonly nonce: Uint8Array;
}

function authenticate(
  target: Target,
  context: ErrorContext,
  timeoutMs: number,
  signal: AbortSignal | undefined,
): Promise<AuthenticatedSocket | ConnectFault> {
  return new Promise((resolve) => {
    let framed: FramedSocket | undefined;
    const settle = (outcome: AuthenticatedSocket | ConnectFault): void => {
      clearTimeout(timer);
      signal?.removeEventListener("abort", giveUp);
      stopConnecting();
      if ("reason" in outcome) framed?.destroy();
      resolve(outcome);
    };
    const retry = (reason: string): void => settle({ reason, final: false });
    const giveUp = (): void => retry("given up");
    const timer = setTimeout(() => retry("no answer"), Math.max(timeoutMs, 1));
    signal?.addEventListener("abort", giveUp, { once: true });
    const stopConnecting = connectFirst(
      target,
      (socket) => {
        framed = shakeHands(socket, target.secret, context, settle);
      },
      retry,
    );
  });
}

/**
 * Connects; starts one more connection every `reconnectMs` until the first of them stands, and ends the others. Returns a function
 * that gives up those that do not stand.
 *
 * A system with a full queue of new connections drops connection requests. The sender repeats them after 1, 3 and 7 seconds,
 * which is too rare while strangers fill that queue.
 */
function connectFirst(
  { host, port }: Target,
  connected: (socket: Socket) => void,
  failed: (reason: string) => void,
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
      if (open.delete(socket) && open.size === 0) failed(faultOf(error));
    });
    socket.once("connect", () => {
      if (!open.delete(socket)) return;
      stop();
      connected(socket);
    });
  };
  const timer = setInterval(start, limits.reconnectMs);
  start();
  return stop;
}

/** Runs the handshake: both ends prove that they have the secret. */
function shakeHands(
  socket: Socket,
  secret: string,
  { jobId, rank }: ErrorContext,
  settle: (outcome: AuthenticatedSocket | ConnectFault) => void,
): FramedSocket {
  const never = (reason: string): void => settle({ reason, final: true });
  const hello = { jobId, rank, nonce: freshNonce() };
  let nonce: Uint8Array | undefined;
  const framed = new FramedSocket(socket, limits.handshakeFrameBytes, {
    frame: (frame) => {
      try {
        if (nonce === undefined) {
          nonce = decodeChallenge(frame);
          framed.write(encodeProof("rank", secret, { hello, nonce }));
          return;
        }
        const exchanged = { hello, nonce };
        if (isRefusal(frame)) return never("the store has another secret");
        if (!isProof(frame, "store", secret, exchanged)) {
          return never("what answers does not know the secret");
        }
        framed.maxBytes = replyFrameBytes;
        const incoming = new FrameSeal("store", secret, exchanged);
        settle({ framed, incoming, outgoing: new FrameSeal("rank", secret, exchanged), nonce });
      } catch (error) {
        never(`what answers is no store of this version: ${(error as Error).message}`);
      }
    },
    ended: (reason) => {
      if (/^sent/.test(reason)) never(`what answers is no store: it ${reason}`);
      else settle({ reason, final: false });
    },
  });
  framed.write(encodeHello(hello));
  return framed;
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
