/** Causal attention: every row of a sequence attends to itself and the rows before it, separately in each head. */

import { assertCount } from "../argument-checks.ts";
import type { ParameterArray } from "../parameter-set.ts";
import {
  addScaled,
  assertElements,
  assertLayer,
  type Extent,
  type Layer,
  rowsOf,
  zerosLike,
} from "./layer.ts";

/** Rows of `heads * headWidth` numbers, one head beside the other. */
export interface Heads {
  readonly heads: number;
  readonly headWidth: number;
}

/** Query, key and value rows; also their gradients. */
export interface Triple {
  readonly query: ParameterArray;
  readonly key: ParameterArray;
  readonly value: ParameterArray;
}

/** One forward pass of attention. */
export interface AttentionPass {
  readonly output: ParameterArray;
  backward(gradient: ParameterArray): Triple;
}

/** softmax(q kᵀ / √headWidth, masked to the past) v, as PyTorch's causal scaled dot product attention. */
function attend(triple: Triple, extent: Extent, shape: Heads): AttentionPass {
  const { query } = triple;
  const { sequences, length } = extent;
  const needed = rowsOf(extent) * shape.heads * shape.headWidth;
  const of = `${rowsOf(extent)} rows, ${shape.heads} heads and a head width of ${shape.headWidth}`;
  for (const name of ["query", "key", "value"] as const) {
    assertElements("selfAttention", name, triple[name], needed, of);
  }
  const output = zerosLike(query, query.length);
  const shares = zerosLike(query, sequences * shape.heads * length * length);
  const places = eachHead(extent, shape);
  for (const place of places) forwardHead(triple, output, shares, place);
  return {
    output,
    backward(gradient) {
      assertElements("selfAttention", "gradient", gradient, needed, of);
      const below: Triple = {
        query: zerosLike(query, query.length),
        key: zerosLike(query, query.length),
        value: zerosLike(query, query.length),
      };
      for (const place of places) backwardHead(triple, below, gradient, shares, place);
      return below;
    },
  };
}

/** The place of one head of one sequence: element of its first row, its shares, and the distance between rows. */
interface Place {
  readonly begin: number;
  readonly shares: number;
  readonly stride: number;
  readonly length: number;
  readonly width: number;
}

function eachHead({ sequences, length }: Extent, { heads, headWidth }: Heads): Place[] {
  const stride = heads * headWidth;
  return Array.from({ length: sequences * heads }, (_, at) => ({
    begin: Math.floor(at / heads) * length * stride + (at % heads) * headWidth,
    shares: at * length * length,
    stride,
    length,
    width: headWidth,
  }));
}

function forwardHead(
  { query, key, value }: Triple,
  output: ParameterArray,
  shares: ParameterArray,
  { begin, shares: first, stride, length, width }: Place,
): void {
  const scale = 1 / Math.sqrt(width);
  for (let row = 0; row < length; row++) {
    const q = begin + row * stride;
    const p = first + row * length;
    let largest = Number.NEGATIVE_INFINITY;
    for (let past = 0; past <= row; past++) {
      const score = scale * dot(query, q, key, begin + past * stride, width);
      shares[p + past] = score;
      largest = Math.max(largest, score);
    }
    let total = 0;
    for (let past = 0; past <= row; past++) {
      shares[p + past] = Math.exp((shares[p + past] as number) - largest);
      total += shares[p + past] as number;
    }
    for (let past = 0; past <= row; past++) {
      shares[p + past] = (shares[p + past] as number) / total;
      addScaled(output, q, shares[p + past] as number, value, begin + past * stride, width);
    }
  }
}

function backwardHead(
  { query, key, value }: Triple,
  below: Triple,
  gradient: ParameterArray,
  shares: ParameterArray,
  { begin, shares: first, stride, length, width }: Place,
): void {
  const scale = 1 / Math.sqrt(width);
  const slopes = new Float64Array(length);
  for (let row = 0; row < length; row++) {
    const at = begin + row * stride;
    const p = first + row * length;
    let mean = 0;
    for (let past = 0; past <= row; past++) {
      const share = shares[p + past] as number;
      const slope = dot(gradient, at, value, begin + past * stride, width);
      slopes[past] = slope;
      mean += share * slope;
      addScaled(below.value, begin + past * stride, share, gradient, at, width);
    }
    for (let past = 0; past <= row; past++) {
      const other = begin + past * stride;
      const score = scale * (shares[p + past] as number) * ((slopes[past] as number) - mean);
      addScaled(below.query, at, score, key, other, width);
      addScaled(below.key, other, score, query, at, width);
    }
  }
}

function dot(a: ParameterArray, i: number, b: ParameterArray, j: number, count: number): number {
  let sum = 0;
  for (let at = 0; at < count; at++) sum += (a[i + at] as number) * (b[j + at] as number);
  return sum;
}

/** The four linear layers of self-attention, of which the first three read the same input. */
export interface SelfAttentionParts extends Heads {
  readonly query: Layer;
  readonly key: Layer;
  readonly value: Layer;
  readonly output: Layer;
}

/**
 * Self-attention of a block: three linear layers, `attend`, and a linear layer over the heads' results.
 *
 * @throws InvalidArgumentError by `forward`, for a query, key or value of another length than the heads have.
 */
export function selfAttention(parts: SelfAttentionParts): Layer {
  const { query, key, value, output, ...shape } = parts ?? {};
  for (const [name, layer] of Object.entries({ query, key, value, output })) {
    assertLayer("selfAttention", name, layer);
  }
  assertCount("selfAttention", "heads", shape.heads, 0);
  assertCount("selfAttention", "headWidth", shape.headWidth, 0);
  return {
    forward(input, extent) {
      const q = query.forward(input, extent);
      const k = key.forward(input, extent);
      const v = value.forward(input, extent);
      const mixed = attend({ query: q.output, key: k.output, value: v.output }, extent, shape);
      const out = output.forward(mixed.output, extent);
      return {
        output: out.output,
        backward(gradient, take) {
          const inner = mixed.backward(out.backward(gradient, take));
          const below = v.backward(inner.value, take);
          const others = [k.backward(inner.key, take), q.backward(inner.query, take)];
          for (const other of others) addScaled(below, 0, 1, other, 0, below.length);
          return below;
        },
      };
    },
  };
}
