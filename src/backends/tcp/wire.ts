/**
 * The frames of a connection between two ranks: a header, then a payload.
 *
 * A message belongs to a flow: one lane of one round of a call, from one rank to another. Messages of a flow arrive in the order sent.
 */

/** Bytes of a header: a payload behind it is aligned for every dtype. */
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
  readonly lane: number;
  readonly round: number;
}

/** The place of a message. */
export interface Message extends FlowId {
  /** Bytes of all messages of a flow, where only both ends of it know them: for sends and receives. */
  readonly total: number;
}

/** A header as an object; fields that a kind does not need are 0. */
export interface Header extends Message {
  readonly kind: number;
  /** Number of the communicator on this connection. */
  readonly comm: number;
  /** Bytes that follow. */
  readonly bytes: number;
}

/** Writes a header at the start of `frame`. */
export function writeHeader(frame: Buffer, header: Header): void {
  frame.writeUInt32LE(header.bytes, 0);
  frame.writeUInt16LE(header.lane, 4);
  frame[6] = header.kind;
  frame[7] = 0;
  frame.writeUInt32LE(header.comm, 8);
  frame.writeUInt32LE(header.sequence >>> 0, 12);
  frame.writeUInt32LE(header.round, 16);
  frame.writeUInt32LE(header.total >>> 0, 20);
}

/** Reads the header at the start of `frame`. */
export function readHeader(frame: Buffer): Header {
  return {
    bytes: frame.readUInt32LE(0),
    lane: frame.readUInt16LE(4),
    kind: frame[6] as number,
    comm: frame.readUInt32LE(8),
    sequence: frame.readUInt32LE(12),
    round: frame.readUInt32LE(16),
    total: frame.readUInt32LE(20),
  };
}
