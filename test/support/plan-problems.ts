/** Problems of a plan: judged by the verifier, and its folds by proof against its program. */
import type { FusedPlan, Layout, Program } from "../../src/algorithms/index.ts";
import { findDeadlock, fuse, proveFusion, verifyProgram } from "../../src/algorithms/index.ts";

/** Messages that NCCL's buffers hold. */
const slots = 8;

/** A plan in its three forms. */
export interface PlanForms {
  readonly program: Program;
  readonly fused: FusedPlan;
  readonly layout: Layout;
  /** Elements of a block. */
  readonly count: number;
}

/** Problems of a plan, as text; none for a good one. */
export function planProblems({ program, fused, layout, count }: PlanForms): string[] {
  const { problems } = verifyProgram(program);
  const found = [...problems, ...proveFusion(program, fused)].map(({ text }) => text);
  const stuck = findDeadlock(program, slots);
  if (stuck !== undefined) found.push(`deadlock: ${stuck.join("; ")}`);
  if (fused.inPlaceSafe !== fuse(program).inPlaceSafe) found.push("in-place safety differs");
  found.push(...layoutProblems(layout, count));
  const { ranks, collective, algorithm } = program;
  return found.map((text) => `${ranks} ${collective}[${count}] ${algorithm}: ${text}`);
}

/** Chunks of every buffer must cover it without gap or overlap. */
function layoutProblems(layout: Layout, count: number): string[] {
  return [...new Set([...layout.in, ...layout.out])].flatMap(({ offsets, lengths }) => {
    let next = 0;
    const gap = offsets.some((offset, i) => {
      const wrong = offset !== next;
      next += lengths[i] as number;
      return wrong;
    });
    const blocks = count === 0 ? 0 : next / count;
    return gap || !Number.isInteger(blocks) ? [`chunks end at ${next} of blocks of ${count}`] : [];
  });
}
