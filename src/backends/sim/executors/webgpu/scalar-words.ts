/** The scalar of a fold as the words that kernels take: float32 bits, float64 bits, or a whole number's low 64 bits. */
import type { Fold } from "../../../../algorithms/arithmetic/index.ts";
import { dtypeInfo } from "../../../../api/index.ts";

const bytes = new DataView(new ArrayBuffer(8));

/** Two words, low one first. */
export function scalarWords({ dtype, terms }: Fold): readonly [number, number] {
  const { scalar } = terms;
  if (dtypeInfo[dtype].kind !== "float")
    bytes.setBigUint64(0, BigInt.asUintN(64, BigInt(scalar)), true);
  else if (dtype === "float64") bytes.setFloat64(0, Number(scalar), true);
  else {
    bytes.setFloat32(0, Number(scalar), true);
    bytes.setUint32(4, 0, true);
  }
  return [bytes.getUint32(0, true), bytes.getUint32(4, true)];
}
