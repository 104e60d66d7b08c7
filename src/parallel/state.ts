/**
 * State that a checkpoint keeps: plain values and named tensors.
 *
 * Objects to restore bit for bit after an interruption (parameters, optimizers, schedules, samplers, random numbers) are
 * `Stateful`. A state is plain data: it can be written, sent and compared without its object.
 */

import {
  type DType,
  dtypeInfo,
  type HostArray,
  type InvalidArgumentError,
  isDType,
} from "../api/index.ts";
import { invalid, textOf } from "../api/option-kinds.ts";
import { typedArrayClass } from "../api/typed-array.ts";

/** A value that JSON holds without loss. Numbers are finite; -0 and NaN belong into tensors. */
export type StateValue =
  | string
  | number
  | boolean
  | null
  | readonly StateValue[]
  | { readonly [name: string]: StateValue };

/** A tensor of a state: its elements in row-major order. */
export interface StateTensor {
  readonly dtype: DType;
  readonly shape: readonly number[];
  /** Its length is the product of the shape. */
  readonly data: HostArray;
}

/** The state that an object needs to continue without a difference. */
export interface State {
  readonly values: Readonly<Record<string, StateValue>>;
  readonly tensors: Readonly<Record<string, StateTensor>>;
}

/** An object with state that a checkpoint keeps. */
export interface Stateful {
  /** The present state. Its tensors may share memory with the object: write or copy them before it changes. */
  state(): State;
  /**
   * Restores a state from `state`; its tensors are copied. All of it is restored on return: a promise is refused.
   *
   * @throws InvalidArgumentError for a state of another shape, before any change.
   */
  restore(state: State): void;
}

/** An object with state that differs from rank to rank. */
export interface RankStateful extends Stateful {
  /**
   * Restores the states of another number of ranks, by their rank, as rank `rank` of `size`. Also of equally many ranks after
   * `restore` refused a state on any rank: they may have been divided otherwise.
   *
   * @throws InvalidArgumentError for states of another shape, before any change.
   */
  reshard(states: readonly State[], rank: number, size: number): void;
}

const isObject = (value: unknown): boolean => typeof value === "object" && value !== null;

/** True for an object with named fields: those of a list or a `Map` have no names. */
export function isRecord(value: unknown): value is Readonly<Record<string, unknown>> {
  return isObject(value) && !(Symbol.iterator in (value as object));
}

/** True for `{ values, tensors }` of which every tensor has a shape and data. */
export function isState(state: State): boolean {
  return isObject(state) && isRecord(state.values) && isRecord(state.tensors)
    ? Object.values(state.tensors).every(isTensor)
    : false;
}

function isTensor(tensor: StateTensor): boolean {
  return (
    Array.isArray(tensor?.shape) && isObject(tensor.data) && typeof tensor.data.length === "number"
  );
}

/**
 * Refuses a value that is not a state, before it is read.
 *
 * @throws InvalidArgumentError for a value without `{ values, tensors }`, a tensor without a shape or data, or with data of
 * another class than its dtype's.
 */
export function assertState(action: string, state: State): void {
  const fault = (field: string, found: unknown, needed: string): InvalidArgumentError =>
    invalid(action, field, textOf(found), needed);
  if (!isObject(state)) throw fault("state", state, "{ values, tensors }, as state() gives it");
  for (const field of ["values", "tensors"] as const) {
    if (!isRecord(state[field])) throw fault(field, state[field], "those that state() gave");
  }
  for (const [name, tensor] of Object.entries(state.tensors)) {
    if (!isTensor(tensor)) throw fault(`tensor "${name}"`, tensor, "{ dtype, shape, data }");
    const { dtype, data } = tensor;
    const host = isDType(dtype) ? dtypeInfo[dtype].host : undefined;
    if (host === undefined || typedArrayClass(data) === host) continue;
    throw fault(`tensor "${name}"`, data, `the ${host} of ${dtype}`);
  }
}

/** Refuses a value that is not the states of ranks, before they are read. */
export function assertStates(action: string, states: readonly State[]): void {
  assertStateList(action, states);
  for (const state of states) assertState(action, state);
}

/** Refuses a value that is not a list of states, some of which may be missing. */
export function assertStateList(action: string, states: readonly State[]): void {
  if (Array.isArray(states)) return;
  throw invalid(action, "states", textOf(states), "an array of the states of all ranks");
}

/** A tensor in an error, with the length of its data, which may not fit its shape. */
export function tensorText(tensor: StateTensor | undefined): string {
  if (tensor === undefined) return "nothing";
  return `${tensor.dtype} [${tensor.shape.join(", ")}] with ${tensor.data.length} elements`;
}

/** Number of elements of a shape; 1 of an empty one. */
export function elementsOf(shape: readonly number[]): number {
  return shape.reduce((product, extent) => product * extent, 1);
}
