/** Symmetric sums: one float32 runs for each element of a word, and is rounded to the element type once in the end. */
import { hex, parts32, type WordFloat, wordFormats } from "./float-format.ts";
import { type NativeAdd, nativeAddition } from "./float-native.ts";
import { narrowing, rounding } from "./float-round.ts";
import { words64 } from "./words64.ts";

/** The functions of a kernel, and the type of what is running. */
export function wideSum(dtype: WordFloat, native: NativeAdd): { text: string; running: string } {
  const { width } = wordFormats[dtype];
  const lanes = 32 / width;
  const running = `vec${lanes}<u32>`;
  const letters = ["x", "y", "z", "w"].slice(0, lanes);
  const mask = hex(2 ** width - 1);
  const wide = letters.map((_, i) => `widen_${dtype}((x >> ${i * width}u) & ${mask})`);
  const sums = letters.map((letter) => `sum_float32(a.${letter}, b.${letter})`);
  const narrow = letters.map((letter, i) => `(narrow_${dtype}(a.${letter}) << ${i * width}u)`);
  const base = words64 + parts32 + rounding(dtype) + rounding("float32") + narrowing(dtype);
  const text = `${base}${nativeAddition("float32", native)}
fn start(x: u32, scalar: vec2<u32>) -> ${running} { return ${running}(${wide.join(", ")}); }
fn join(a: ${running}, b: ${running}) -> ${running} { return ${running}(${sums.join(", ")}); }
fn finish(a: ${running}, divisor: u32) -> ${running} { return a; }
fn store(a: ${running}) -> u32 { return ${narrow.join(" | ")}; }
`;
  return { text, running };
}
