/** Plans: the program of a call, its layout and arithmetic, and its explanation. */
export { explainInRankOrder, linkText, namesOf } from "./explain.ts";
export type {
  BlockCounts,
  MachineTime,
  MessageTime,
  Plan,
  Planner,
  PlanQuestion,
  TimedMachine,
} from "./plan.ts";
export {
  explainCall,
  isOrdered,
  measuredProfile,
  type PlanOptions,
  plannersOf,
  planOf,
  planQuestion,
  reduceOfBlock,
  symmetricRefusal,
  unclaimedPlanner,
} from "./planners.ts";
