/** The testing kit: random programs and their runner, comparison by bits, life cycles. Needs `fast-check`. */
export {
  bitsPayload,
  countsMatrix,
  countsUpTo,
  type DTypeConstraints,
  dtypesOf,
  exactPayload,
  type PayloadConstraints,
  type ReduceOpConstraints,
  reduceOps,
  type SizeConstraints,
  seeds,
  worldSizes,
} from "./arbitraries.ts";
export { type ProgramConstraints, programs } from "./arbitrary-programs.ts";
export type { RankOutcome } from "./call-execution.ts";
export {
  type CheckOptions,
  checkProperty,
  environmentReplay,
  type Replay,
  replayLine,
} from "./check-property.ts";
export {
  type ConformanceParts,
  conformanceParts,
  type PartArguments,
  type PartResult,
  type PlainPlan,
} from "./conformance/parts.ts";
export {
  type ConformanceCase,
  type ConformanceClaims,
  type ConformanceRanks,
  conformanceOfRanks,
  type RanksUnderTest,
  type UseRanks,
} from "./conformance/ranks.ts";
export { type ConformanceOptions, conformance, type UseWorld } from "./conformance/worlds.ts";
export { expectSame, judgeRun, type SameRule } from "./expect-same.ts";
export {
  type LifeCycleCommand,
  type LifeCycleConstraints,
  type LifeCycleModel,
  type LifeCycleReal,
  lifeCycleCommands,
  runLifeCycle,
} from "./life-cycle.ts";
export type { FoldOracle } from "./oracle/judge.ts";
export {
  type BlockOrder,
  communicatorsOf,
  type DataCall,
  type FoldingCall,
  type Occurrence,
  type PayloadClass,
  type Placement,
  type Program,
  type ProgramCall,
  type ProgramFoldingCall,
  type ProgramSplit,
  type ProgramStep,
} from "./program.ts";
export {
  type CallOutcome,
  gatherRun,
  type ProgramRun,
  type RunOptions,
  runOn,
  runProgram,
  runProgramAs,
  runProgramIn,
} from "./run-program.ts";
