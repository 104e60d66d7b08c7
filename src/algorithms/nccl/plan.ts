/**
 * NCCL's plan of one call that is alone in its group: everything that decides its bits.
 *
 * A plan cuts every output block into *pieces*, each with the order in which the ranks' contributions are folded. The
 * same plan is also a program of sends and receives (`ncclProgram`) and a list of folds (`ncclFused`) over the same
 * pieces (`ncclLayout`). Planning depends on sizes only and has no loop over elements.
 *
 * The arithmetic of a plan is the fold that an executor runs, and the rounding of its hops. A hop of a float average or
 * pre-multiplied sum computes `x * s + partial`, with one rounding or with two. The operator's source leaves that to the
 * compiler; these rules are those of NCCL 2.28.9's library on sm_90. Over LL128 the lanes of a warp that carry the flag pass the
 * second half of their 16 bytes to other lanes. Only there the product is rounded separately. So for 4- and 8-byte floats the
 * rounding depends on the position in the chunk. An executor folds each block both ways and selects element by element.
 */
import type { SymmetricPlace } from "../../api/backend-entry.ts";
import { specifications } from "../../api/collectives/index.ts";
import { bytesOf, type DType, dtypeInfo } from "../../api/dtype.ts";
import { type InvalidArgumentError, UnsupportedError } from "../../api/errors.ts";
import { invalid, textOf } from "../../api/option-kinds.ts";
import { type ReduceOp, reduceOpChoices, reduceOpFault } from "../../api/reduce-op.ts";
import { assertArgument, assertInteger } from "../arguments.ts";
import type { Fold, Lanes } from "../arithmetic/fold.ts";
import { foldFor } from "../arithmetic/fold-for.ts";
import { type Choice, channelBudget, choose, modelBytes, searchOf } from "./choice.ts";
import {
  channelPieces,
  chunkElements,
  copyPieces,
  type PartitionQuestion,
  partition,
  symmetricPieces,
} from "./pieces.ts";
import type {
  ChannelPlan,
  CopyPlan,
  HopRounding,
  NcclPlan,
  Piece,
  PlanFacts,
  PlanRequest,
  SymmetricPlan,
} from "./plan-types.ts";
import {
  assertPlan,
  type NcclProtocol,
  type ResolvedSettings,
  resolveSettings,
  rulesOf,
  type VersionRules,
} from "./rules.ts";
import {
  chooseSymmetric,
  hasSymmetricKernel,
  misplacedBlocks,
  type SymmetricCollective,
  undefinedBlocks,
} from "./symmetric.ts";
import { symmetricFold } from "./symmetric-fold.ts";
import { channelsOf } from "./topology.ts";

/** The plan of a request whose types are checked; `ncclPlan` checks those of any request. */
export function planCall(request: PlanRequest): NcclPlan {
  check(request);
  const rules = rulesOf(request.version);
  const settings = resolveSettings(request.settings);
  const { topology, collective, dtype, op, count, symmetric } = request;
  const { ranks } = topology;
  const root = specifications[collective].rooted ? (request.root ?? -1) : -1;
  const call = { ranks, collective, dtype, op, count, root };
  const facts = {
    ...call,
    version: rules.version,
    topology: topology.name,
    nodes: topology.nodes,
    nodeSizes: topology.nodeSizes,
    evidence: rules.evidence === "source" ? rules.evidence : topology.evidence,
  };
  if (ranks === 1) return copyPlan(facts);
  // Symmetric kernels need every rank's memory within reach.
  const isWithin = symmetric !== undefined && topology.nodes === 1;
  if (isWithin && hasSymmetricKernel(collective, dtype, op)) {
    if (!rules.knowsSymmetric) throw unknownKernels(rules.version);
    return symmetricPlan(facts, collective, symmetric, settings);
  }
  return channelPlan(facts, request, settings);
}

type CallFacts = Omit<
  PlanFacts,
  "channels" | "rounding" | "accumulator" | "undefinedBlocks" | "pieces"
>;

/** The facts that decide the partition of a call over `channels` channels, by an algorithm and protocol. */
export function partitionQuestion(
  { version, topology, collective, dtype, count }: PlanRequest,
  {
    settings,
    choice,
    channels,
  }: {
    readonly settings: ResolvedSettings;
    readonly choice: Choice;
    readonly channels: number;
  },
): PartitionQuestion {
  const { ranks } = topology;
  const { algorithm, protocol } = choice;
  const elementBytes = bytesOf(dtype);
  const bytes = count * elementBytes;
  const call = { collective, algorithm, protocol, topology, bytes, channels, threads: settings };
  const budget = channelBudget(call);
  const rules = rulesOf(version);
  return { rules, collective, protocol, ranks, count, elementBytes, channels, budget };
}

