/**
 * The frames of a connection between two ranks: a header, then a payload.
 *
 * A message belongs to a flow: one lane of one call, from one rank to another. Messages of a flow arrive in the order sent.
 */

/** Bytes of a header. */
export const headerBytes = 24;

/** The kinds of frames. */
export const kind = {
  /** The first frame of a connection: the proof that the sender is a rank of the job. */
  hello: 1,
  /** Gives a communicator its number on this connection. */
  name: 2,
  /** A message of a flow. */
  data: 3,
  /** The receiver has taken a message of a flow: the sender gets one credit. */
  credit: 4,
  /** The receiver has ended calls of a communicator: their number in `sequence`, their bytes in `round` (high word) and `total`. */
  ended: 5,
} as const;

/** The numbers of a flow between two ranks of a communicator. */
export interface FlowId {
  /** Twice the number of a call among the collective calls; for messages, one more than twice their number from the sender. */
  readonly sequence: number;
  readonly channel: number;
  readonly round: number;
}

/** A header as an object; fields that a kind does not need are 0. */
export interface Header extends FlowId {
  readonly kind: number;
  /** Number of the communicator on this connection. */
  readonly comm: number;
  /** Bytes that follow. */
  readonly bytes: number;
  /** Bytes of all messages of a flow, where only both ends of it know them: for sends and receives. */
  readonly total: number;
}

/** Writes a header into a buffer. */
export function writeHeader(buffer: Buffer, at: number, header: Header): void {
  buffer.writeUInt32LE(header.bytes, at);
  buffer.writeUInt16LE(header.channel, at + 4);
  buffer[at + 6] = header.kind;
  buffer[at + 7] = 0;
  buffer.writeUInt32LE(header.comm, at + 8);
  buffer.writeUInt32LE(header.sequence >>> 0, at + 12);
  buffer.writeUInt32LE(header.round, at + 16);
  buffer.writeUInt32LE(header.total >>> 0, at + 20);
}

/** Reads the header at the start of `frame`. */
export function readHeader(frame: Buffer): Header {
  return {
    bytes: frame.readUInt32LE(0),
    channel: frame.readUInt16LE(4),
    kind: frame[6] as number,
    comm: frame.readUInt32LE(8),
    sequence: frame.readUInt32LE(12),
    round: frame.readUInt32LE(16),
    total: frame.readUInt32LE(20),
  };
}
