/**
 * A small network for training tests, in plain loops: layers of tanh, squared error, gradients by hand.
 *
 * It knows nothing of ranks. `naiveRun` trains it on whole batches with nothing of the library but the memory of the
 * parameters: what many ranks have to come out at.
 */
import type { ParameterDeclaration, ParameterDType, Ready } from "twinccl/parallel";

/** Inputs and targets of one sample. */
export interface Sample {
  readonly input: readonly number[];
  readonly target: readonly number[];
}

/** Values by the names of their parameters. */
export type Values = ReadonlyMap<string, Float32Array | Float64Array>;

/** A source of numbers from 0 to 1, fixed by its seed; not the library's. */
function numbers(seed: number): () => number {
  let state = (seed * 2 + 1) >>> 0;
  return () => {
    state = (Math.imul(state, 1664525) + 1013904223) >>> 0;
    return ((state >>> 8) ^ (state >>> 20)) / 2 ** 24;
  };
}

/** A network of layers of the given widths. */
export class SmallNetwork {
  readonly widths: readonly number[];
  readonly dtype: ParameterDType;
  /** Gradients of single samples are rounded to multiples of this, so that few of them add up exactly; 0: not at all. */
  readonly quantum: number;

  constructor(widths: readonly number[], dtype: ParameterDType = "float64", quantum = 0) {
    this.widths = widths;
    this.dtype = dtype;
    this.quantum = quantum;
  }

  get layers(): number {
    return this.widths.length - 1;
  }

  /** The parameters in order of use, with values that a seed fixes. */
  declarations(seed: number): ParameterDeclaration[] {
    const next = numbers(seed);
    return Array.from({ length: this.layers }, (_, layer) => {
      const [inputs, outputs] = [this.widths[layer]!, this.widths[layer + 1]!];
      const values = Array.from({ length: inputs * outputs }, () => next() - 0.5);
      const dtype = this.dtype;
      return [
        { name: `weight${layer}`, dtype, shape: [outputs, inputs], values },
        { name: `bias${layer}`, dtype, shape: [outputs], values: new Array(outputs).fill(0.125) },
      ];
    }).flat();
  }

  /** Samples of a fixed relation with some noise. */
  samples(count: number, seed: number): Sample[] {
    const next = numbers(seed + 77);
    return Array.from({ length: count }, () => {
      const input = Array.from({ length: this.widths[0]! }, () => 2 * next() - 1);
      const sum = input.reduce((total, each, at) => total + each * ((at % 3) - 1), 0);
      const target = Array.from({ length: this.widths.at(-1)! }, (_, at) =>
        Math.sin(sum + at + 0.1 * next()),
      );
      return { input, target };
    });
  }

  /** Sum of the losses of some samples; reports the gradients of that sum, last layer first. */
  backward(values: Values, samples: readonly Sample[], ready: Ready): number {
    const traces = samples.map(({ input }) => this.#forward(values, input));
    let loss = 0;
    // Of every sample: the derivative of its loss by the outputs of the present layer.
    let errors = traces.map((trace, at) => {
      return trace.at(-1)!.map((output, unit) => {
        const difference = output - samples[at]!.target[unit]!;
        loss += difference * difference;
        return 2 * difference;
      });
    });
    for (let layer = this.layers - 1; layer >= 0; layer--) {
      const weight = values.get(`weight${layer}`)!;
      const [inputs, outputs] = [this.widths[layer]!, this.widths[layer + 1]!];
      const weightGradient = new Float64Array(inputs * outputs);
      const biasGradient = new Float64Array(outputs);
      const before = errors.map(() => new Array<number>(inputs).fill(0));
      for (const [at, error] of errors.entries()) {
        const [seen, given] = [traces[at]![layer]!, traces[at]![layer + 1]!];
        for (let unit = 0; unit < outputs; unit++) {
          const slope = error[unit]! * (1 - given[unit]! * given[unit]!);
          biasGradient[unit]! += this.#rounded(slope);
          for (let input = 0; input < inputs; input++) {
            weightGradient[unit * inputs + input]! += this.#rounded(slope * seen[input]!);
            before[at]![input]! += slope * weight[unit * inputs + input]!;
          }
        }
      }
      errors = before;
      const create = this.dtype === "float32" ? Float32Array : Float64Array;
      ready(`weight${layer}`, create.from(weightGradient));
      ready(`bias${layer}`, create.from(biasGradient));
    }
    return loss;
  }

  #forward(values: Values, input: readonly number[]): number[][] {
    const trace = [[...input]];
    for (let layer = 0; layer < this.layers; layer++) {
      const [weight, bias] = [values.get(`weight${layer}`)!, values.get(`bias${layer}`)!];
      const seen = trace[layer]!;
      const given = Array.from(bias, (start, unit) => {
        let sum = start;
        for (let at = 0; at < seen.length; at++)
          sum += weight[unit * seen.length + at]! * seen[at]!;
        return Math.tanh(sum);
      });
      trace.push(given);
    }
    return trace;
  }

  #rounded(value: number): number {
    return this.quantum === 0 ? value : Math.round(value / this.quantum) * this.quantum;
  }
}

/** The result of one rank's run: the loss of every step, the norms of the gradients, and the last values. */
export interface NaiveRun {
  readonly losses: number[];
  readonly norms: number[];
  readonly values: Map<string, Float32Array | Float64Array>;
}

/** Trains on whole batches by momentum: mean gradient, clipped by its norm, everything in the network's dtype. */
export function naiveRun(
  network: SmallNetwork,
  seed: number,
  batches: readonly (readonly Sample[])[],
  { rate = 0.0625, momentum = 0.5, clip = Number.POSITIVE_INFINITY } = {},
): NaiveRun {
  const create = network.dtype === "float32" ? Float32Array : Float64Array;
  const values = new Map(
    network.declarations(seed).map(({ name, values: from }) => [name, create.from(from!)]),
  );
  const speeds = new Map([...values].map(([name, each]) => [name, each.slice().fill(0)]));
  const run: NaiveRun = { losses: [], norms: [], values };
  for (const batch of batches) {
    const gradients = new Map<string, Float32Array | Float64Array>();
    const loss = network.backward(values, batch, (name, gradient) => {
      gradients.set(
        name,
        gradient.map((each) => each / batch.length),
      );
    });
    let square = 0;
    for (const name of [...gradients.keys()].sort()) {
      for (const each of gradients.get(name)!) square += each * each;
    }
    const norm = Math.sqrt(square);
    run.losses.push(loss / batch.length);
    run.norms.push(norm);
    for (const [name, gradient] of gradients) {
      const clipped = norm > clip ? gradient.map((each) => each * (clip / norm)) : gradient;
      descend(values.get(name)!, speeds.get(name)!, clipped, rate, momentum);
    }
  }
  return run;
}

/** One step of descent with momentum. */
export function descend(
  values: Float32Array | Float64Array,
  speeds: Float32Array | Float64Array,
  gradient: Float32Array | Float64Array,
  rate: number,
  momentum: number,
): void {
  for (let at = 0; at < values.length; at++) {
    speeds[at] = momentum * speeds[at]! + gradient[at]!;
    values[at] = values[at]! - rate * speeds[at]!;
  }
}
