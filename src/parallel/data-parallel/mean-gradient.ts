/** The treatment of a step's summed gradients: divide, measure, refuse or clip. The same on every rank. */
import { combineNorms, type Divided, groupByCopies, type NamedGradient } from "../divided.ts";

/** Divides the summed gradients by the weight of all samples; one rounding each. */
export function divideGradients(parameters: Iterable<NamedGradient>, weight: number): void {
  for (const { gradient } of parameters) {
    for (let at = 0; at < gradient.length; at++) gradient[at] = (gradient[at] as number) / weight;
  }
}

/** The Euclidean norm of all gradients together, summed in double precision in the order of names. */
function gradientNorm(parameters: Iterable<NamedGradient>): number {
  const all = [...parameters];
  const plain = Math.sqrt(sumOfSquares(all, 1));
  if (Number.isNaN(plain) || (plain > 1e-150 && plain < 1e150)) return plain;
  // The squares may have left the range of doubles: measure in units of the largest element.
  let most = 0;
  for (const { gradient } of all) {
    for (const each of gradient) most = Math.max(most, Math.abs(each));
  }
  if (most === 0 || most === Number.POSITIVE_INFINITY) return most;
  return Math.sqrt(sumOfSquares(all, most)) * most;
}

/** This rank's share in the norm of a divided model: what several ranks have counts once among them. */
export function shareOfNorm(
  parameters: Iterable<NamedGradient>,
  divided: Divided | undefined,
): number {
  if (divided === undefined) return gradientNorm(parameters);
  return combineNorms(
    groupByCopies(parameters, divided).map(([copies, of]) => gradientNorm(of) / Math.sqrt(copies)),
  );
}

function sumOfSquares(parameters: readonly NamedGradient[], unit: number): number {
  let sum = 0;
  for (const { gradient } of parameters) {
    for (const each of gradient) sum += (each / unit) * (each / unit);
  }
  return sum;
}

/** The names of parameters with an infinity or a NaN in their gradient. */
export function nonFinite(parameters: Iterable<NamedGradient>): string[] {
  return [...parameters]
    .filter(({ gradient }) => !gradient.every((each) => Number.isFinite(each)))
    .map(({ name }) => name);
}

/**
 * Scales all gradients down so that their norm is at most `most`; gives the factor, 1 where nothing was done: also by a norm
 * that is not finite, which would leave nothing of them.
 */
export function clipGradients(
  parameters: Iterable<NamedGradient>,
  norm: number,
  most: number,
): number {
  if (!(norm > most) || norm === Number.POSITIVE_INFINITY) return 1;
  const factor = most / norm;
  for (const { gradient } of parameters) {
    for (let at = 0; at < gradient.length; at++) gradient[at] = (gradient[at] as number) * factor;
  }
  return factor;
}
