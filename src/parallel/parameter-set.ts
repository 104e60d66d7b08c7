/**
 * Named, typed, shaped parameters of a model, with a gradient each.
 *
 * Values and gradients are host memory: one TypedArray per dtype, with the parameters in the order of their names. Names are
 * compared by UTF-16 code units: not by locale, not by hash, not by insertion. So the same model has the same layout on every
 * rank and in every run. The order of declaration is kept as well: it counts as the order of use, which gradient buckets
 * follow.
 */

import { getOrCreate } from "../api/get-or-create.ts";
import { InvalidArgumentError } from "../api/index.ts";
import { assertOptions, invalid, listText, type OptionKinds, textOf } from "../api/option-kinds.ts";
import { typedArrayClass } from "../api/typed-array.ts";
import { assertState, elementsOf, type State, type Stateful, type StateTensor } from "./state.ts";

/** Element types that parameters have. Shorter floats exist only in messages (`DataParallelOptions.wire`). */
export type ParameterDType = "float32" | "float64";

/** The host array of a parameter. */
export type ParameterArray = Float32Array | Float64Array;

/** The dtype of an array of any realm, such as a clone in a test of Jest; `undefined` for anything else. */
export function parameterDTypeOf(value: unknown): ParameterDType | undefined {
  const found = typedArrayClass(value);
  if (found === "Float32Array") return "float32";
  return found === "Float64Array" ? "float64" : undefined;
}

/** True for an array of parameters, of any realm. */
export function isParameterArray(value: unknown): value is ParameterArray {
  return parameterDTypeOf(value) !== undefined;
}

/** A new array of a dtype. */
export function zerosOf(dtype: ParameterDType, length: number): ParameterArray {
  return dtype === "float32" ? new Float32Array(length) : new Float64Array(length);
}

/** Declares one parameter of a model. */
export interface ParameterDeclaration {
  /** Unique in its set. */
  readonly name: string;
  /** `float32` when left out. */
  readonly dtype?: ParameterDType | undefined;
  /** Extents, slowest first; `[]` is a single number. */
  readonly shape: readonly number[];
  /** Initial values in row-major order, as many as the shape has elements; zeros when left out. */
  readonly values?: ArrayLike<number> | undefined;
}

/** One parameter: its description and its live memory. */
export interface Parameter {
  readonly name: string;
  readonly dtype: ParameterDType;
  readonly shape: readonly number[];
  /** Number of elements. */
  readonly length: number;
  /** Its place in the order of names, from 0. */
  readonly index: number;
  /** Its place in the order of declaration, from 0. */
  readonly declared: number;
  /** The values, row-major. Writing changes the model. */
  readonly value: ParameterArray;
  /** The gradient, of the same length: written by `DataParallel`, read by an optimizer. */
  readonly gradient: ParameterArray;
}

/**
 * The parameters of a model, iterated in the order of their names.
 *
 * @throws InvalidArgumentError for a name that is empty or taken, an invalid dtype or shape, or values of another length.
 * @example
 * const model = new ParameterSet([{ name: "w", shape: [784, 10] }, { name: "b", shape: [10] }]);
 */
export class ParameterSet implements Stateful, Iterable<Parameter> {
  /** All names, in order. */
  readonly names: readonly string[];
  readonly #byName: ReadonlyMap<string, Parameter>;
  /** Absent once a trainer holds values and gradients elsewhere. */
  #flat: ReadonlyMap<ParameterDType, Flat> | undefined;
  /** Each parameter's values, by index; `undefined` while this rank has only a part of them. */
  readonly #places: (ParameterArray | undefined)[];

