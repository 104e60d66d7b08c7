/** Limits on data and connections of strangers and of faulty ranks. */
import { base64Bytes } from "./frames.ts";

export const limits = {
  /** Bytes of a frame of a rank before it has joined. */
  firstFrameBytes: 4_096,
  /** Longest time from the connection to the authenticated request to join. */
  handshakeMs: 5_000,
  /** Time between parallel attempts to connect. */
  reconnectMs: 250,
  /** Connections at the same step before the join; one more drops the oldest of them. */
  pendingConnections: 64,
  jobIdBytes: 128,
  keyBytes: 256,
  valueBytes: 2 ** 20,
  /** The result of one exchange for each rank. */
  exchangeBytes: 2 ** 24,
  /** All values of one generation, with their keys and overhead. */
  storeBytes: 2 ** 26,
  /** Overhead of a value, beside its own and its key's bytes. */
  entryBytes: 128,
  /** Most unread bytes of a rank's connection; a rank with more is lost. */
  unsentBytes: 2 ** 27,
  ranks: 2 ** 16,
  /** The waits of one rank at once. */
  barriers: 2 ** 14,
} as const;

/** Most bytes of a rank's frame: a value as base64 and its other fields. */
export const requestFrameBytes: number = base64Bytes(limits.valueBytes) + 2 ** 20;

/** Most bytes of a store's frame: the values of an exchange as base64 and its other fields. */
export const replyFrameBytes: number = base64Bytes(limits.exchangeBytes) + 2 ** 21;
