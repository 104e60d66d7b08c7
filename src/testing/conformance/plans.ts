/** Plans judged by the definition of their call: where each element of the output comes from. */
import type { CollectiveDataCall } from "../call-memory.ts";
import { expectEqual } from "./expectations.ts";
import type { PlainPlan } from "./parts.ts";

/** Throws where a plan that a rank explains is none of its call. */
export function judgePlan(
  call: CollectiveDataCall,
  ranks: number,
  caller: number,
  plan: PlainPlan,
): void {
  const where = `the plan of ${call.kind} on rank ${caller} of ${ranks}: `;
  const rank = describedRank(call, caller);
  const { chunks, text, holders } = plan;
  const facts = [plan.collective, plan.ranks, plan.rank, text.includes(call.kind)];
  expectEqual(`${where}collective, ranks, rank, named`, facts, [call.kind, ranks, rank, true]);
  const sources = sourcesOf(call, ranks, rank);
  const chunkOf = sources.map((): number | undefined => undefined);
  for (const { chunk, offset, length, order, fold } of chunks) {
    const name = `chunk ${chunk}`;
    const named = Array.from(fold.matchAll(/r(\d+)/g), ([, digits]) => Number(digits));
    expectEqual(`${where}ranks of ${name} in its text "${fold}"`, named, order);
    for (let at = offset; at < offset + length; at++) {
      expectEqual(`${where}the chunk of element ${at} before ${name}`, chunkOf[at], undefined);
      const sorted = [...order].sort((a, b) => a - b);
      expectEqual(`${where}sources of element ${at}, in ${name},`, sorted, sources[at]);
      chunkOf[at] = chunk;
    }
  }
  const outside = chunkOf.indexOf(undefined);
  expectEqual(`${where}first element in no chunk`, outside, -1);
  expectEqual(`${where}chunkOf by element`, holders, chunkOf);
}

/** The rank with the output that a plan describes: 0 where all have the same, the root where it alone has one. */
function describedRank(call: CollectiveDataCall, caller: number): number {
  if (call.kind === "reduce" || call.kind === "gather") return call.root;
  const isSame = ["allReduce", "broadcast", "allGather", "allGatherv"].includes(call.kind);
  return isSame ? 0 : caller;
}

/** The ranks that each element of a rank's output comes from, ascending. */
function sourcesOf(call: CollectiveDataCall, ranks: number, rank: number): (readonly number[])[] {
  const all = Array.from({ length: ranks }, (_, each) => each);
  const block = (count: number, from: readonly number[]) =>
    new Array<readonly number[]>(count).fill(from);
  const fromEach = (counts: readonly number[]) =>
    counts.flatMap((count, from) => block(count, [from]));
  switch (call.kind) {
    case "allReduce":
    case "reduce":
    case "reduceScatter":
      return block(call.count, all);
    case "reduceScatterv":
      return block(call.counts[rank] as number, all);
    case "broadcast":
      return block(call.count, [call.root]);
    case "scatter":
      return block(call.counts[rank] as number, [call.root]);
    case "allGather":
    case "allToAll":
      return fromEach(all.map(() => call.count));
    case "allGatherv":
    case "gather":
      return fromEach(call.counts);
    case "allToAllv":
      return fromEach(call.counts.map((row) => row[rank] as number));
  }
}
