/** Blocks of memory for messages: aligned for every dtype, and used again. The blocks of a collective are parts of its buffers. */
import { headerBytes } from "./wire.ts";

/** Memory of one message, behind room for its header. */
export interface MessageBlock {
  readonly memory: ArrayBuffer;
  /** The message: the bytes from `headerBytes` on. */
  readonly bytes: Uint8Array;
}

/** Bytes that are kept for later messages. */
const keptBytes = 8 * 2 ** 20;

const leastBytes = 512;

/** The free message blocks of a process. */
export class MessageBlocks {
  /** Free memory by size, a power of two. */
  readonly #free = new Map<number, ArrayBuffer[]>();
  #freeBytes = 0;

  /** A block of some bytes with any contents. */
  take(byteLength: number): MessageBlock {
    const size = sizeFor(byteLength);
    const memory = this.#free.get(size)?.pop();
    if (memory !== undefined) this.#freeBytes -= size;
    const taken = memory ?? new ArrayBuffer(headerBytes + size);
    return { memory: taken, bytes: new Uint8Array(taken, headerBytes, byteLength) };
  }

  /** Takes a block back. */
  give({ memory }: MessageBlock): void {
    const size = memory.byteLength - headerBytes;
    if (this.#freeBytes + size > keptBytes) return;
    this.#freeBytes += size;
    const same = this.#free.get(size);
    if (same === undefined) this.#free.set(size, [memory]);
    else same.push(memory);
  }
}

function sizeFor(byteLength: number): number {
  return Math.max(leastBytes, 2 ** Math.ceil(Math.log2(Math.max(1, byteLength))));
}
