/** The time of NCCL's calls: a model over plans, profiles of machines, and the fit that makes one. */

export {
  copiedGather,
  type MessageCalls,
  type MessageKind,
  type MessageUse,
  type TimedCall,
  timedPlan,
} from "./call.ts";
export { timedExchange, timedMessage } from "./exchange.ts";
export {
  type FittedProfile,
  fitProfile,
  type Measurement,
  type ProfileOrigin,
  type Residual,
  residualsOf,
} from "./fit.ts";
export {
  type AskedMode,
  type CallMemory,
  type CallMode,
  callUs,
  messageTimes,
  modeText,
} from "./model.ts";
export type {
  ChunkTreeNumbers,
  LineTreeNumbers,
  LowRingNumbers,
  LowSymmetricNumbers,
  LowTreeNumbers,
  ModelNumbers,
  RingNumbers,
  SimpleRingNumbers,
  SymmetricNumbers,
  SymmetricStores,
  TreeNumbers,
} from "./numbers.ts";
export type {
  MachineProfile,
  MeasuredCalls,
  MeasuredCollective,
  MeasuredRange,
} from "./profile.ts";
export { checkedProfile, machineProfiles, parseProfile } from "./profile-file.ts";
export {
  type CallChoice,
  type CallTime,
  choiceOf,
  choiceOfCall,
  extrapolationOf,
  type TimedQuestion,
  testedBytes,
  timeOf,
} from "./question.ts";
