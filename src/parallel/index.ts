/** Training on top of a Communicator: parameters and their gradients, random numbers, state that is kept. */
export {
  type Parameter,
  type ParameterArray,
  type ParameterDeclaration,
  type ParameterDType,
  ParameterSet,
} from "./parameter-set.ts";
export { Random } from "./random.ts";
export type { State, Stateful, StateTensor, StateValue } from "./state.ts";
