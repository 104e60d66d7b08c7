/**
 * The plan NCCL takes for one call issued alone: everything that decides its bits.
 *
 * A plan cuts every output block into *pieces*, each with the order in which the ranks' contributions are folded. The
 * same plan is also a program of sends and receives (`ncclProgram`) and a list of folds (`ncclFused`) over the same
 * pieces (`ncclLayout`). Planning depends on sizes only; nothing in it is done for each element.
 */
import { bytesOf, type DType } from "../../api/dtype.ts";
import { InvalidArgumentError } from "../../api/errors.ts";
import type { ReduceOp } from "../../api/reduce-op.ts";
import { channelBudget } from "./budget.ts";
import { choose, type Forced } from "./choice.ts";
import { chunkElements } from "./chunks.ts";
import { type Part, partition } from "./partition.ts";
import { channelPieces, copyPieces, type Piece, symmetricPieces } from "./pieces.ts";
import {
  modelBytes,
  type NcclAlgorithm,
  type NcclCollective,
  type NcclProtocol,
} from "./protocol.ts";
import { type HopRounding, hopRounding } from "./rounding.ts";
import {
  channelsOf,
  type NcclSettings,
  type ResolvedSettings,
  resolveSettings,
} from "./settings.ts";
import {
  chooseSymmetric,
  hasSymmetricKernel,
  type SymmetricCollective,
  type SymmetricKernel,
} from "./symmetric-choice.ts";
import { undefinedBlocks } from "./symmetric-defect.ts";
import type { ChannelPaths, Topology } from "./topology.ts";
import { rulesOf } from "./version.ts";

/** A call, the machine it runs on, and the settings of NCCL. */
export interface PlanRequest {
  /** NCCL's version, such as `2.28`. */
  readonly version: string;
  /** Its ranks are those of the communicator. */
  readonly topology: Topology;
  readonly collective: NcclCollective;
  readonly dtype: DType;
  /** For collectives that reduce. */
  readonly op?: ReduceOp | undefined;
  /** Elements as passed to the call; for a reduce-scatter those of one block. */
  readonly count: number;
  /** For rooted collectives. */
  readonly root?: number | undefined;
  readonly settings?: NcclSettings | undefined;
  readonly forced?: Forced | undefined;
  /** Both buffers lie in symmetric windows, so many bytes from their starts. */
  readonly symmetric?: WindowOffsets | undefined;
}

/** Bytes from the start of a symmetric window to each buffer. */
export interface WindowOffsets {
  readonly send: number;
  readonly recv: number;
}

/** The elements of one channel, and how many of them a full chunk holds. */
export interface PlannedPart extends Part {
  readonly chunk: number;
}

/** What all plans tell. */
interface PlanFacts {
  readonly version: string;
  readonly topology: string;
  readonly ranks: number;
  readonly collective: NcclCollective;
  readonly dtype: DType;
  readonly op: ReduceOp | undefined;
  readonly count: number;
  /** -1 where the collective has none. */
  readonly root: number;
  /** Channels used, which is what NCCL logs; blocks for a symmetric kernel. */
  readonly channels: number;
  readonly rounding: HopRounding;
  /** What holds a running value: the element type, or float32 with one rounding at the end. */
  readonly accumulator: "element" | "float32";
  /** Output blocks whose bits NCCL does not define: for an all-reduce block 0, else those of these ranks. */
  readonly undefinedBlocks: readonly number[];
  /** By block and offset; made on first use. Empty chunks of a Ring all-reduce are among them. */
  readonly pieces: readonly Piece[];
}

/** A call on channels, by Ring or Tree. */
export interface ChannelPlan extends PlanFacts {
  readonly algorithm: NcclAlgorithm;
  readonly protocol: NcclProtocol;
  readonly parts: readonly PlannedPart[];
  /** Ring and chain of every used channel. */
  readonly paths: readonly ChannelPaths[];
}

/** A call through a symmetric kernel. */
export interface SymmetricPlan extends PlanFacts {
  readonly algorithm: "Symmetric";
  readonly protocol: SymmetricKernel;
}

/** One rank alone: a copy, which a pre-multiplied sum multiplies once. */
export interface CopyPlan extends PlanFacts {
  readonly algorithm: "Copy";
  readonly protocol: undefined;
}

/** What NCCL does for a call. */
export type NcclPlan = ChannelPlan | SymmetricPlan | CopyPlan;

/** The plan NCCL takes; versions, worlds and demands it has no plan for are refused. */
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
  { version, topology, forced }: PlanRequest,
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
  return lazily({ ...plan, accumulator: "element" as const, undefinedBlocks: [] }, () =>
    channelPieces(plan),
  );
}

function symmetricPlan(
  facts: CallFacts,
  collective: SymmetricCollective,
  offsets: WindowOffsets,
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
    undefinedBlocks:
      kernel === "LL" ? undefinedBlocks(collective, ranks, dtype, count, offsets.send) : [],
  };
  return lazily(plan, () => symmetricPieces(plan, offsets));
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
  return lazily(plan, () => copyPieces(facts.count));
}

/** Adds the pieces, made when they are first asked for. */
function lazily<P>(
  plan: P,
  make: () => readonly Piece[],
): P & { readonly pieces: readonly Piece[] } {
  let made: readonly Piece[] | undefined;
  return Object.defineProperty({ ...plan, pieces: [] as readonly Piece[] }, "pieces", {
    get: () => {
      made ??= make();
      return made;
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
    new InvalidArgumentError(
      { headline: `plan of ${collective}: ${field}: found ${String(found)}, needs ${needs}` },
      { field, collective },
    );
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
