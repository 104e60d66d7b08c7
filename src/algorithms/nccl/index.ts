/** NCCL's plans as pure functions: for one call, the plan of a known version of NCCL, its program and its folds. */
export type { Choice, Forced } from "./choice.ts";
export { type Difference, differenceText, differing } from "./differing.ts";
export { type NcclEnvironment, type NcclVariables, ncclEnvironment } from "./environment.ts";
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
export type { FoldOrder } from "./fold-order.ts";
export { graphFile } from "./graph-file.ts";
export { type GraphNodes, graphTopology } from "./graph-topology.ts";
export type { HostNetwork } from "./hosts.ts";
export { machineOf, type TopologyName, type TopologyOption, topologies } from "./machines.ts";
export { assertRingSize, type NcclPin, type ResolvedPin, resolvePin } from "./pin.ts";
export { type PlanFolds, planCall, planFolds, separateMask, takeSeparate } from "./plan.ts";
export type {
  ChannelPlan,
  CopyPlan,
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
export { ncclPlan } from "./request.ts";
export {
  type Evidence,
  isNcclCollective,
  type Library,
  type LibraryName,
  libraryNames,
  libraryOf,
  type NcclAlgorithm,
  type NcclCollective,
  type NcclProtocol,
  type NcclSettings,
  ncclCollectives,
  ncclVersions,
  rulesOf,
} from "./rules.ts";
export { undefinedReason } from "./symmetric.ts";
export {
  type AskedMode,
  type CallChoice,
  type CallMemory,
  type CallMode,
  type CallTime,
  type ChunkTreeNumbers,
  callUs,
  checkedProfile,
  choiceOf,
  choiceOfCall,
  copiedGather,
  extrapolationOf,
  type FittedProfile,
  fitProfile,
  type LineTreeNumbers,
  type LowRingNumbers,
  type LowSymmetricNumbers,
  type LowTreeNumbers,
  type MachineProfile,
  type MeasuredCalls,
  type MeasuredCollective,
  type MeasuredRange,
  type Measurement,
  type MessageCalls,
  type MessageKind,
  type MessageUse,
  type ModelNumbers,
  machineProfiles,
  messageTimes,
  modeText,
  type ProfileOrigin,
  parseProfile,
  type Residual,
  type RingNumbers,
  residualsOf,
  type SimpleRingNumbers,
  type SymmetricNumbers,
  type SymmetricStores,
  type TimedCall,
  type TimedQuestion,
  type TreeNumbers,
  testedBytes,
  timedExchange,
  timedMessage,
  timedPlan,
  timeOf,
} from "./times/index.ts";
export {
  type ChannelPaths,
  type CpuVendor,
  h200x8,
  type SearchResult,
  type Topology,
  type Tree,
  withRing,
} from "./topology.ts";
