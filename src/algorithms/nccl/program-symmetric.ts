/**
 * The symmetric kernels as programs. They load and store each other's memory; a load is a send of the raw value here.
 *
 * A value that travels counts as a partial, so a rank takes its own contribution as a partial too: the fold is then
 * the same whoever does it. For plain sums, the only ones these kernels do, the bits are the same either way.
 */
import type { Lane, ProgramBuilder } from "../builder.ts";
import { input, output, scratch } from "../program.ts";
import type { FoldOrder } from "./orders.ts";
import type { SymmetricPlan } from "./plan-shape.ts";

/** Writes the program of a symmetric plan. */
export function writeSymmetric(
  program: ProgramBuilder,
  plan: SymmetricPlan,
  perBlock: number,
): void {
  if (plan.collective === "allReduce" && plan.protocol === "LD") writeDealt(program, plan);
  else writeDirect(program, plan, perBlock);
}

/** Everyone sends its contributions to whoever needs them, and folds what it needs itself. */
function writeDirect(program: ProgramBuilder, plan: SymmetricPlan, perBlock: number): void {
  const { ranks, collective, pieces } = plan;
  const blockOf = (rank: number): number => (collective === "reduceScatter" ? rank : 0);
  program.everyRank((lane, rank) => {
    const own = blockOf(rank);
    lane.copy(input(own * perBlock), scratch(rank));
    for (let step = 1; step < ranks; step++) {
      const to = (rank + step) % ranks;
      const from = (rank + ranks - step) % ranks;
      lane.send(input(blockOf(to) * perBlock), to).recv(from, scratch(from));
    }
    foldScratch(lane, pieces[own]?.order ?? []);
  });
}

function foldScratch(lane: Lane, order: FoldOrder): void {
  const [first = 0, ...rest] = order;
  rest.forEach((rank, i) => {
    const last = i === rest.length - 1;
    const target = last ? output(0) : scratch(first);
    lane.reduce(scratch(first), scratch(rank), target, { final: last });
  });
}

/** Each stretch is folded by the rank it is dealt to, which then stores the result to everyone. */
function writeDealt(program: ProgramBuilder, { ranks, pieces }: SymmetricPlan): void {
  program.everyRank((lane, rank) => {
    pieces.forEach(({ order }, piece) => {
      const [owner = 0, ...others] = order;
      if (rank !== owner) {
        lane.send(input(piece), owner);
        return;
      }
      lane.copy(input(piece), scratch(piece));
      others.forEach((from, i) => {
        const last = i === others.length - 1;
        const target = last ? output(piece) : scratch(piece);
        lane.recvReduceCopy(from, scratch(piece), target, { final: last });
      });
    });
    pieces.forEach(({ order }, piece) => {
      const owner = order[0] ?? 0;
      if (rank !== owner) lane.recv(owner, output(piece));
      else for (let step = 1; step < ranks; step++) lane.send(output(piece), order[step] ?? 0);
    });
  });
}