  constructor(declarations: readonly ParameterDeclaration[]) {
    assertArray(declarations);
    const firsts = new Map<string, number>();
    for (const [at, each] of declarations.entries()) assertDeclared(each, at, firsts);
    const order = declarations
      .map((declaration, declared) => ({ ...declaration, declared }))
      .sort((a, b) => (a.name < b.name ? -1 : 1));
    const lengths = { float32: 0, float64: 0 };
    const begins = order.map(({ dtype = "float32", shape }) => {
      lengths[dtype] += elementsOf(shape);
      return lengths[dtype] - elementsOf(shape);
    });
    // No variable holds these arrays: closures created here would keep them after the set drops them.
    this.#flat = new Map(
      (["float32", "float64"] as const).map((dtype) => [dtype, new Flat(dtype, lengths[dtype])]),
    );
    this.#places = order.map(({ dtype = "float32", shape, values }, index) => {
      const begin = begins[index] as number;
      const value = this.#flatOf(dtype).values.subarray(begin, begin + elementsOf(shape));
      if (values !== undefined) value.set(values);
      return value;
    });
    const gradientAt = (index: number, dtype: ParameterDType, length: number): ParameterArray => {
      const begin = begins[index] as number;
      return this.#flatOf(dtype).gradients.subarray(begin, begin + length);
    };
    const valueAt = (index: number): ParameterArray => this.#valueAt(index);
    const parameters = order.map(
      ({ name, dtype = "float32", shape, declared }, index): Parameter => {
        const length = elementsOf(shape);
        return {
          name,
          dtype,
          shape: [...shape],
          length,
          index,
          declared,
          get value() {
            return valueAt(index);
          },
          get gradient() {
            return gradientAt(index, dtype, length);
          },
        };
      },
    );
    this.names = parameters.map(({ name }) => name);
    this.#byName = new Map(parameters.map((parameter) => [parameter.name, parameter]));
  }

  /** Number of parameters. */
  get size(): number {
    return this.names.length;
  }

  /** Number of elements of all parameters together. */
  get elements(): number {
    return [...this].reduce((sum, { length }) => sum + length, 0);
  }

  /** The parameters in the order of their names. */
  [Symbol.iterator](): IterableIterator<Parameter> {
    return this.#byName.values();
  }

  /** True when a parameter has this name. */
  has(name: string): boolean {
    return this.#byName.has(name);
  }

  /**
   * The parameter of a name.
   *
   * @throws InvalidArgumentError when there is none.
   */
  get(name: string): Parameter {
    const parameter = this.#byName.get(name);
    if (parameter !== undefined) return parameter;
    const isText = typeof name === "string";
    throw new InvalidArgumentError(
      {
        headline: `parameter ${isText ? `"${name}"` : textOf(name)}: no parameter has this name`,
        hint: `parameters are ${this.names.join(", ")}`,
      },
      { field: isText ? name : "name" },
    );
  }

  /** The values of all parameters of a dtype, in the order of names. Live memory. */
  values(dtype: "float32"): Float32Array;
  values(dtype: "float64"): Float64Array;
  values(dtype: ParameterDType): ParameterArray;
  values(dtype: ParameterDType): ParameterArray {
    return this.#flatOf(dtype).values;
  }

  /** The gradients of all parameters of a dtype, laid out as `values`. Live memory. */
  gradients(dtype: "float32"): Float32Array;
  gradients(dtype: "float64"): Float64Array;
  gradients(dtype: ParameterDType): ParameterArray;
  gradients(dtype: ParameterDType): ParameterArray {
    return this.#flatOf(dtype).gradients;
  }

  /** Sets every gradient to zero. */
  zeroGradients(): void {
    for (const dtype of ["float32", "float64"] as const) this.#flatOf(dtype).zero();
  }

  /**
   * Sets or removes the memory of a parameter's values, and drops the set's own: for trainers that hold a part of every
   * parameter. From then on `values(dtype)`, `gradients(dtype)`, gradients and removed values are refused.
   */
  place(name: string, value: ParameterArray | undefined): void {
    const { index } = this.get(name);
    this.#flat = undefined;
    this.#places[index] = value;
  }

  /** The values by name, sharing memory with the set. */
  state(): State {
    const tensors = [...this].map(({ name, dtype, shape, value }): [string, StateTensor] => [
      name,
      { dtype, shape, data: value },
    ]);
    return { values: {}, tensors: Object.fromEntries(tensors) };
  }

  /**
   * Takes over values by name; gradients do not change.
   *
   * @throws InvalidArgumentError, before any change, for a parameter that is missing, unknown or of another dtype or shape.
   */
  restore(state: State): void {
    assertState("restore", state);
    const { tensors } = state;
    for (const name of Object.keys(tensors)) this.get(name);
    for (const { name, dtype, shape } of this) {
      const found = Object.hasOwn(tensors, name) ? tensors[name] : undefined;
      const needs = `${dtype} [${shape.join(", ")}]`;
      const finds = found === undefined ? "nothing" : `${found.dtype} [${found.shape.join(", ")}]`;
      if (finds === needs && found?.data.length === elementsOf(shape)) continue;
      throw invalid("restore", `parameter "${name}"`, finds, needs, undefined, { field: name });
    }
    for (const { name, value } of this) value.set(tensors[name]?.data as ParameterArray);
  }

  #flatOf(dtype: ParameterDType): Flat {
    const flat = this.#flat?.get(dtype);
    if (flat !== undefined) return flat;
    if (this.#flat !== undefined)
      throw invalid("parameters", "dtype", textOf(dtype), '"float32" or "float64"');
    throw new InvalidArgumentError(
      {
        headline:
          "parameters: values and gradients of this set are held in shards, needs whole ones",
        hint: "a trainer holds them: hand gradients to `ready`, read values parameter by parameter, declare another set for another trainer",
      },
      { field: dtype },
    );
  }

  #valueAt(index: number): ParameterArray {
    const value = this.#places[index];
    if (value !== undefined) return value;
    const name = this.names[index] as string;
    throw new InvalidArgumentError(
      {
        headline: `parameter "${name}": its values are not gathered on this rank`,
        hint: "visit its layer in backward, or await gatherValues() of the trainer",
      },
      { field: name },
    );
  }
}

