/** Predicted times of calls on machines of any size. */

export { type PredictedCall, type Prediction, predict } from "./predict.ts";
export { fabricOf, fatTree, type LinkCost, type Topology, torus } from "./topologies.ts";
