/** Counts of the facts that two runs were compared on, so that a claim of equality states its evidence. */
import type { ProgramRun } from "twinccl/testing";
import { isFloat, widths } from "../../src/testing/oracle/elements.ts";
import type { OracleDType } from "../../src/testing/oracle/rounding.ts";

/** Counts programs, calls and elements. */
export class Compared {
  programs = 0;
  calls = 0;
  /** Elements of results, by dtype. */
  readonly elements = new Map<OracleDType, number>();
  /** Elements of float results that another order of folding gives other bits. */
  orderSensitive = 0;

  /** Counts one comparison; `otherOrder` is the same program where ranks are folded in another order. */
  count(run: ProgramRun, otherOrder: ProgramRun): void {
    this.programs += 1;
    this.calls += run.outcomes.length;
    for (const [at, { call, ranks }] of run.outcomes.entries()) {
      if (call.kind === "barrier") continue;
      const { dtype } = call;
      const width = widths[dtype];
      const folds = "op" in call && isFloat(dtype);
      for (const [rank, outcome] of ranks.entries()) {
        if (outcome === undefined) continue;
        const found = this.elements.get(dtype) ?? 0;
        this.elements.set(dtype, found + outcome.bytes.length / width);
        const other = otherOrder.outcomes[at]?.ranks[rank]?.bytes;
        if (folds && other !== undefined) {
          this.orderSensitive += differing(outcome.bytes, other, width);
        }
      }
    }
  }

  /** One line. */
  toString(): string {
    const all = [...this.elements.values()].reduce((sum, each) => sum + each, 0);
    const each = [...this.elements].map(([dtype, count]) => `${dtype} ${count}`).join(", ");
    return `${this.programs} programs, ${this.calls} calls, ${all} elements (${each}); another order would change ${this.orderSensitive} of them`;
  }
}

function differing(a: Uint8Array, b: Uint8Array, width: number): number {
  let count = 0;
  for (let start = 0; start < a.length; start += width) {
    for (let byte = start; byte < start + width; byte++) {
      if (a[byte] === b[byte]) continue;
      count += 1;
      break;
    }
  }
  return count;
}
