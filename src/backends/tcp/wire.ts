/**
 * The frames of a connection between two ranks: a header, then a payload.
 *
 * A message belongs to a flow: one lane of one round of a call, from one rank to another. Messages of a flow arrive in the order sent.
 */

import { createHash } from "node:crypto";

/** Bytes of a header: a payload behind it is aligned for every dtype. */
export const headerBytes = 32;

/** The kinds of frames. */
export const kind = {
  /** The first frame of a connection: the proof that the sender is a rank of the job. */
  hello: 1,
  /** A message of a flow. */
  data: 2,
  /** The receiver has taken a message of a flow: the sender gets one credit. */
  credit: 3,
  /** The receiver has ended calls of a communicator: their number in `sequence`, their bytes in `total`. */
  ended: 4,
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
  /** Bytes of all messages of a flow, for sends and receives, whose ends alone have the length; 0 for collective calls. */
  readonly total: number;
}

/** A header as an object; fields that a kind does not need are 0. */
export interface Header extends Message {
  readonly kind: number;
  /** `commNumber` of the communicator. */
  readonly comm: number;
  /** Bytes that follow. */
  readonly bytes: number;
}

/**
 * The number of a communicator by its key, alike on all ranks: 48 bits of a hash. Of 1,000 communicators two have the same
 * with a probability below 1e-8; the later one is then refused.
 */
export function commNumber(key: string): number {
  return createHash("sha256").update(key).digest().readUIntLE(0, 6);
}

/** Writes a header at the start of `frame`. */
export function writeHeader(frame: Buffer, header: Header): void {
  frame.writeUInt32LE(header.bytes, 0);
  frame.writeUInt32LE(header.sequence, 4);
  frame.writeUInt32LE(header.round, 8);
  frame.writeUInt16LE(header.lane, 12);
  frame.writeUInt16LE(header.kind, 14);
  frame.writeUIntLE(header.comm, 16, 6);
  frame.writeUIntLE(header.total, 24, 6);
}

/** Reads the header at the start of `frame`. */
export function readHeader(frame: Buffer): Header {
  return {
    bytes: frame.readUInt32LE(0),
    sequence: frame.readUInt32LE(4),
    round: frame.readUInt32LE(8),
    lane: frame.readUInt16LE(12),
    kind: frame.readUInt16LE(14),
    comm: frame.readUIntLE(16, 6),
    total: frame.readUIntLE(24, 6),
  };
}
