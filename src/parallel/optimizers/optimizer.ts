/**
 * Applies an update rule to named parameters: counts updates, keeps the rule's state arrays, follows the schedule.
 *
 * It reads gradients and writes values, and makes no call. State is kept apart per parameter, so it is named, saved and cut
 * with the parameters.
 */
import { InvalidArgumentError } from "../../api/index.ts";
import { assertOptions, invalid, textOf } from "../../api/option-kinds.ts";
import { isCount, parametersHint } from "../argument-checks.ts";
import {
  type ParameterArray,
  type ParameterDType,
  parameterDTypeOf,
  zerosOf,
} from "../parameter-set.ts";
import {
  assertState,
  elementsOf,
  isRecord,
  type State,
  type Stateful,
  type StateTensor,
  type StateValue,
  tensorText,
} from "../state.ts";
import { ruleFault, type UpdateRule } from "./rules.ts";

/** The parts of a parameter that an optimizer needs: a whole one of a `ParameterSet`, or any contiguous range of elements. */
export interface Trainable {
  /** Unique in the optimizer; names the state. */
  readonly name: string;
  readonly dtype: ParameterDType;
  readonly shape: readonly number[];
  readonly value: ParameterArray;
  /** As long as `value` and of its dtype. */
  readonly gradient: ParameterArray;
}

/** Options of `step`. */
export interface StepOptions {
  /** Parameters that this update leaves alone, with their state: those that got no gradient. */
  readonly skip?: Iterable<string> | undefined;
}

/** A parameter with its rule, its state arrays and the number of updates it has had. */
interface Slot {
  readonly parameter: Trainable;
  readonly rule: UpdateRule;
  readonly arrays: Readonly<Record<string, ParameterArray>>;
  steps: number;
}

/**
 * Updates parameters by a rule, or by one rule each.
 *
 * @throws InvalidArgumentError for a name that is taken, a gradient of another length or dtype than its parameter, or a rule
 * that lacks a part.
 * @example
 * const optimizer = new Optimizer(model, adamW({ learningRate: 3e-4 }));
 * optimizer.step();
 */
export class Optimizer implements Stateful {
  readonly #slots: ReadonlyMap<string, Slot>;
  #steps = 0;

  /** `rule` may choose by parameter: no weight decay for biases, another rate for embeddings. */
  constructor(
    parameters: Iterable<Trainable>,
    rule: UpdateRule | ((parameter: Trainable) => UpdateRule),
  ) {
    assertIterable(parameters);
    const slots = new Map<string, Slot>();
    for (const parameter of parameters) {
      assertTrainable(parameter);
      const { name } = parameter;
      if (slots.has(name))
        throw invalid("optimizer", name, "a name that is taken", "one of its own");
      const own = typeof rule === "function" ? rule(parameter) : rule;
      assertRule(name, own);
      slots.set(name, { parameter, rule: own, arrays: stateArrays(own, parameter), steps: 0 });
    }
    this.#slots = slots;
  }

  /** Updates done so far. */
  get steps(): number {
    return this.#steps;
  }

