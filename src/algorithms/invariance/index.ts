/** Dependences of the bits of a call beside its contributions, by proof over the breakpoints of NCCL's plans. */
export type { PricedSettings, PricedTimes } from "./cheapest.ts";
export {
  type Answer,
  type DifferentFold,
  type FoldRange,
  foldText,
  type Invariance,
  invariance,
} from "./invariance.ts";
export {
  type Dependence,
  dependences,
  type InvarianceQuestion,
  type TopologyOf,
} from "./question.ts";
export type { Witness } from "./witness.ts";
