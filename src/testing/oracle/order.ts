/**
 * Reductions in the order that an explanation gives as text, such as `((r1 + r2) + r3) + r0`, rounded at every hop.
 *
 * The text leaves one thing open: whether the product with a scalar and the sum of a hop are rounded together or one after the
 * other. Both are admitted at each hop.
 */
import {
  type OracleDType,
  type OracleOp,
  oracleFinish,
  oracleFold,
  oracleJoin,
} from "./rounding.ts";

/** A range of the output, and its fold as text. */
export interface ExplainedChunk {
  readonly offset: number;
  readonly length: number;
  readonly fold: string;
}

/** A reduction, with the bits of the elements of the output's block by rank. */
export interface ExplainedFold {
  readonly dtype: OracleDType;
  readonly op: OracleOp;
  readonly chunks: readonly ExplainedChunk[];
  readonly contents: readonly (readonly bigint[])[];
}

/** The admitted bits of every element of the output; a NaN is the canonical one. */
export function bitsInOrder({ dtype, op, chunks, contents }: ExplainedFold): ReadonlySet<bigint>[] {
  const ranks = contents.length;
  const results: ReadonlySet<bigint>[] = [];
  for (const { offset, length, fold } of chunks) {
    for (let at = offset; at < offset + length; at++) {
      const contributions = contents.map((bits) => bits[at] as bigint);
      const partials = new FoldText(fold, { dtype, op, contributions }).result();
      results[at] = mapped(partials, (bits) => oracleFinish({ dtype, op, ranks, bits }));
    }
  }
  return results;
}

/** The bits of the elements of a sum of float32 numbers; `contents` by rank. */
export function sumInOrder(
  chunks: readonly ExplainedChunk[],
  contents: readonly Float32Array<ArrayBuffer>[],
): number[] {
  const bits = contents.map((array) =>
    Array.from(new Uint32Array(array.buffer, 0, array.length), BigInt),
  );
  const sums = bitsInOrder({ dtype: "float32", op: "sum", chunks, contents: bits });
  // A sum without a scalar has one result.
  return sums.map(([only]) => Number(only));
}

interface Element extends Pick<ExplainedFold, "dtype" | "op"> {
  /** Bits by rank. */
  readonly contributions: readonly bigint[];
}

/** A rank's contribution, or the bits that a partial may have. */
type Operand = number | ReadonlySet<bigint>;

/** A fold as text, read from left to right. */
class FoldText {
  readonly #text: string;
  readonly #tokens: readonly string[];
  readonly #element: Element;
  readonly #sign: string;
  #next = 0;

  constructor(text: string, element: Element) {
    this.#text = text;
    this.#tokens = text.match(/r\d+|\S/g) ?? [];
    this.#element = element;
    this.#sign = element.op === "prod" ? "×" : "+";
  }

  /** The bits of the whole text. */
  result(): ReadonlySet<bigint> {
    const bits = this.#chain();
    if (this.#next < this.#tokens.length) throw this.#fault(`"${this.#sign}", or its end`);
    return bits;
  }

  /** The bits of a chain of operands, up to its end or the bracket that closes it. */
  #chain(): ReadonlySet<bigint> {
    const first = this.#operand();
    let left = typeof first === "number" ? new Set([this.#hop(first)]) : first;
    while (this.#tokens[this.#next] === this.#sign) {
      this.#next++;
      left = this.#joined(left, this.#operand());
    }
    return left;
  }

  #joined(left: ReadonlySet<bigint>, right: Operand): ReadonlySet<bigint> {
    const { dtype, op } = this.#element;
    const found = new Set<bigint>();
    for (const begin of left) {
      if (typeof right === "number") {
        found.add(this.#hop(right, begin)).add(this.#hop(right, begin, "fused"));
      } else
        for (const bits of right) found.add(oracleJoin({ dtype, op, left: begin, right: bits }));
    }
    return found;
  }

  /** A rank's contribution, folded into a partial where there is one. */
  #hop(rank: number, begin?: bigint, rounding: "fused" | "separate" = "separate"): bigint {
    const { dtype, op, contributions: all } = this.#element;
    const contributions = [all[rank] as bigint];
    const call = { dtype, op, ranks: all.length, rounding, contributions, finish: false };
    return oracleFold(begin === undefined ? call : { ...call, begin });
  }

  #operand(): Operand {
    const token = this.#tokens[this.#next] ?? "";
    const rank = Number(/^r(\d+)$/.exec(token)?.[1]);
    if (rank < this.#element.contributions.length) {
      this.#next++;
      return rank;
    }
    if (token !== "(") throw this.#fault("a rank or a bracket");
    this.#next++;
    const inner = this.#chain();
    if (this.#tokens[this.#next] !== ")") throw this.#fault(`"${this.#sign}" or ")"`);
    this.#next++;
    return inner;
  }

  #fault(needed: string): Error {
    const found = this.#tokens.slice(this.#next).join(" ") || "its end";
    return new Error(`the fold "${this.#text}": found ${found}, needs ${needed}`);
  }
}

function mapped(
  values: ReadonlySet<bigint>,
  change: (value: bigint) => bigint,
): ReadonlySet<bigint> {
  return new Set(Array.from(values, change));
}
