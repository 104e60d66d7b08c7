/**
 * NCCL's plan of one call that is alone in its group: everything that decides its bits.
 *
 * A plan cuts every output block into *pieces*, each with the order in which the ranks' contributions are folded. The
 * same plan is also a program of sends and receives (`ncclProgram`) and a list of folds (`ncclFused`) over the same
 * pieces (`ncclLayout`). Planning depends on sizes only and has no loop over elements.
 */

import type { SymmetricPlace } from "../../api/backend-entry.ts";
import { bytesOf } from "../../api/dtype.ts";
import type { InvalidArgumentError } from "../../api/errors.ts";
import { invalid, textOf } from "../../api/option-kinds.ts";
import { channelBudget, choose } from "./choice.ts";
import { chunkElements, partition } from "./chunks.ts";
import { hopRounding } from "./folds.ts";
import { channelPieces, copyPieces, symmetricPieces } from "./pieces.ts";
import { channelsOf, type ResolvedSettings, resolveSettings } from "./pin.ts";
import type {
  ChannelPlan,
  CopyPlan,
  NcclPlan,
  Piece,
  PlanFacts,
  PlanRequest,
  SymmetricPlan,
} from "./plan-types.ts";
import { modelBytes, rulesOf } from "./protocol.ts";
import {
  chooseSymmetric,
  hasSymmetricKernel,
  type SymmetricCollective,
  undefinedBlocks,
} from "./symmetric.ts";

/** NCCL's plan of a call. Throws for unknown versions, and for worlds and settings that NCCL has no plan for. */
export function ncclPlan(request: PlanRequest): NcclPlan {
  const rules = rulesOf(request.version);
  const settings = resolveSettings(request.settings);
  const { topology, collective, dtype, op, count, symmetric } = request;
  const { ranks } = topology;
  const rooted = collective === "reduce" || collective === "broadcast";
  const root = rooted ? (request.root ?? -1) : -1;
  check(request, root, rooted);
  const call = { ranks, collective, dtype, op, count, root };
  const facts = { ...call, version: rules.version, topology: topology.name };
  if (ranks === 1) return copyPlan(facts);
  if (symmetric !== undefined && hasSymmetricKernel(collective, dtype, op)) {
    return symmetricPlan(facts, collective, symmetric, settings);
  }
  return channelPlan(facts, request, settings);
}

type CallFacts = Omit<
  PlanFacts,
  "channels" | "rounding" | "accumulator" | "undefinedBlocks" | "pieces"
>;

function channelPlan(
  facts: CallFacts,
  { version, topology, forced, symmetric }: PlanRequest,
  settings: ResolvedSettings,
): ChannelPlan {
  const { ranks, collective, dtype, op, count } = facts;
  const elementBytes = bytesOf(dtype);
  const bytes = count * elementBytes;
  const size = modelBytes(collective, ranks, bytes);
  const choice = choose({ collective, topology, dtype, size, forced });
  const everyChannel = channelsOf(topology, settings);
  const channels = everyChannel.length;
  const call = { ...choice, collective, ranks, elementBytes };
  const budget = channelBudget({ ...call, topology, bytes, channels });
  const parts = partition({ ...call, rules: rulesOf(version), count, channels, budget }).map(
    (part) => ({ ...part, chunk: chunkElements({ ...call, settings }, part.length) }),
  );
  const paths = everyChannel.slice(0, parts.length);
  const rounding = op === undefined ? "none" : hopRounding(dtype, op, choice.protocol);
  const plan = { ...facts, ...choice, parts, paths, channels: parts.length, rounding };
  // A gather through symmetric memory copies the same blocks, but by a kernel of which only the defect is known.
  const copied = symmetric !== undefined && collective === "allGather";
  const wrong = copied ? undefinedBlocks({ collective, ranks, bytes }, symmetric) : [];
  return withPieces({ ...plan, accumulator: "element" as const, undefinedBlocks: wrong }, () =>
    channelPieces(plan),
  );
}

function symmetricPlan(
  facts: CallFacts,
  collective: SymmetricCollective,
  offsets: SymmetricPlace,
  settings: ResolvedSettings,
): SymmetricPlan {
  const { ranks, dtype, count } = facts;
  const bytes = count * bytesOf(dtype);
  const { kernel, blocks } = chooseSymmetric(collective, ranks, bytes, settings);
  const plan = {
    ...facts,
    algorithm: "Symmetric" as const,
    protocol: kernel,
    channels: blocks,
    rounding: "none" as const,
    accumulator: "float32" as const,
    undefinedBlocks: kernel === "LL" ? undefinedBlocks({ collective, ranks, bytes }, offsets) : [],
  };
  return withPieces(plan, () => symmetricPieces(plan, offsets));
}

function copyPlan(facts: CallFacts): CopyPlan {
  const plan = {
    ...facts,
    algorithm: "Copy" as const,
    protocol: undefined,
    channels: Math.min(facts.count, 1),
    rounding: "none" as const,
    accumulator: "element" as const,
    undefinedBlocks: [],
  };
  return withPieces(plan, () => copyPieces(facts.count));
}

/** Adds the pieces, computed on first use. */
function withPieces<P>(
  plan: P,
  compute: () => readonly Piece[],
): P & { readonly pieces: readonly Piece[] } {
  let computed: readonly Piece[] | undefined;
  return Object.defineProperty({ ...plan, pieces: [] as readonly Piece[] }, "pieces", {
    get: () => {
      computed ??= compute();
      return computed;
    },
  });
}

function check(
  { topology, collective, op, count }: PlanRequest,
  root: number,
  rooted: boolean,
): void {
  const { ranks } = topology;
  const fault = (field: string, found: unknown, needs: string): InvalidArgumentError =>
    invalid(`plan of ${collective}`, field, textOf(found), needs, undefined, { collective });
  if (!Number.isSafeInteger(count) || count < 0) {
    throw fault("count", count, "an integer of at least 0");
  }
  if (rooted && !(Number.isInteger(root) && root >= 0 && root < ranks)) {
    throw fault("root", root, `a rank of 0..${ranks - 1}`);
  }
  const reduces = collective !== "allGather" && collective !== "broadcast";
  if (reduces !== (op !== undefined)) {
    throw fault("op", op, reduces ? "an operator" : "none: nothing is folded");
  }
}
