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

function fillRaw(out: Int32Array | Uint16Array | Uint8Array, seed: number): void {
  if (out instanceof Int32Array) fillRaw32(out, seed);
  else if (out instanceof Uint16Array) fillRaw16(out, seed);
  else fillRaw8(out, seed);
}

function fillRaw32(out: Int32Array, seed: number): void {
  for (let i = 0, at = seed; i < out.length; i++, at = (at + stride) | 0) out[i] = mix32(at);
}

function fillRaw16(out: Uint16Array, seed: number): void {
  for (let i = 0, at = seed; i < out.length; i++, at = (at + stride) | 0) out[i] = mix32(at);
}

function fillRaw8(out: Uint8Array, seed: number): void {
  for (let i = 0, at = seed; i < out.length; i++, at = (at + stride) | 0) out[i] = mix32(at);
}

function fillFloat32(out: Int32Array, seed: number, drawn: InputClass): void {
  const modulus = drawn === "narrow" ? 3 : 17;
  const base = 127 - (modulus >> 1);
  for (let i = 0, at = seed; i < out.length; i++, at = (at + stride) | 0) {
    const u = mix32(at);
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
  if (rule.sign > 0xff) fillSmall16(new Uint16Array(memory, 0, count), seed, rule, drawn);
  else fillSmall8(new Uint8Array(memory, 0, count), seed, rule, drawn);
}

function smallBits(u: number, rule: SmallRule, narrow: boolean): number {
  const e = u >>> 20;
  const exponent = narrow ? rule.narrowBase + (e % 3) : rule.base + (e & rule.mask);
  return (u & rule.sign) | (exponent << rule.fractionBits) | (u & rule.fraction);
}

function fillSmall16(out: Uint16Array, seed: number, rule: SmallRule, drawn: InputClass): void {
  const narrow = drawn === "narrow";
  for (let i = 0, at = seed; i < out.length; i++, at = (at + stride) | 0) {
    out[i] = smallBits(mix32(at), rule, narrow);
  }
}

function fillSmall8(out: Uint8Array, seed: number, rule: SmallRule, drawn: InputClass): void {
  const narrow = drawn === "narrow";
  for (let i = 0, at = seed; i < out.length; i++, at = (at + stride) | 0) {
    out[i] = smallBits(mix32(at), rule, narrow);
  }
}

function fillWide(out: Int32Array, seed: number, dtype: DType, drawn: InputClass): void {
  const raw = dtype !== "float64" || drawn === "wild";
  const modulus = drawn === "narrow" ? 3 : 17;
  const base = 1023 - (modulus >> 1);
  for (let i = 0, at = seed; i < out.length; i += 2, at = (at + stride) | 0) {
    const u = mix32(at);
    out[i] = mix32(u ^ 0xdeadbeef);
    const exponent = base + ((u >>> 20) % modulus);
    out[i + 1] = raw ? u : (u & 0x8000_0000) | (exponent << 20) | (u & 0xf_ffff);
  }
}
