/** NCCL's plans as pure functions: for one call, the plan of a known version of NCCL, its program and its folds. */
export type { Choice, Forced } from "./choice.ts";
export { type Difference, differenceText, differing } from "./differing.ts";
export {
  type ElementPlan,
  type ElementRounding,
  elementHops,
  elementPlan,
  elementText,
  operatorSign,
  pieceAt,
  planOutline,
} from "./explain.ts";
export { fastestPath, fastestPathText } from "./fastest-path.ts";
export { graphFile } from "./graph-file.ts";
export { graphTopology } from "./graph-topology.ts";
export { assertRingSize, type NcclPin, resolvePin } from "./pin.ts";
export { ncclPlan, type PlanFolds, planFolds, separateMask, takeSeparate } from "./plan.ts";
export type {
  ChannelPlan,
  CopyPlan,
  FoldOrder,
  HopRounding,
  NcclPlan,
  Part,
  Piece,
  PlannedPart,
  PlanRequest,
  SymmetricKernel,
  SymmetricPlan,
} from "./plan-types.ts";
export { ncclFused, ncclLayout, ncclProgram, programName } from "./program.ts";
export {
  type NcclAlgorithm,
  type NcclCollective,
  type NcclProtocol,
  type NcclSettings,
  ncclVersions,
} from "./rules.ts";
export { undefinedReason } from "./symmetric.ts";
export {
  type ChannelPaths,
  h200x8,
  type NamedTopologies,
  type SearchResult,
  type Topology,
  topologies,
  withRing,
} from "./topology.ts";
