/**
 * The effect of an optimizer on one element, apart from the owner of that element.
 *
 * A rule is element-wise: it may run on any contiguous range of the parameters, so data parallel ranks run it on everything
 * and sharded ones on their part, with the same bits. Arithmetic is in float64 and rounded to the arrays' dtype where
 * something is stored: each state array once and the parameter once per update.
 */
import { invalid, textOf } from "../../api/option-kinds.ts";
import type { ParameterArray } from "../parameter-set.ts";
import { constant, type Schedule } from "../schedules.ts";

/** One update of a range of elements. All arrays have the range's length and one dtype. */
export interface Update {
  /** The parameters' values; updated in place. */
  readonly value: ParameterArray;
  /** Their gradients; only read. */
  readonly gradient: ParameterArray;
  /** The rule's state arrays by slot; zeros before the first update, updated in place. */
  readonly slots: Readonly<Record<string, ParameterArray>>;
  /** Number of this update of these elements, from 1. */
  readonly step: number;
  readonly learningRate: number;
}

/** An optimizer's rule: `sgd`, `adamW`, `lion`, or one of your own. */
export interface UpdateRule {
  readonly name: string;
  /** Learning rate by number of updates done. */
  readonly schedule: Schedule;
  /** Names of the state arrays: each as long as the parameters it belongs to, and of their dtype. */
  readonly slots: readonly string[];
  /** Updates a range of elements, each apart from the others. */
  update(update: Update): void;
}

/** A learning rate, fixed or scheduled. */
export type LearningRate = number | Schedule;

/** The schedule of a learning rate; refuses what is neither a number of at least 0 nor a function. */
export function scheduleOf(rule: string, learningRate: LearningRate): Schedule {
  if (typeof learningRate === "function") return learningRate;
  assertNumber(rule, "learningRate", learningRate, 0);
  return constant(learningRate);
}

/** Refuses an option that is not a finite number from `least` to below `bound`. */
export function assertNumber(
  rule: string,
  field: string,
  value: number,
  least: number,
  bound: number = Number.POSITIVE_INFINITY,
): void {
  if (typeof value === "number" && value >= least && value < bound) return;
  const range = bound === Number.POSITIVE_INFINITY ? "" : ` and below ${bound}`;
  throw invalid(rule, field, textOf(value), `a number of at least ${least}${range}`);
}
