/** Bounds on everything a stranger, or a mistaken rank, may send or keep open. */

export const limits = {
  /** Bytes of a frame before its sender has proven the secret. */
  handshakeFrameBytes: 512,
  /** From the connection to the authenticated request to join. */
  handshakeMs: 5_000,
  /** From one attempt to connect to the next one beside it, while none has succeeded. */
  reconnectMs: 250,
  /** Connections at the same step before the join; one more drops the oldest of them. */
  pendingConnections: 64,
  jobIdBytes: 128,
  keyBytes: 256,
  valueBytes: 2 ** 20,
  /** The result of one exchange for each rank. */
  exchangeBytes: 2 ** 24,
  /** All values of one generation together, with their keys and what else it takes to keep them. */
  storeBytes: 2 ** 26,
  /** The memory of a value, beside its bytes and its key's. */
  entryBytes: 128,
  /** Bytes a rank has not yet taken from its connection; more, and it is lost. */
  unsentBytes: 2 ** 27,
  ranks: 2 ** 16,
  /** The waits of one rank at once. */
  barriers: 2 ** 14,
} as const;

/** A frame of a rank: a value and its surroundings. */
export const requestFrameBytes: number = limits.valueBytes + 2 ** 19;

/** A frame of the store: the values of an exchange and their surroundings. */
export const replyFrameBytes: number = limits.exchangeBytes + 2 ** 20;
