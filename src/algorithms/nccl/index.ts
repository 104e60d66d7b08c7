/** NCCL's plans as pure functions: for one call, the plan of a known version of NCCL, its program and its folds. */
export type { Choice, Forced } from "./choice.ts";
export type { Part } from "./chunks.ts";
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
export {
  ncclFused,
  ncclLayout,
  type PlanFolds,
  planFolds,
  separateMask,
  takeSeparate,
} from "./folds.ts";
export { graphFile } from "./graph-file.ts";
export { graphTopology } from "./graph-topology.ts";
export { assertRingSize, type NcclPin, type NcclSettings, resolvePin } from "./pin.ts";
export { ncclPlan } from "./plan.ts";
export type {
  ChannelPlan,
  CopyPlan,
  FoldOrder,
  HopRounding,
  NcclPlan,
  Piece,
  PlannedPart,
  PlanRequest,
  SymmetricKernel,
  SymmetricPlan,
} from "./plan-types.ts";
export { ncclProgram, programName } from "./program.ts";
export {
  type NcclAlgorithm,
  type NcclCollective,
  type NcclProtocol,
  ncclVersions,
} from "./protocol.ts";
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
