/**
 * Named, typed, shaped parameters of a model, with a gradient each.
 *
 * Values and gradients are host memory, one TypedArray per dtype in which the parameters follow one another in the order
 * of their names, whatever order they were declared in. Names are compared by UTF-16 code units: not by locale, not by
 * hash, not by insertion. So the same model has the same layout on every rank and in every run. What was declared first
 * is remembered as well: it is taken as the order of use, from which gradient buckets are made.
 */
import { InvalidArgumentError } from "../api/index.ts";
import { elementsOf, type State, type Stateful, type StateTensor } from "./state.ts";

/** Element types that parameters have. Shorter floats exist on the wire only (`DataParallelOptions.wire`). */
export type ParameterDType = "float32" | "float64";

/** The host array of a parameter. */
export type ParameterArray = Float32Array | Float64Array;

/** Declares one parameter of a model. */
export interface ParameterDeclaration {
  /** Unique in its set. */
  readonly name: string;
  /** `float32` when left out. */
  readonly dtype?: ParameterDType;
  /** Extents, slowest first; `[]` is a single number. */
  readonly shape: readonly number[];
  /** Initial values in row-major order, as many as the shape has elements; zeros when left out. */
  readonly values?: ArrayLike<number>;
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
  /** The gradient, of the same length: what `DataParallel` leaves and an optimizer reads. */
  readonly gradient: ParameterArray;
}

/**
 * The parameters of a model, iterated in the order of their names.
 *
 * @throws InvalidArgumentError for a name that is empty or taken, a dtype or shape that is none, values of another length.
 * @example
 * const model = new ParameterSet([{ name: "w", shape: [784, 10] }, { name: "b", shape: [10] }]);
 */
export class ParameterSet implements Stateful, Iterable<Parameter> {
  /** All names, in order. */
  readonly names: readonly string[];
  readonly #byName: ReadonlyMap<string, Parameter>;
  readonly #flat: ReadonlyMap<ParameterDType, Flat>;

  constructor(declarations: readonly ParameterDeclaration[]) {
    for (const [at, each] of declarations.entries()) assertDeclared(each, at, declarations);
    const order = declarations
      .map((declaration, declared) => ({ ...declaration, declared }))
      .sort((a, b) => (a.name < b.name ? -1 : 1));
    this.#flat = new Map(
      (["float32", "float64"] as const).map((dtype) => {
        const lengths = order
          .filter((each) => (each.dtype ?? "float32") === dtype)
          .map(({ shape }) => elementsOf(shape));
        return [dtype, allocate(dtype, lengths.reduce(add, 0))];
      }),
    );
    const used = { float32: 0, float64: 0 };
    const parameters = order.map((declaration, index): Parameter => {
      const { name, dtype = "float32", shape, values, declared } = declaration;
      const length = elementsOf(shape);
      const begin = used[dtype];
      used[dtype] += length;
      const flat = this.#flat.get(dtype) as Flat;
      const value = flat.values.subarray(begin, begin + length);
      const gradient = flat.gradients.subarray(begin, begin + length);
      if (values !== undefined) value.set(values);
      return { name, dtype, shape: [...shape], length, index, declared, value, gradient };
    });
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
    throw new InvalidArgumentError(
      {
        headline: `parameter "${String(name)}": no parameter has this name`,
        hint: `parameters are ${this.names.join(", ")}`,
      },
      { field: String(name) },
    );
  }

  /** The values of all parameters of a dtype, one after another in the order of names. Live memory. */
  values(dtype: "float32"): Float32Array;
  values(dtype: "float64"): Float64Array;
  values(dtype: ParameterDType): ParameterArray;
  values(dtype: ParameterDType): ParameterArray {
    return (this.#flat.get(dtype) as Flat).values;
  }

  /** The gradients of all parameters of a dtype, laid out as `values`. Live memory. */
  gradients(dtype: "float32"): Float32Array;
  gradients(dtype: "float64"): Float64Array;
  gradients(dtype: ParameterDType): ParameterArray;
  gradients(dtype: ParameterDType): ParameterArray {
    return (this.#flat.get(dtype) as Flat).gradients;
  }

  /** Sets every gradient to zero. */
  zeroGradients(): void {
    for (const { gradients } of this.#flat.values()) gradients.fill(0);
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
   * Takes over values by name; gradients are left as they are.
   *
   * @throws InvalidArgumentError for a parameter that is missing, unknown or of another dtype or shape; nothing is changed.
   */
  restore(state: State): void {
    const { tensors } = state;
    for (const name of Object.keys(tensors)) this.get(name);
    for (const { name, dtype, shape } of this) {
      const found = Object.hasOwn(tensors, name) ? tensors[name] : undefined;
      const needs = `${dtype} [${shape.join(", ")}]`;
      const finds = found === undefined ? "nothing" : `${found.dtype} [${found.shape.join(", ")}]`;
      if (finds === needs && found?.data.length === elementsOf(shape)) continue;
      throw new InvalidArgumentError(
        { headline: `restore: parameter "${name}": found ${finds}, needs ${needs}` },
        { field: name },
      );
    }
    for (const { name, value } of this) value.set(tensors[name]?.data as ParameterArray);
  }
}

/** The memory of all parameters of one dtype. */
interface Flat {
  readonly values: ParameterArray;
  readonly gradients: ParameterArray;
}

function allocate(dtype: ParameterDType, length: number): Flat {
  return dtype === "float32"
    ? { values: new Float32Array(length), gradients: new Float32Array(length) }
    : { values: new Float64Array(length), gradients: new Float64Array(length) };
}

function add(a: number, b: number): number {
  return a + b;
}

function assertDeclared(
  declaration: ParameterDeclaration,
  at: number,
  all: readonly ParameterDeclaration[],
): void {
  const { name, dtype = "float32", shape, values } = declaration;
  const fault = (field: string, found: string, needed: string): InvalidArgumentError =>
    new InvalidArgumentError(
      { headline: `parameter ${at} "${String(name)}": ${field}: found ${found}, needs ${needed}` },
      { field: String(name) },
    );
  if (typeof name !== "string" || name === "") {
    throw fault("name", `${typeof name} "${String(name)}"`, "a text that is not empty");
  }
  const same = all.findIndex((each) => each.name === name);
  if (same !== at) throw fault("name", `the name of parameter ${same}`, "one of its own");
  if (dtype !== "float32" && dtype !== "float64") {
    throw fault("dtype", `"${String(dtype)}"`, '"float32" or "float64"');
  }
  if (!Array.isArray(shape) || !shape.every((each) => Number.isSafeInteger(each) && each >= 0)) {
    throw fault("shape", `[${String(shape)}]`, "an array of integers of at least 0");
  }
  const length = elementsOf(shape);
  if (!Number.isSafeInteger(length)) throw fault("shape", `[${shape}]`, "fewer elements");
  if (values !== undefined && values.length !== length) {
    throw fault("values", `${values.length} elements`, `${length}, the product of [${shape}]`);
  }
}
