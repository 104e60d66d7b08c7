/** The pure half of the twin: for one call, the plan that a known version of NCCL takes, and its two other forms. */
export type { Choice, Forced } from "./choice.ts";
export { type Difference, differenceText, differing } from "./differing.ts";
export {
  type ElementPlan,
  type ElementRounding,
  elementPlan,
  elementText,
  pieceAt,
} from "./explain.ts";
export { fastestPath, fastestPathText } from "./fastest-path.ts";
export { type PlanFolds, planFolds } from "./folds.ts";
export { ncclFused } from "./fused.ts";
export { graphFile } from "./graph-file.ts";
export { graphTopology } from "./graph-topology.ts";
export { elementHops } from "./hops.ts";
export { ncclLayout } from "./layout.ts";
export type { FoldOrder } from "./orders.ts";
export { planOutline } from "./outline.ts";
export type { Part } from "./partition.ts";
export { assertRingSize, type NcclPin, resolvePin } from "./pin.ts";
export { ncclPlan } from "./plan.ts";
export type {
  ChannelPlan,
  CopyPlan,
  NcclPlan,
  Piece,
  PlannedPart,
  PlanRequest,
  SymmetricPlan,
} from "./plan-shape.ts";
export { ncclProgram, programName } from "./program.ts";
export type { NcclAlgorithm, NcclCollective, NcclProtocol } from "./protocol.ts";
export { withRing } from "./ring-order.ts";
export { type HopRounding, separateMask } from "./rounding.ts";
export { takeSeparate } from "./select.ts";
export type { NcclSettings } from "./settings.ts";
export type { SymmetricKernel } from "./symmetric-choice.ts";
export { undefinedReason } from "./symmetric-defect.ts";
export {
  type ChannelPaths,
  h200x8,
  type NamedTopologies,
  type SearchResult,
  type Topology,
  topologies,
} from "./topology.ts";
export { ncclVersions } from "./version.ts";
