/**
 * The arithmetic of an operation as WGSL: pure text.
 *
 * A kernel works on *units*: a word of one, two or four elements, or a pair of words for 8-byte elements. It calls
 *
 *     start(unit, scalar) -> running          a contribution, or a partial of one rank, begins a fold
 *     join(running, running) -> running       folds two partials
 *     fuse(running, unit, scalar) -> running  folds a contribution and rounds its product together with the sum
 *     finish(running, divisor) -> running     completes a value
 *     store(running) -> unit
 *
 * The running value is a unit too, except in symmetric sums.
 */

import { bytesOf, type DType } from "../../../../../api/index.ts";
import { float64Text, narrowing, rounding, wordFloatText } from "./float-arithmetic.ts";
import { hex, parts32, type WordFloat, wordFormats } from "./float-format.ts";
import { addsPairs, directivesOf, halfSum, type NativeAdd, nativeAddition } from "./float-sum.ts";
import {
  integerSums,
  pairDivision,
  pairExtreme,
  pairSums,
  wordDivision,
  wordExtreme,
  wordSums,
} from "./integers.ts";
import type { Fusing, Operation } from "./operation.ts";
import { words64 } from "./wide-words.ts";

/** The text of an operation, and the types and properties that a kernel needs to call it. */
export interface Arithmetic {
  /** The text before everything else in a module. */
  readonly directives: string;
  readonly text: string;
  /** WGSL types of a unit and of the running value. */
  readonly unit: "u32" | "vec2<u32>";
  readonly running: string;
  /** True when contributions and partials are folded differently. */
  readonly scales: boolean;
  readonly fused: Fusing;
  /** True for few instructions, which are written out for every word. */
  readonly light: boolean;
}

/** Bits of an element. */
function widthOf(dtype: DType): number {
  return 8 * bytesOf(dtype);
}

/** The arithmetic of an operation on a device. */
export function arithmeticOf(operation: Operation, native: NativeAdd): Arithmetic {
  const { dtype, kind, fused } = operation;
  const scales = kind === "scaled";
  if (kind === "wide") {
    const sum = wideSum(dtype as WordFloat, native);
    return { ...sum, directives: "", unit: "u32", scales, fused, light: false };
  }
  if (dtype === "float16" && kind === "sum" && addsPairs(native)) {
    return { ...halfSum(native), unit: "u32", scales, fused, light: true };
  }
  const directives = directivesOf(native);
  const light = isLight(operation, native);
  const unit = widthOf(dtype) === 64 ? "vec2<u32>" : "u32";
  const text = unitText(operation, native, unit, light);
  return { directives, text, unit, running: unit, scales, fused, light };
}

/** One or two elements in a word, and few instructions for each; or a choice between longer ones. */
function isLight({ dtype, kind }: Operation, native: NativeAdd): boolean {
  if (isWordFloat(dtype)) {
    return kind === "sum" && native === "all" && (dtype === "float32" || dtype === "bfloat16");
  }
  const width = widthOf(dtype);
  if (width === 64) return kind === "min" || kind === "max";
  return kind !== "average" && width === 32;
}

function isWordFloat(dtype: DType): dtype is WordFloat {
  return Object.hasOwn(wordFormats, dtype);
}

/** The functions of elements, and those of a kernel, which do them for every element of a unit. */
function unitText(
  operation: Operation,
  native: NativeAdd,
  unit: Arithmetic["unit"],
  light: boolean,
): string {
  const { dtype, kind } = operation;
  const mapElements = mapLanes(widthOf(dtype), light);
  let elements = "";
  let complete = "A";
  if (dtype === "float64") {
    elements = float64Text(operation);
    complete = "select(A, nan64, isNan64(A))";
  } else if (isWordFloat(dtype)) {
    elements = wordFloatText(operation, dtype, native) + canonicalText(dtype);
    complete = "canonical(A)";
  } else {
    elements = integerText(operation);
    if (kind === "average") complete = "divide(A, divisor)";
  }
  return `${elements}${joinByPick(unit, operation)}${callText(unit, operation, mapElements)}
fn finish(a: ${unit}, divisor: u32) -> ${unit} {
  ${complete === "A" ? "return a;" : mapElements(complete)}
}
`;
}

function integerText({ dtype, kind }: Operation): string {
  const signed = dtype.startsWith("int");
  const width = widthOf(dtype);
  const extreme = kind === "min" || kind === "max";
  if (width === 64) {
    const sums = (): string => integerSums(kind, "vec2<u32>", pairSums, pairDivision(signed));
    return words64 + (extreme ? pairExtreme(signed, kind) : sums());
  }
  if (extreme) return wordExtreme(width, signed, kind);
  return integerSums(kind, "u32", wordSums(width), wordDivision(width, signed));
}

/** `pick`, where it joins partials. */
function joinByPick(type: string, { kind }: Operation): string {
  if (kind !== "min" && kind !== "max") return "";
  return `\nfn join1(a: ${type}, b: ${type}) -> ${type} { return pick(a, b); }\n`;
}

function canonicalText(dtype: WordFloat): string {
  const { width, last, nan } = wordFormats[dtype];
  return `
fn canonical(x: u32) -> u32 { return select(x, ${hex(nan)}, (x & ${hex(2 ** (width - 1) - 1)}) > ${hex(last)}); }
`;
}

/** The functions that a kernel calls, built of those of elements. */
function callText(type: string, { kind, fused }: Operation, mapElements: MapElements): string {
  return `
fn start(x: ${type}, scalar: vec2<u32>) -> ${type} {
  ${kind === "scaled" ? mapElements("start1(X, scalar)") : "return x;"}
}
fn join(a: ${type}, x: ${type}) -> ${type} {
  ${mapElements("join1(A, X)")}
}
${fused === "none" ? "" : fuseText(type, mapElements)}fn store(a: ${type}) -> ${type} { return a; }
`;
}

function fuseText(type: string, mapElements: MapElements): string {
  return `fn fuse(a: ${type}, x: ${type}, scalar: vec2<u32>) -> ${type} {
  ${mapElements("fuse1(A, X, scalar)")}
}
`;
}

/** Statements that return an expression of elements `A` and `X`, done for each element of the words `a` and `x`. */
type MapElements = (expression: string) => string;

const mapWhole: MapElements = (expression) =>
  `return ${expression.replaceAll("A", "a").replaceAll("X", "x")};`;

/** Short expressions are repeated for every element; long ones are in a loop, so that shaders stay short to compile. */
function mapLanes(width: number, light: boolean): MapElements {
  if (width >= 32) return mapWhole;
  const mask = hex(2 ** width - 1);
  const at = (expression: string, shift: string): string => {
    const of = (word: string): string => `(${word} >> ${shift}) & ${mask}`;
    return `(${expression.replaceAll("A", of("a")).replaceAll("X", of("x"))} << ${shift})`;
  };
  if (!light) {
    return (expression) => `var word = 0u;
  for (var shift = 0u; shift < 32u; shift += ${width}u) { word |= ${at(expression, "shift")}; }
  return word;`;
  }
  return (expression) => {
    const parts = Array.from({ length: 32 / width }, (_, i) => at(expression, `${i * width}u`));
    return `return ${parts.join(" |\n    ")};`;
  };
}

/** Symmetric sums: a running float32 for each element of a word, rounded to the element type once at the end. */
function wideSum(dtype: WordFloat, native: NativeAdd): { text: string; running: string } {
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