  /** Bytes of the state arrays: 0, 1 or 2 times those of the parameters, by rule. */
  get stateBytes(): number {
    return [...this.#slots.values()]
      .flatMap(({ arrays }) => Object.values(arrays))
      .reduce((sum, { byteLength }) => sum + byteLength, 0);
  }

  /** The rate of the next update: of the named parameter, or of the first one. */
  learningRate(name?: string): number {
    const [first] = this.#slots.values();
    const slot = name === undefined ? first : this.#get(name);
    return slot === undefined ? 0 : slot.rule.schedule(this.#steps);
  }

  /**
   * One update of every parameter by its gradient, in place. Gradients are left as they are.
   *
   * @throws InvalidArgumentError, before any change, for an unknown skipped name or a schedule without a valid rate.
   */
  step(options: StepOptions = {}): void {
    assertOptions("optimizer", options, { skip: true });
    const { skip = [] } = options;
    if (typeof skip === "string" || typeof skip?.[Symbol.iterator] !== "function") {
      throw invalid("optimizer", "skip", textOf(skip), "an array of names");
    }
    const skipped = new Set(skip);
    for (const name of skipped) this.#get(name);
    const due = [...this.#slots].filter(([name]) => !skipped.has(name)).map(([, slot]) => slot);
    const rates = due.map(({ rule }) => rateAt(rule, this.#steps));
    for (const [at, slot] of due.entries()) {
      const { value, gradient } = slot.parameter;
      slot.steps += 1;
      slot.rule.update({
        value,
        gradient,
        slots: slot.arrays,
        step: slot.steps,
        learningRate: rates[at] as number,
      });
    }
    this.#steps += 1;
  }

  /** Counters, and the state arrays as `PARAMETER/SLOT` with the parameter's shape, sharing memory with the optimizer. */
  state(): State {
    const slots = [...this.#slots.values()];
    const steps = Object.fromEntries(slots.map(({ parameter, steps }) => [parameter.name, steps]));
    const rules = Object.fromEntries(
      slots.map(({ parameter, rule }) => [parameter.name, rule.name]),
    );
    const tensors = slots.flatMap(({ parameter: { name, dtype, shape }, arrays }) =>
      Object.entries(arrays).map(([slot, data]): [string, StateTensor] => [
        `${name}/${slot}`,
        { dtype, shape, data },
      ]),
    );
    return {
      values: { steps: this.#steps, updates: steps, rules },
      tensors: Object.fromEntries(tensors),
    };
  }

  /**
   * Takes over the state of an optimizer of the same parameters and rules.
   *
   * @throws InvalidArgumentError, before any change, for another rule, or a parameter or state array that is missing, unknown
   * or of another dtype or shape.
   */
  restore(state: State): void {
    assertState("optimizer", state);
    const { steps, updates, rules } = state.values;
    const counts = tableOf(updates);
    const names = tableOf(rules);
    if (!isCount(steps)) throw invalid("optimizer", "steps", textOf(steps), "a number of updates");
    const expected = this.state();
    for (const name of [...counts.keys(), ...names.keys()]) this.#get(name);
    for (const [name, { rule }] of this.#slots) {
      if (names.get(name) !== rule.name) {
        throw invalid(
          "optimizer",
          name,
          `state of the rule ${textOf(names.get(name))}`,
          `one of ${rule.name}`,
        );
      }
      if (!isCount(counts.get(name)))
        throw invalid("optimizer", name, `updates ${textOf(counts.get(name))}`, "a count");
    }
    for (const name of Object.keys(state.tensors)) {
      if (!Object.hasOwn(expected.tensors, name))
        throw invalid("optimizer", name, "state", "none of this name");
    }
    for (const [name, own] of Object.entries(expected.tensors)) {
      const found = Object.hasOwn(state.tensors, name) ? state.tensors[name] : undefined;
      const [finds, needs] = [tensorText(found), tensorText(own)];
      if (finds !== needs) throw invalid("optimizer", name, finds, needs);
    }
    this.#steps = steps;
    for (const [name, slot] of this.#slots) {
      slot.steps = counts.get(name) as number;
      for (const [each, array] of Object.entries(slot.arrays)) {
        array.set(state.tensors[`${name}/${each}`]?.data as ParameterArray);
      }
    }
  }

  #get(name: string): Slot {
    const slot = this.#slots.get(name);
    if (slot !== undefined) return slot;
    const known = [...this.#slots.keys()].join(", ");
    throw invalid("optimizer", name, "a name that no parameter has", `one of ${known}`);
  }
}

function stateArrays(rule: UpdateRule, { dtype, value }: Trainable): Slot["arrays"] {
  return Object.fromEntries(rule.slots.map((slot) => [slot, zerosOf(dtype, value.length)]));
}

function assertIterable(parameters: Iterable<Trainable>): void {
  if (typeof parameters === "object" && typeof parameters?.[Symbol.iterator] === "function") return;
  throw invalid(
    "optimizer",
    "parameters",
    textOf(parameters),
    "a ParameterSet or several of its parameters",
    parametersHint(parameters),
  );
}

function assertTrainable(parameter: Trainable): void {
  const { name, dtype, value, gradient, shape } = parameter ?? {};
  if (typeof name !== "string" || !Array.isArray(shape)) {
    const needed = "{ name, dtype, shape, value, gradient } of each";
    throw invalid("optimizer", "parameters", textOf(parameter), needed);
  }
  const describe = (array: ParameterArray): string => {
    const found = parameterDTypeOf(array);
    return found === undefined ? textOf(array) : `${found} with ${array.length} elements`;
  };
  const needed = `${dtype} with ${elementsOf(shape)} elements`;
  if (describe(value) !== needed)
    throw invalid("optimizer", name, `values of ${describe(value)}`, needed);
  if (describe(gradient) !== needed) {
    throw invalid("optimizer", name, `a gradient of ${describe(gradient)}`, needed);
  }
}

function rateAt(rule: UpdateRule, step: number): number {
  const rate = rule.schedule(step);
  if (typeof rate === "number" && rate >= 0 && rate < Number.POSITIVE_INFINITY) return rate;
  throw new InvalidArgumentError(
    {
      headline: `${rule.name}: learningRate: the schedule gave ${textOf(rate)} for step ${step}, needs a number of at least 0`,
    },
    { field: "learningRate" },
  );
}

/** The values of a record, by parameter name; empty for other values. */
function tableOf(value: StateValue | undefined): ReadonlyMap<string, StateValue> {
  return new Map(isRecord(value) ? Object.entries(value as Record<string, StateValue>) : []);
}

function assertRule(name: string, rule: UpdateRule): void {
  const fault = ruleFault(rule);
  if (fault === undefined) return;
  throw invalid("optimizer", name, fault, "an update rule, such as sgd({ learningRate: 0.1 })");
}
