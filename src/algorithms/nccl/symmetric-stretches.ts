/**
 * How the direct symmetric all-reduce deals the buffer to the ranks.
 *
 * Most of it goes out in stretches, long ones first, one to each rank in turn; a stretch is folded by its rank, which
 * begins with its own contribution. What is left at both ends goes out in runs of 32 elements.
 */

/** Elements that begin their fold at one rank. */
export interface Stretch {
  readonly offset: number;
  readonly length: number;
  /** The rank that folds them, and begins with itself. */
  readonly first: number;
}

/** The call as far as its stretches depend on it. */
export interface StretchQuestion {
  readonly ranks: number;
  readonly blocks: number;
  readonly count: number;
  readonly elementBytes: number;
  /** Bytes from the start of its window to each buffer. */
  readonly sendOffset: number;
  readonly recvOffset: number;
}

/** Bytes of the stretches of both stages; four of them are dealt at a time. */
const spans = [2048, 512] as const;
const together = 4;
const runElements = 32;

/** The stretches of a call, in the order of their elements. */
export function stretchesOf(question: StretchQuestion): Stretch[] {
  const { ranks, blocks, count, elementBytes, sendOffset } = question;
  const bytes = count * elementBytes;
  const prefix = Math.min((16 - (sendOffset % 16)) % 16, bytes);
  const dealt: Stretch[] = [];
  let at = prefix;
  for (const span of spans) {
    if (!stageRuns(span, question)) continue;
    let quads = Math.floor((bytes - at) / (together * span));
    quads -= quads % (ranks * blocks);
    for (let number = 0; number < together * quads; number++, at += span) {
      const offset = at / elementBytes;
      dealt.push({ offset, length: span / elementBytes, first: number % ranks });
    }
  }
  const head = prefix / elementBytes;
  const tail = at / elementBytes;
  return [...runs(0, head, 0, ranks), ...dealt, ...runs(tail, count, head, ranks)];
}

/** The wide stage moves packs of 16 bytes on both sides, the narrow one words of 4. */
function stageRuns(
  span: (typeof spans)[number],
  { elementBytes, sendOffset, recvOffset }: StretchQuestion,
): boolean {
  if (span === 2048) return sendOffset % 16 === recvOffset % 16;
  return elementBytes === 4 || sendOffset % 4 === recvOffset % 4;
}

/** Elements `from` to `to` as runs; `number` of the left-over elements lie before them. */
function runs(from: number, to: number, number: number, ranks: number): Stretch[] {
  const found: Stretch[] = [];
  for (let offset = from, index = number; offset < to; ) {
    const length = Math.min(runElements - (index % runElements), to - offset);
    found.push({ offset, length, first: Math.floor(index / runElements) % ranks });
    offset += length;
    index += length;
  }
  return found;
}
