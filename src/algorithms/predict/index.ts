/** Predicted times of calls on machines of any size. */
export { fatTree } from "./fat-tree.ts";
export { type PredictedCall, type Prediction, predict } from "./predict.ts";
export { fabricOf, type LinkCost, type Topology } from "./topology.ts";
export { torus } from "./torus.ts";
