/** Rows of a table by number, and a table of positions: the first layer of a language model. */
import type { ParameterArray } from "../parameter-set.ts";
import {
  assertElements,
  type Extent,
  type TakeGradient,
  type Weights,
  zerosLike,
} from "./layer.ts";

/** The parts of an embedding: a row of `width` numbers for each token, and one for each place in a sequence. */
export interface EmbeddingParts {
  readonly token: Weights;
  readonly position: Weights;
  readonly width: number;
}

/** A pass of the embedding; its input has no gradient. */
export interface EmbeddingPass {
  readonly output: ParameterArray;
  backward(gradient: ParameterArray, take: TakeGradient): void;
}

/** token[t] + position[place], for every token of the sequences. */
export function embed(
  { token, position, width }: EmbeddingParts,
  tokens: ArrayLike<number>,
  { sequences, length }: Extent,
): EmbeddingPass {
  const rows = sequences * length;
  // Not for backward: by then the values may be elsewhere, and must not be referenced.
  const [table, places] = [token.value, position.value];
  const output = zerosLike(table, rows * width);
  for (let row = 0; row < rows; row++) {
    const from = (tokens[row] as number) * width;
    const place = (row % length) * width;
    for (let i = 0; i < width; i++) {
      output[row * width + i] = (table[from + i] as number) + (places[place + i] as number);
    }
  }
  return {
    output,
    backward(gradient, take) {
      const of = `${rows} rows of ${width}`;
      assertElements("embed", "gradient", gradient, rows * width, of);
      const byToken = zerosLike(gradient, token.value.length);
      const byPosition = zerosLike(gradient, position.value.length);
      for (let row = 0; row < rows; row++) {
        const from = (tokens[row] as number) * width;
        const place = (row % length) * width;
        for (let i = 0; i < width; i++) {
          const above = gradient[row * width + i] as number;
          byToken[from + i] = (byToken[from + i] as number) + above;
          byPosition[place + i] = (byPosition[place + i] as number) + above;
        }
      }
      take(position.name, byPosition);
      take(token.name, byToken);
    },
  };
}
