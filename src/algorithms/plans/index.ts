/** Plans: which program does a call, with which layout and arithmetic, and what is said about it. */
export { namesOf } from "./explain-reduces.ts";
export { type Link, type LinkOptions, linkModel, linkOf } from "./link.ts";
export { isBuilt, type Plan, type Planner, type PlanQuestion } from "./plan.ts";
export { type PlanOptions, plannersOf, unclaimedPlanner } from "./planners.ts";
export { explainCall, isOrdered, planOf, symmetricRefusal } from "./planning.ts";
