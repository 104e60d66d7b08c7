/** The derivation of a value, in the order of folding: a partial first, then the contribution folded into it. */
import type { ValueId, ValueTable } from "twinccl/algorithms";

/** A value's making. */
export type Making =
  | { readonly kind: "leaf"; readonly id: ValueId; readonly rank: number; readonly chunk: number }
  | { readonly kind: "begin" | "finish"; readonly id: ValueId; readonly of: Making }
  | { readonly kind: "fold"; readonly id: ValueId; readonly acc: Making; readonly next: Making };

/** Reads makings off a table, each once. */
export class Associations {
  readonly #values: ValueTable;
  readonly #makings = new Map<ValueId, Making>();
  readonly #orders = new Map<ValueId, readonly number[]>();

  constructor(values: ValueTable) {
    this.#values = values;
  }

  /** The derivation of a value. */
  making(id: ValueId): Making {
    let making = this.#makings.get(id);
    if (making === undefined) {
      making = this.#read(id);
      this.#makings.set(id, making);
    }
    return making;
  }

  /** Ranks with contributions in a value, in the order of folding. */
  order(id: ValueId): readonly number[] {
    let order = this.#orders.get(id);
    if (order === undefined) {
      order = this.#ranks(this.making(id));
      this.#orders.set(id, order);
    }
    return order;
  }

  /** The value is complete, or a copy that was never anything else. */
  isFinal(id: ValueId): boolean {
    return this.#values.isFinal(id);
  }

  #ranks(making: Making): readonly number[] {
    if (making.kind === "leaf") return [making.rank];
    if (making.kind !== "fold") return this.order(making.of.id);
    return [...this.order(making.acc.id), ...this.order(making.next.id)];
  }

  #read(id: ValueId): Making {
    const value = this.#values.describe(id);
    if (value.kind === "leaf") return { kind: "leaf", id, rank: value.rank, chunk: value.chunk };
    if (value.kind !== "fold") {
      const of = this.making(value.of);
      return { kind: value.kind === "scaled" ? "begin" : "finish", id, of };
    }
    const [left, right] = [this.making(value.left), this.making(value.right)];
    // Either way round gives the same bits; the longer chain is the running value.
    const leads = weight(left) >= weight(right);
    return { kind: "fold", id, acc: leads ? left : right, next: leads ? right : left };
  }
}

/** A fold leads a partial of one rank, and that a bare contribution. */
function weight({ kind }: Making): number {
  if (kind === "leaf") return 0;
  return kind === "begin" ? 1 : 2;
}
