/** The time of NCCL's calls: a model over plans, profiles of machines, and the fit that makes one. */

export { type TimedCall, timedExchange, timedPlan } from "./call.ts";
export {
  type FittedProfile,
  fitProfile,
  type Measurement,
  type ProfileOrigin,
  type Residual,
  residualsOf,
} from "./fit.ts";
export { type CallMemory, type CallMode, callUs } from "./model.ts";
export type {
  LowRingNumbers,
  ModelNumbers,
  RingNumbers,
  SymmetricNumbers,
  TreeNumbers,
} from "./numbers.ts";
export type { MachineProfile, MeasuredCalls, MeasuredRange } from "./profile.ts";
export { checkedProfile, machineProfiles, parseProfile } from "./profile-file.ts";
export {
  type CallChoice,
  type CallTime,
  choiceOf,
  extrapolationOf,
  type TimedQuestion,
  testedBytes,
  timeOf,
} from "./question.ts";
