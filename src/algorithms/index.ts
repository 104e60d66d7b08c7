/** How collectives are done: programs, the catalogue, the verifier, costs, and the arithmetic of every dtype. */
export { type Algorithm, buildProgram, type Cost, type CostShape } from "./algorithm.ts";
export {
  averageScalar,
  bitsToNumber,
  canonicalise,
  canonicalNaN,
  type FloatDType,
  type Fold,
  foldFor,
  type Lanes,
  lanesOf,
  lanesPerElement,
  numberToBits,
  roundScalar,
  type ScalarRounding,
  type SmallFloat,
  scalarBits,
} from "./arithmetic/index.ts";
export type { FoldPlace, Folds } from "./association.ts";
export { Lane, ProgramBuilder, type ProgramHead, type StepOptions } from "./builder.ts";
export {
  type AlgorithmChoice,
  type AlgorithmName,
  algorithmsOf,
  builtCollectives,
  catalogue,
  findAlgorithm,
} from "./catalogue.ts";
export {
  type FusedFold,
  type FusedPlan,
  fuse,
  type Operand,
  type Place,
  proveFusion,
} from "./fuse.ts";
export {
  allToAllvBlocks,
  type Blocks,
  type CallShape,
  type ChunkTable,
  type Layout,
  layoutOf,
  packed,
  rowBlocks,
} from "./layout.ts";
export { isTooLarge } from "./limits.ts";
export {
  type ChannelPaths,
  type ChannelPlan,
  type Choice,
  type CopyPlan,
  type Difference,
  differenceText,
  differing,
  type ElementPlan,
  type ElementRounding,
  elementHops,
  elementPlan,
  elementText,
  type FoldOrder,
  type Forced,
  graphTopology,
  type HopRounding,
  h200x8,
  type NamedTopologies,
  type NcclAlgorithm,
  type NcclCollective,
  type NcclPlan,
  type NcclProtocol,
  type NcclSettings,
  ncclFused,
  ncclLayout,
  ncclPlan,
  ncclProgram,
  ncclVersions,
  type Part,
  type Piece,
  type PlanFolds,
  type PlannedPart,
  type PlanRequest,
  pieceAt,
  planFolds,
  planOutline,
  programName,
  type SearchResult,
  type SymmetricKernel,
  type SymmetricPlan,
  type Topology,
  takeSeparate,
  topologies,
  undefinedReason,
} from "./nccl/index.ts";
export {
  input,
  output,
  type Program,
  type Ref,
  type Step,
  scratch,
  stepAt,
  stepCount,
  stepText,
} from "./program.ts";
export { evaluate, type LinkModel, type MessageEvent, type Timing } from "./timing.ts";
export { findDeadlock, smallestSafeCredits } from "./verify/credits.ts";
export { type Execution, execute, type Problem } from "./verify/execution.ts";
export { type Value, type ValueId, ValueTable } from "./verify/values.ts";
export { type Verdict, verifyAlgorithm, verifyProgram } from "./verify/verify.ts";
