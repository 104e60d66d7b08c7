/** Memory in which native code finds lists. Asking for memory and for its address takes longer than writing a list. */

/** Words of a list that stay in place as long as they are referenced, all zero at first. */
export interface ListPlace {
  readonly words: BigUint64Array;
  readonly address: bigint;
}

/**
 * Lists of a few calls come a hundred to a piece, and one that stays keeps no more than this from being given back.
 *
 * @internal
 */
export const pieceWords = 1024;
/** Longer lists have memory of their own, and leave the piece to others. */
const mostShared = pieceWords / 4;
const wordBytes = 8;

/** Gives places out of pieces; a piece but the newest goes when none of its places is held any more. */
export class ListMemory {
  readonly #addressOf: (memory: ArrayBuffer) => bigint;
  #piece = new ArrayBuffer(0);
  #address = 0n;
  #usedBytes = 0;

  constructor(addressOf: (memory: ArrayBuffer) => bigint) {
    this.#addressOf = addressOf;
  }

  /** A place that was never used. */
  take(words: number): ListPlace {
    // Buffers as such: the words of a small array may lie in memory that moves.
    const bytes = words * wordBytes;
    if (words > mostShared) {
      const own = new ArrayBuffer(bytes);
      return { words: new BigUint64Array(own), address: this.#addressOf(own) };
    }
    if (this.#usedBytes + bytes > this.#piece.byteLength) {
      const piece = new ArrayBuffer(pieceWords * wordBytes);
      this.#address = this.#addressOf(piece);
      this.#piece = piece;
      this.#usedBytes = 0;
    }
    const at = this.#usedBytes;
    this.#usedBytes += bytes;
    return {
      words: new BigUint64Array(this.#piece, at, words),
      address: this.#address + BigInt(at),
    };
  }
}
