/** Elements of a call with bits that depend on the order of folding. Only on these can a comparison find a wrong order. */
import { foldFor, lanesOf } from "../algorithms/index.ts";
import { seesOrder } from "../algorithms/nccl/differing.ts";
import { bytesOf, type HostArray } from "../api/index.ts";
import { type GoldenCase, operatorOf } from "./case.ts";
import { inputOf } from "./inputs.ts";

/**
 * Number of elements with other bits when the ranks' contributions are folded in reverse order; elements of a result that all
 * ranks share count once. Costs two folds of the inputs where the type is a float and the operator no minimum or maximum, else
 * nothing.
 */
export function orderSensitiveElements(golden: GoldenCase): number {
  const { dtype, ranks } = golden;
  if (!seesOrder({ dtype, op: operatorOf(golden) })) return 0;
  const inputs = Array.from({ length: ranks }, (_, rank) => inputOf(golden, rank));
  return differing(folded(golden, inputs), folded(golden, inputs.reverse()), bytesOf(dtype));
}

function folded(golden: GoldenCase, inputs: readonly HostArray[]): ArrayBuffer {
  const { dtype, ranks } = golden;
  const fold = foldFor(dtype, operatorOf(golden), ranks, "fused");
  const sources = inputs.map((input) => lanesOf(dtype, input.buffer, 0, input.byteLength));
  const [first] = inputs as [HostArray];
  const memory = new ArrayBuffer(first.byteLength);
  const result = lanesOf(dtype, memory, 0, memory.byteLength);
  const starts = sources.map(() => 0);
  fold.chain(result, 0, sources, starts, first.length);
  fold.finish(result, 0, first.length);
  return memory;
}

/** Number of elements with different bits. */
function differing(a: ArrayBuffer, b: ArrayBuffer, elementBytes: number): number {
  if (elementBytes === 1) return differingWords(new Uint8Array(a), new Uint8Array(b), 1);
  if (elementBytes === 2) return differingWords(new Uint16Array(a), new Uint16Array(b), 1);
  return differingWords(new Int32Array(a), new Int32Array(b), elementBytes / 4);
}

type Words = Uint8Array | Uint16Array | Int32Array;

function differingWords(a: Words, b: Words, each: number): number {
  let count = 0;
  for (let i = 0; i < a.length; i += each) {
    if (a[i] !== b[i] || a[i + each - 1] !== b[i + each - 1]) count++;
  }
  return count;
}