function channelPlan(
  facts: CallFacts,
  request: PlanRequest,
  settings: ResolvedSettings,
): ChannelPlan {
  const { ranks, collective, dtype, op, count } = facts;
  const rules = rulesOf(request.version);
  const { topology, forced, symmetric } = request;
  const elementBytes = bytesOf(dtype);
  const bytes = count * elementBytes;
  const size = modelBytes(collective, ranks, bytes);
  const everyChannel = channelsOf(topology, settings);
  const channels = everyChannel.length;
  const choice = choose({
    ...{ collective, topology, dtype, channels, size, forced },
    scales: op !== undefined && isScaled(op),
  });
  const cut = partition(partitionQuestion(request, { settings, choice, channels }));
  const call = { ...choice, collective, ranks, topology, elementBytes };
  const chunking = { ...call, settings, size, used: cut.length };
  const parts = cut.map((part) => ({ ...part, chunk: chunkElements(chunking, part.length) }));
  const paths = everyChannel.slice(0, parts.length);
  const rounding = op === undefined ? "none" : hopRounding(dtype, op, choice.protocol);
  // Results of LL128 were recorded only where NCCL takes it by itself.
  const isOffLink = choice.protocol === "LL128" && !searchOf(choice.algorithm, topology).ll128;
  const evidence = isOffLink ? "source" : facts.evidence;
  const plan = { ...facts, ...choice, evidence, parts, paths, channels: parts.length, rounding };
  // A gather through symmetric memory copies the same blocks, but by a kernel of which only the defect is known.
  const isCopied = symmetric !== undefined && topology.nodes === 1 && collective === "allGather";
  const wrong = isCopied
    ? wrongBlocks(rules, { collective, ranks, bytes }, symmetric, settings)
    : [];
  return withPieces({ ...plan, accumulator: "element" as const, undefinedBlocks: wrong }, () =>
    channelPieces(plan),
  );
}

/** The blocks of an all-gather with bits that NCCL does not define. */
function wrongBlocks(
  { misloads, misplaces }: VersionRules,
  call: { readonly collective: "allGather"; readonly ranks: number; readonly bytes: number },
  place: SymmetricPlace,
  settings: ResolvedSettings,
): number[] {
  const misloaded = misloads ? undefinedBlocks(call, place) : [];
  if (!misplaces) return misloaded;
  const { kernel, blocks } = chooseSymmetric(call.collective, call.ranks, call.bytes, settings);
  const misplaced = kernel === "LL" ? misplacedBlocks(call, place, blocks) : [];
  return [...new Set([...misloaded, ...misplaced])];
}

