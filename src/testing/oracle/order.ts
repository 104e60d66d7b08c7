/** Sums in the order that an explanation gives as text, such as `((r1 + r2) + r3) + r0`, rounded at every hop. */
import { oracleFinish, oracleJoin } from "./rounding.ts";

/** A range of the output, and its fold as text. */
interface ExplainedChunk {
  readonly offset: number;
  readonly length: number;
  readonly fold: string;
}

/** The bits of the elements of a sum of float32 numbers; `contents` by rank. */
export function sumInOrder(
  chunks: readonly ExplainedChunk[],
  contents: readonly Float32Array<ArrayBuffer>[],
): number[] {
  const bits = contents.map((array) => new Uint32Array(array.buffer, 0, array.length));
  const sums: number[] = [];
  for (const { offset, length, fold } of chunks) {
    for (let at = offset; at < offset + length; at++) {
      const contribution = (rank: number): bigint => BigInt(bits[rank]?.[at] as number);
      const folded = new FoldText(fold, contribution).value();
      const call = { dtype: "float32", op: "sum", ranks: contents.length } as const;
      sums[at] = Number(oracleFinish({ ...call, bits: folded }));
    }
  }
  return sums;
}

/** A sum as text, read from left to right. */
class FoldText {
  readonly #tokens: readonly string[];
  readonly #contribution: (rank: number) => bigint;
  #next = 0;

  constructor(text: string, contribution: (rank: number) => bigint) {
    this.#tokens = text.match(/r\d+|[^\sr]/g) ?? [];
    this.#contribution = contribution;
  }

  /** The bits of a chain of operands, up to its end or the bracket that closes it. */
  value(): bigint {
    let left = this.#operand();
    while (this.#tokens[this.#next] === "+") {
      this.#next++;
      left = oracleJoin({ dtype: "float32", op: "sum", left, right: this.#operand() });
    }
    return left;
  }

  #operand(): bigint {
    const token = this.#tokens[this.#next++] ?? "";
    if (token.startsWith("r")) return this.#contribution(Number(token.slice(1)));
    if (token !== "(") throw new Error(`an operand begins with "${token}"`);
    const inner = this.value();
    if (this.#tokens[this.#next++] !== ")") throw new Error("a bracket is not closed");
    return inner;
  }
}
