/** Programs broken by hand, and the check that the right pass rejects them. */

import type { SpecifiedCollective } from "twinccl";
import {
  type Algorithm,
  buildProgram,
  catalogue,
  type Problem,
  type ProgramBuilder,
  verifyProgram,
} from "twinccl/algorithms";
import { expect } from "vitest";

/** A program with one mistake. */
export interface Broken {
  readonly mistake: string;
  readonly collective: SpecifiedCollective;
  readonly ranks: number;
  readonly root?: number;
  /** Chunks that each block is cut into; 1 when left out. */
  readonly chunks?: number;
  readonly write: (program: ProgramBuilder) => void;
  /** The pass that must find it, and a piece of what it must say. */
  readonly pass: Problem["pass"];
  readonly says: RegExp;
  /** The changed fields of the catalogue algorithm's header. */
  readonly header?: Partial<Algorithm>;
}

/** The verifier finds the mistake, in the pass that is there for it. */
export function expectRejected(each: Broken): void {
  const { collective, ranks, root = -1, chunks = 1, write, header, pass, says } = each;
  const base = chunks === 1 ? catalogue.allReduce.linear : catalogue.allReduce.ring;
  const own: Algorithm = { ...base, chunksPerBlock: () => chunks, ...header, write };
  const program = buildProgram(collective, own, ranks, root);
  const { problems } = verifyProgram(program, header === undefined ? undefined : own);
  const found = problems.map((problem) => `${problem.pass}: ${problem.text}`);
  expect(found).toContainEqual(expect.stringMatching(says));
  expect(problems.find(({ text }) => says.test(text))?.pass).toBe(pass);
}
