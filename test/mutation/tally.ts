/** Counts what became of the mutants, by kind. */
import type { Problem } from "twinccl/algorithms";
import { kinds, type MutantKind } from "./mutants.ts";

/** The fate of a mutant: the pass that found the first problem, or the verdict of execution. */
export type Fate = Problem["pass"] | "equivalent" | "survived";

const fates: readonly Fate[] = [
  "match",
  "contribution",
  "hazard",
  "fusion",
  "deadlock",
  "cost",
  "association",
  "equivalent",
  "survived",
];

/** A table of kinds by fates. */
export class Tally {
  readonly #counts = new Map<string, number>();

  killed(kind: MutantKind, by: Problem["pass"]): void {
    this.#note(kind, by);
  }

  equivalent(kind: MutantKind): void {
    this.#note(kind, "equivalent");
  }

  survived(kind: MutantKind): void {
    this.#note(kind, "survived");
  }

  /** Mutants with one fate, or in all. */
  count(fate?: Fate): number {
    const among = fate === undefined ? fates : [fate];
    return kinds.reduce((sum, kind) => sum + sumOf(among.map((each) => this.#of(kind, each))), 0);
  }

  /** Kind, mutants, killed by which pass first, equivalent, survived. */
  table(): string {
    const rowOf = (name: string, among: readonly MutantKind[]): string => {
      const counts = fates.map((fate) =>
        among.reduce((sum, kind) => sum + this.#of(kind, fate), 0),
      );
      const all = counts.reduce((sum, count) => sum + count, 0);
      return [name.padEnd(20), ...[all, ...counts].map((n) => `${n}`.padStart(12))].join(" ");
    };
    const head = ["mutants", ...fates].map((name) => name.padStart(12)).join(" ");
    const rows = kinds.map((kind) => rowOf(kind, [kind]));
    return [`${" ".repeat(20)} ${head}`, ...rows, rowOf("all", kinds)].join("\n");
  }

  #of(kind: MutantKind, fate: Fate): number {
    return this.#counts.get(`${kind}/${fate}`) ?? 0;
  }

  #note(kind: MutantKind, fate: Fate): void {
    this.#counts.set(`${kind}/${fate}`, this.#of(kind, fate) + 1);
  }
}

function sumOf(numbers: readonly number[]): number {
  return numbers.reduce((sum, number) => sum + number, 0);
}
