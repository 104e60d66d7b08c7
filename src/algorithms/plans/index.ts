/** Plans: which program does a call, with which layout and arithmetic, and what is said about it. */
export { namesOf } from "./explain-reduces.ts";
export { type Link, type LinkOptions, linkModel, linkOf } from "./link.ts";
export { isBuilt, type Plan, type Planner, type PlanQuestion } from "./plan.ts";
export {
  explainCall,
  isOrdered,
  type PlanOptions,
  plannersOf,
  planOf,
  symmetricRefusal,
  unclaimedPlanner,
} from "./planners.ts";
