/** A plan in the common program representation: NCCL's own primitives, a lane for each rank and channel. */
import { ProgramBuilder } from "../builder.ts";
import { input, output, type Program } from "../program.ts";
import { piecesPerBlock } from "./layout.ts";
import type { ChannelPlan, NcclPlan } from "./plan-shape.ts";
import { writeTree } from "./program-chain.ts";
import {
  type RingChannel,
  writeRingAllGather,
  writeRingAllReduce,
  writeRingBroadcast,
  writeRingReduce,
  writeRingReduceScatter,
} from "./program-ring.ts";
import { writeSymmetric } from "./program-symmetric.ts";

/** The program of a plan; its chunks are the plan's pieces. */
export function ncclProgram(plan: NcclPlan): Program {
  const { collective, ranks, root } = plan;
  const perBlock = piecesPerBlock(plan);
  const direct = plan.algorithm === "Symmetric";
  const dealt = direct && collective === "allReduce" && plan.protocol === "LD";
  const program = new ProgramBuilder({
    collective,
    algorithm: programName(plan),
    ranks,
    root,
    chunksPerBlock: perBlock,
    channels:
      plan.algorithm === "Ring" || plan.algorithm === "Tree" ? Math.max(1, plan.channels) : 1,
    scratchChunks: direct ? (dealt ? perBlock : ranks) : 0,
  });
  if (perBlock === 0) return program.build();
  if (plan.algorithm === "Symmetric") writeSymmetric(program, plan, perBlock);
  else if (plan.algorithm === "Copy") {
    const reduces = plan.op !== undefined;
    program.everyRank((lane) => lane.copy(input(0), output(0), { final: reduces }));
  } else writeChannels(program, plan, perBlock);
  return program.build();
}

/** `Ring LL128`, `Symmetric LD`, `Copy`. */
export function programName({ algorithm, protocol }: NcclPlan): string {
  return protocol === undefined ? algorithm : `${algorithm} ${protocol}`;
}

function writeChannels(program: ProgramBuilder, plan: ChannelPlan, perBlock: number): void {
  const { collective, algorithm, ranks, paths, parts, pieces } = plan;
  const firsts = new Map<number, number>();
  const lasts = new Map<number, number>();
  for (let i = 0; i < perBlock; i++) {
    const channel = pieces[i]?.channel ?? 0;
    if (!firsts.has(channel)) firsts.set(channel, i);
    lasts.set(channel, i + 1);
  }
  for (const { channel } of parts) {
    const first = firsts.get(channel) ?? 0;
    const path = paths[channel];
    if (path === undefined) continue;
    const ring = { program, ranks, perBlock, channel, first, end: lasts.get(channel) ?? first };
    if (algorithm === "Tree") writeTree({ ...ring, chain: path.chain });
    else ringWriters[collective]({ ...ring, ring: path.ring });
  }
}

const ringWriters: { readonly [C in ChannelPlan["collective"]]: (ring: RingChannel) => void } = {
  allReduce: writeRingAllReduce,
  reduceScatter: writeRingReduceScatter,
  reduce: writeRingReduce,
  allGather: writeRingAllGather,
  broadcast: writeRingBroadcast,
};