/** Zeros for declared parameters; refuses more than one array holds. */
export function checkedZeros(dtype: ParameterDType, length: number): ParameterArray {
  try {
    return zerosOf(dtype, length);
  } catch {
    const found = `${length} elements of ${dtype}`;
    throw invalid("ParameterSet", "declarations", found, "no more than one array holds here");
  }
}

/** The memory of all parameters of one dtype; that of gradients is allocated at their first use. */
class Flat {
  readonly values: ParameterArray;
  #gradients: ParameterArray | undefined;

  constructor(dtype: ParameterDType, length: number) {
    this.values = checkedZeros(dtype, length);
  }

  get gradients(): ParameterArray {
    this.#gradients ??= this.values.slice().fill(0);
    return this.#gradients;
  }

  zero(): void {
    this.#gradients?.fill(0);
  }
}

const kinds: OptionKinds<ParameterDeclaration> = {
  ...{ name: true, dtype: true, shape: true, values: true },
};

function assertArray(declarations: unknown): void {
  if (Array.isArray(declarations)) return;
  const found = textOf(declarations);
  throw invalid("ParameterSet", "declarations", found, "an array of { name, shape }");
}

/** `firsts`: the first declaration of each name so far. */
function assertDeclared(
  declaration: ParameterDeclaration,
  at: number,
  firsts: Map<string, number>,
): void {
  assertOptions("ParameterSet", declaration, kinds, { path: `declarations[${at}]` });
  const { name, dtype = "float32", shape, values } = declaration;
  if (typeof name !== "string") {
    const where = `declarations[${at}].name`;
    throw invalid("ParameterSet", where, textOf(name), "a text that is not empty");
  }
  const fault = (field: string, found: string, needed: string): InvalidArgumentError =>
    invalid(`parameter ${at} "${name}"`, field, found, needed, undefined, { field: name });
  if (name === "") throw fault("name", textOf(name), "a text that is not empty");
  const same = getOrCreate(firsts, name, () => at);
  if (same !== at) throw fault("name", `the name of parameter ${same}`, "one of its own");
  if (dtype !== "float32" && dtype !== "float64") {
    throw fault("dtype", textOf(dtype), '"float32" or "float64"');
  }
  if (!Array.isArray(shape) || !shape.every((each) => Number.isSafeInteger(each) && each >= 0)) {
    const found = Array.isArray(shape) ? listText(shape) : textOf(shape);
    throw fault("shape", found, "an array of integers of at least 0");
  }
  const length = elementsOf(shape);
  if (!Number.isSafeInteger(length)) throw fault("shape", `[${shape}]`, "fewer elements");
  if (values === undefined) return;
  if (values?.length !== length) {
    const isList = typeof values?.length === "number";
    const found = isList ? `${values.length} elements` : textOf(values);
    throw fault("values", found, `${length} elements, the product of [${shape}]`);
  }
  if (isParameterArray(values)) return;
  for (let each = 0; each < length; each++) {
    if (typeof values[each] === "number") continue;
    throw fault(`values[${each}]`, textOf(values[each]), "a number");
  }
}