function unknownKernels(version: string): UnsupportedError {
  return new UnsupportedError(
    {
      headline: `the plan in symmetric memory: the kernels of NCCL ${version} are not known here`,
      hint: "they are for 2.28; allocate without symmetric, or follow that version",
    },
    { field: "version" },
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
  const call = { collective, ranks, bytes };
  const misloaded = undefinedBlocks(call, offsets);
  const { misplaces } = rulesOf(facts.version);
  const misplaced = misplaces ? misplacedBlocks(call, offsets, blocks) : [];
  const plan = {
    ...facts,
    algorithm: "Symmetric" as const,
    protocol: kernel,
    channels: blocks,
    rounding: "none" as const,
    accumulator: "float32" as const,
    undefinedBlocks: kernel === "LL" ? [...new Set([...misloaded, ...misplaced])] : [],
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

/** Refuses a call that is none of its collective. */
function check({ topology, collective, dtype, op, count, root }: PlanRequest): void {
  const fault = (field: string, found: unknown, needs: string): InvalidArgumentError =>
    invalid(`plan of ${collective}`, field, textOf(found), needs, undefined, { collective });
  if (!isCount(count)) throw fault("count", count, "an integer of at least 0");
  const { rooted, reduces } = specifications[collective];
  if (rooted && !(isCount(root) && root < topology.ranks)) {
    throw fault("root", root, `a rank of 0..${topology.ranks - 1}`);
  }
  if (reduces && reduceOpFault(op, dtype) !== undefined) throw fault("op", op, reduceOpChoices);
  if (!reduces && op !== undefined) throw fault("op", op, "none: nothing is folded");
}

/** True for an integer of at least 0. */
export function isCount(value: unknown): value is number {
  return Number.isSafeInteger(value) && (value as number) >= 0;
}

/** The folds of a plan. */
export interface PlanFolds {
  readonly fold: Fold;
  /**
   * Second fold of plans that round by position: every block is folded both ways, and `takeSeparate` joins them
   * before `finish`.
   */
  readonly separate: Fold | undefined;
  /** Type of a running value: the element type, or float32, which is rounded to the element type once at the end. */
  readonly accumulator: "element" | "float32";
}

/** The folds of a plan; `op` is a rank's own where the scalars of ranks differ. */
export function planFolds(plan: NcclPlan, op: ReduceOp): PlanFolds {
  assertPlan("planFolds", plan);
  const { dtype, ranks, rounding, accumulator } = plan;
  // NCCL has no 8-bit float kernel for one rank, so its average there is a copy.
  if (ranks === 1 && op === "avg" && bytesOf(dtype) === 1) return planFolds(plan, "sum");
  if (accumulator === "float32")
    return { fold: symmetricFold(dtype), separate: undefined, accumulator };
  const separate = foldFor(dtype, op, ranks, "separate");
  if (rounding === "separate") return { fold: separate, separate: undefined, accumulator };
  const fold = foldFor(dtype, op, ranks, "fused");
  return { fold, separate: rounding === "byPosition" ? separate : undefined, accumulator };
}

/** Bytes after which positions repeat: the data that half a warp moves in one LL128 line. */
export const patternBytes = 960;

/** Packs of 16 bytes, within a pattern, that are fused whole; of the others the second 8 bytes are not. */
const wholePacks: readonly number[] = [7, 15, 23, 31];

/** True for an operator that multiplies contributions, or divides their sum. */
export function isScaled(op: ReduceOp): boolean {
  return op === "avg" || typeof op === "object";
}

/** The rounding of the hops of a call. */
export function hopRounding(dtype: DType, op: ReduceOp, protocol: NcclProtocol): HopRounding {
  const { kind, bytes } = dtypeInfo[dtype];
  if (!isScaled(op) || kind !== "float" || bytes === 1) return "none";
  if (protocol !== "LL128") return "fused";
  return bytes === 2 ? "separate" : "byPosition";
}

/** True if an element of a 4- or 8-byte float is fused over LL128, by its byte offset in its chunk. */
export function isFusedAt(byteOffset: number): boolean {
  const inPattern = byteOffset % patternBytes;
  return inPattern % 16 < 8 || wholePacks.includes(Math.floor(inPattern / 16));
}

const masks = new Map<number, Uint8Array>();

/** One pattern, by element: 1 where the product is rounded separately. */
export function separateMask(elementBytes: number): Uint8Array {
  let mask = masks.get(elementBytes);
  if (mask === undefined) {
    const isSize = [1, 2, 4, 8].includes(elementBytes);
    assertArgument(isSize, "takeSeparate", "elementBytes", elementBytes, "1, 2, 4 or 8");
    mask = Uint8Array.from({ length: patternBytes / elementBytes }, (_, i) =>
      isFusedAt(i * elementBytes) ? 0 : 1,
    );
    masks.set(elementBytes, mask);
  }
  return mask;
}

function lengthOf(lanes: Lanes): number {
  return ArrayBuffer.isView(lanes) ? lanes.length : 0;
}

/**
 * Copies into `fused` the elements of `separate` that NCCL does not fuse. `first` is the position of element 0 of both in
 * its piece. Call it before `finish`, which can change the bits of a NaN.
 */
export function takeSeparate(
  fused: Lanes,
  separate: Lanes,
  count: number,
  elementBytes: number,
  first: number,
): void {
  assertInteger("takeSeparate", "count", count, 0, Math.min(lengthOf(fused), lengthOf(separate)));
  assertInteger("takeSeparate", "first", first, 0, Number.MAX_SAFE_INTEGER);
  const mask = separateMask(elementBytes);
  let at = first % mask.length;
  for (let i = 0; i < count; i++) {
    if (mask[at] === 1) fused[i] = separate[i] as number;
    at++;
    if (at === mask.length) at = 0;
  }
}
