/** Activations, element by element. */
import { assertElements, type Layer, lengthOf, zerosLike } from "./layer.ts";

/** The hyperbolic tangent. */
export function tanh(): Layer {
  return elementwise(Math.tanh, (x) => 1 - Math.tanh(x) ** 2);
}

const SCALE = Math.sqrt(2 / Math.PI);
const CUBE = 0.044715;

/** The Gaussian error linear unit by its tanh form, as PyTorch's `gelu(x, approximate="tanh")`. */
export function gelu(): Layer {
  return elementwise(
    (x) => 0.5 * x * (1 + Math.tanh(SCALE * (x + CUBE * x * x * x))),
    (x) => {
      const t = Math.tanh(SCALE * (x + CUBE * x * x * x));
      return 0.5 * (1 + t) + 0.5 * x * (1 - t * t) * SCALE * (1 + 3 * CUBE * x * x);
    },
  );
}

function elementwise(f: (x: number) => number, slope: (x: number) => number): Layer {
  return {
    forward(input) {
      const output = zerosLike(input, lengthOf("activation", "input", input));
      for (let i = 0; i < input.length; i++) output[i] = f(input[i] as number);
      return {
        output,
        backward(gradient) {
          assertElements("activation", "gradient", gradient, input.length, "the input");
          const below = zerosLike(gradient, gradient.length);
          for (let i = 0; i < input.length; i++) {
            below[i] = (gradient[i] as number) * slope(input[i] as number);
          }
          return below;
        },
      };
    },
  };
}
