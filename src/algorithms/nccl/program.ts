/**
 * A plan as a program: NCCL's own primitives, a lane for each rank and channel.
 *
 * The symmetric kernels load and store each other's memory; here a load is a send of the raw value. A sent value counts
 * as a partial. A rank takes its own contribution as a partial too, so that the fold is the same on every rank. These
 * kernels only compute plain sums, with the same bits either way.
 */
import { type Lane, ProgramBuilder } from "../builder.ts";
import { input, output, type Program, scratch } from "../program.ts";
import { piecesPerBlock } from "./folds.ts";
import type { ChannelPlan, FoldOrder, NcclPlan, SymmetricPlan } from "./plan-types.ts";
import {
  type RingChannel,
  writeRingAllGather,
  writeRingAllReduce,
  writeRingBroadcast,
  writeRingReduce,
  writeRingReduceScatter,
  writeTree,
} from "./program-channels.ts";

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

/** Writes the program of a symmetric plan. */
function writeSymmetric(program: ProgramBuilder, plan: SymmetricPlan, perBlock: number): void {
  if (plan.collective === "allReduce" && plan.protocol === "LD") writeDealt(program, plan);
  else writeDirect(program, plan, perBlock);
}

/** Every rank sends its contributions to the ranks that need them, and folds its own output. */
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

/** Each range is folded by its owner, which then stores the result on every rank. */
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
