/**
 * The input rule of recorded calls: every element is a hash of the call's name, the rank and the element's number.
 *
 * Typed-array loops, because recorded files are replayed whole.
 */
import { mix32 } from "../api/bits.ts";
import { bytesOf, type DType, dtypeInfo, type HostArray } from "../api/index.ts";
import { type GoldenCase, sentBlocks } from "./case.ts";
import { idOf } from "./format.ts";

/** Kinds of bits in elements: raw, with moderate exponents, or with exponents close to 0. */
type InputClass = "wild" | "norm" | "narrow";

/** Sign bit, fraction bits and exponent of a small float, as the recorder draws them. */
interface SmallRule {
  readonly sign: number;
  readonly fraction: number;
  readonly fractionBits: number;
  readonly base: number;
  readonly mask: number;
  readonly narrowBase: number;
}

const smallRules: Partial<Record<DType, SmallRule>> = {
  float16: { sign: 0x8000, fraction: 0x3ff, fractionBits: 10, base: 11, mask: 7, narrowBase: 14 },
  bfloat16: { sign: 0x8000, fraction: 0x7f, fractionBits: 7, base: 119, mask: 15, narrowBase: 126 },
  float8e4m3: { sign: 0x80, fraction: 7, fractionBits: 3, base: 3, mask: 7, narrowBase: 6 },
  float8e5m2: { sign: 0x80, fraction: 3, fractionBits: 2, base: 11, mask: 7, narrowBase: 14 },
};

/** The input of a rank in a call. */
export function inputOf(golden: GoldenCase, rank: number): HostArray {
  const { dtype, op, count, values } = golden;
  const elements = sentBlocks(golden) * count;
  const memory = new ArrayBuffer(elements * bytesOf(dtype));
  // Products leave the range of most types after a few moderate factors.
  const drawn = values === "wild" ? "wild" : op === "prod" ? "narrow" : "norm";
  fillInput(memory, elements, dtype, drawn, idOf(golden), rank);
  return dtypeInfo[dtype].view(memory, 0, elements);
}

/** FNV-1a over the characters of a text. */
function fnv(text: string): number {
  let hash = 0x811c9dc5;
  for (let i = 0; i < text.length; i++) hash = Math.imul(hash ^ text.charCodeAt(i), 0x01000193);
  return hash >>> 0;
}

/** Writes elements 0 to `count` of rank `rank` of the case named `id` into `memory`. */
function fillInput(
  memory: ArrayBuffer,
  count: number,
  dtype: DType,
  drawn: InputClass,
  id: string,
  rank: number,
): void {
  const seed = (fnv(id) + Math.imul(rank + 1, 0x9e3779b9)) | 0;
  const bytes = bytesOf(dtype);
  const small = smallRules[dtype];
  if (bytes === 8) fillWide(new Int32Array(memory, 0, 2 * count), seed, dtype, drawn);
  else if (small !== undefined && drawn !== "wild") fillSmall(memory, count, seed, small, drawn);
  else if (dtype === "float32" && drawn !== "wild") {
    fillFloat32(new Int32Array(memory, 0, count), seed, drawn);
  } else if (bytes === 4) fillRaw(new Int32Array(memory, 0, count), seed);
  else if (bytes === 2) fillRaw(new Uint16Array(memory, 0, count), seed);
  else fillRaw(new Uint8Array(memory, 0, count), seed);
}

const stride = 0x85ebca6b | 0;

/** Words of elements `from` and after. Four at a time, since each waits for its own products. */
function fillWords(words: Int32Array, seed: number, from: number): void {
  let at = (seed + Math.imul(from, stride)) | 0;
  const whole = words.length & ~3;
  for (let i = 0; i < whole; i += 4) {
    words[i] = mix32(at);
    words[i + 1] = mix32((at + stride) | 0);
    words[i + 2] = mix32((at + 2 * stride) | 0);
    words[i + 3] = mix32((at + 3 * stride) | 0);
    at = (at + 4 * stride) | 0;
  }
  for (let i = whole; i < words.length; i++, at = (at + stride) | 0) words[i] = mix32(at);
}

/** Words that an element is formed of, a few thousand at a time: they stay in the processor's cache. */
const scratch = new Int32Array(4096);

/** Calls `form` with the words of elements `from` and after, for all elements. */
function eachWords(
  count: number,
  seed: number,
  form: (words: Int32Array, from: number) => void,
): void {
  for (let from = 0; from < count; from += scratch.length) {
    const words = scratch.subarray(0, Math.min(scratch.length, count - from));
    fillWords(words, seed, from);
    form(words, from);
  }
}

function fillRaw(out: Int32Array | Uint16Array | Uint8Array, seed: number): void {
  if (out instanceof Int32Array) fillWords(out, seed, 0);
  // A typed array keeps the low bits of each word.
  else eachWords(out.length, seed, (words, from) => out.set(words, from));
}

function fillFloat32(out: Int32Array, seed: number, drawn: InputClass): void {
  const modulus = drawn === "narrow" ? 3 : 17;
  const base = 127 - (modulus >> 1);
  fillWords(out, seed, 0);
  for (let i = 0; i < out.length; i++) {
    const u = out[i] as number;
    const exponent = base + ((u >>> 23) % modulus);
    out[i] = (u & 0x8000_0000) | (exponent << 23) | (u & 0x7f_ffff);
  }
}

function fillSmall(
  memory: ArrayBuffer,
  count: number,
  seed: number,
  rule: SmallRule,
  drawn: InputClass,
): void {
  const isNarrow = drawn === "narrow";
  const wide = rule.sign > 0xff ? new Uint16Array(memory, 0, count) : undefined;
  const narrow = new Uint8Array(memory, 0, wide === undefined ? count : 0);
  eachWords(count, seed, (words, from) => {
    formSmall(words, rule, isNarrow);
    (wide ?? narrow).set(words, from);
  });
}

/** Words become the bits of small floats. */
function formSmall(words: Int32Array, rule: SmallRule, isNarrow: boolean): void {
  const { sign, fraction, fractionBits, narrowBase, base, mask } = rule;
  for (let i = 0; i < words.length; i++) {
    const u = words[i] as number;
    const e = u >>> 20;
    const exponent = isNarrow ? narrowBase + (e % 3) : base + (e & mask);
    words[i] = (u & sign) | (exponent << fractionBits) | (u & fraction);
  }
}

function fillWide(out: Int32Array, seed: number, dtype: DType, drawn: InputClass): void {
  const raw = dtype !== "float64" || drawn === "wild";
  const modulus = drawn === "narrow" ? 3 : 17;
  const base = 1023 - (modulus >> 1);
  eachWords(out.length >> 1, seed, (words, from) => {
    for (let i = 0; i < words.length; i++) {
      const u = words[i] as number;
      const at = 2 * (from + i);
      out[at] = mix32(u ^ 0xdeadbeef);
      const exponent = base + ((u >>> 20) % modulus);
      out[at + 1] = raw ? u : (u & 0x8000_0000) | (exponent << 20) | (u & 0xf_ffff);
    }
  });
}
