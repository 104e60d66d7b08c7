/** One element: its bits, its value, and both as people read them. */
import { bytesOf, type DType, dtypeInfo, type HostArray } from "twinccl";
import { bitsToNumber, type Lanes, lanesOf, type SmallFloat } from "twinccl/algorithms";
import { floatFormats } from "./float-format.ts";

/** An element of a dtype. */
export interface Cell {
  readonly dtype: DType;
  readonly bits: bigint;
  /** A number for floats, a bigint for integers. */
  readonly value: number | bigint;
}

/** Memory for one element, as folds see it. */
export function oneLane(dtype: DType): Lanes {
  const bytes = bytesOf(dtype);
  return lanesOf(dtype, new ArrayBuffer(bytes), 0, bytes);
}

/** An element of an array, as folds see it. */
export function laneOf(dtype: DType, array: HostArray, element: number): Lanes {
  const bytes = bytesOf(dtype);
  const lane = oneLane(dtype);
  const from = new Uint8Array(array.buffer, array.byteOffset + element * bytes, bytes);
  new Uint8Array(lane.buffer).set(from);
  return lane;
}

/** The contents of a lane. */
export function cellOf(dtype: DType, lane: Lanes): Cell {
  const { kind, bits: isBits, view } = dtypeInfo[dtype];
  const bytes = bytesOf(dtype);
  const words = new Uint8Array(lane.buffer, lane.byteOffset, bytes);
  const bits = words.reduceRight((sum, byte) => (sum << 8n) | BigInt(byte), 0n);
  if (isBits) return { dtype, bits, value: bitsToNumber(dtype as SmallFloat, Number(bits)) };
  const [value = 0] = view(lane.buffer, lane.byteOffset, 1);
  return { dtype, bits, value: kind === "float" ? value : BigInt(value) };
}

/** The shortest decimal that stands for the value and no other of its type. */
export function valueText({ dtype, value }: Cell): string {
  if (typeof value === "bigint") return `${value}`.replace("-", "−");
  if (Number.isNaN(value)) return "NaN";
  if (!Number.isFinite(value)) return value > 0 ? "∞" : "−∞";
  if (Object.is(value, -0)) return "−0";
  const digits = { float64: 17, float32: 9, float16: 5, bfloat16: 4 }[dtype as string] ?? 3;
  return shortest(value, digits, nearOf(dtype)).replace("-", "−").replace("e−", "e-");
}

/** Bits as hexadecimal digits, all of them. */
export function hexText({ dtype, bits }: Cell): string {
  return `0x${bits.toString(16).padStart(2 * bytesOf(dtype), "0")}`;
}

/** Sign, exponent and fraction of a float, as binary digits; `undefined` for integers. */
export function bitFields({ dtype, bits }: Cell): readonly [string, string, string] | undefined {
  const format = floatFormats[dtype];
  if (format === undefined) return undefined;
  const text = bits.toString(2).padStart(8 * bytesOf(dtype), "0");
  return [text.slice(0, 1), text.slice(1, 1 + format.exponent), text.slice(1 + format.exponent)];
}

/** Compares by half the distance to the next value of the type, with some care: it shows which decimals still mean this value. */
function nearOf(dtype: DType): (a: number, b: number) => boolean {
  if (dtype === "float64") return (a, b) => a === b;
  if (dtype === "float32") return (a, b) => Math.fround(a) === Math.fround(b);
  const { fraction = 0, least = 0 } = floatFormats[dtype] ?? {};
  return (a, b) => {
    const exponent = Math.max(least, Math.floor(Math.log2(Math.abs(b))) - fraction);
    return Math.abs(a - b) < 2 ** (exponent - 2);
  };
}

function shortest(value: number, most: number, same: (a: number, b: number) => boolean): string {
  for (let digits = 1; digits < most; digits++) {
    const text = `${Number(value.toPrecision(digits))}`;
    if (same(Number(text), value)) return text;
  }
  return `${Number(value.toPrecision(most))}`;
}
